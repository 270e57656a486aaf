import { createHmac } from 'node:crypto';
import { expect, test } from 'vitest';
import { callbackSecret, callbackSecretSchema, signedHeaders } from '../../../src/shared/callbacks/callback.ts';

const key = Buffer.from('0123456789abcdef0123456789abcdef');

test.each([
  ['a text', key.toString(), true],
  ['the prefix and base64', `whsec_${key.toString('base64')}`, true],
  ['the prefix and base64 without its end', `whsec_${key.toString('base64').replace(/=+$/, '')}`, true],
  ['a short text', 'short', false],
  ['the prefix and no base64, of which Node would make an empty key', 'whsec_!!!!!!!!!!!!!!!!', false],
  ['the prefix and a text with other signs', 'whsec_a secret of our own, with signs', false],
  ['the prefix and a short key', `whsec_${Buffer.from('0123456789').toString('base64')}`, false],
  ['the prefix alone', 'whsec_', false],
])('%s as a secret', (_title, secret, isUsable) => {
  expect(callbackSecretSchema.safeParse(secret).success).toBe(isUsable);
});

test('each secret signs, and is printed in the form that the libraries take, with the same key', () => {
  const secrets = [key.toString(), `whsec_${key.toString('base64')}`];
  const printed = secrets.map((secret) => callbackSecret(secret, undefined));
  expect(new Set(printed)).toEqual(new Set([`whsec_${key.toString('base64')}`]));
  const message = { id: 'msg_1', atMs: 1_790_000_000_000, body: '{}' };
  const mac = createHmac('sha256', key).update('msg_1.1790000000.{}').digest('base64');
  for (const each of [secrets, printed])
    expect(signedHeaders(each, message)['webhook-signature']).toBe(`v1,${mac} v1,${mac}`);
  expect(callbackSecret(printed[0] ?? '', 'acme')).not.toBe(printed[0]);
  expect(callbackSecret(secrets[0] ?? '', 'acme')).toBe(callbackSecret(secrets[1] ?? '', 'acme'));
});
