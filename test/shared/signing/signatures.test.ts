import { expect, test } from 'vitest';
import { Signer } from '../../../src/shared/signing/signature.ts';
import { type RefusedRecord, Signatures } from '../../../src/shared/signing/signatures.ts';

const signer = new Signer([{ kid: 'k', key: 'the key of the fleet' }]);
const tierSigner = new Signer([{ kid: 't', key: 'the key of one tier' }]);

test('a signature covers the kind, each part of the ID, and the text, in this order', () => {
  const signatures = new Signatures(signer);
  expect(signatures.sign('session', 's1', '{}')).toBe(signer.sign('session', 's1', '{}'));
  expect(signatures.sign('outcome', ['c1', 'done'], '{}')).toBe(signer.sign('outcome', 'c1', 'done', '{}'));
  expect(signatures.sign('token', [], '{}')).toBe(signer.sign('token', '{}'));
});

test('a signature holds for its own record alone', () => {
  const signatures = new Signatures(signer);
  const signature = signatures.sign('session', 's1', '{}');
  expect(signatures.verify('session', 's1', '{}', signature)).toBe(true);
  expect(signatures.verify('session', 's2', '{}', signature)).toBe(false);
  expect(signatures.verify('grant', 's1', '{}', signature)).toBe(false);
  expect(signatures.verify('session', 's1', '{"a":1}', signature)).toBe(false);
  expect(signatures.verify('session', 's1', '{}', '')).toBe(false);
});

test('a refused record is reported once for each content, and not by `matches`', () => {
  const refused: RefusedRecord[] = [];
  const signatures = new Signatures(signer, (record) => refused.push(record));
  expect(signatures.matches('session', 's1', '{}', 'k:forged')).toBe(false);
  expect(refused).toEqual([]);
  for (const text of ['{}', '{}', '{"a":1}']) signatures.verify('session', 's1', text, 'k:forged');
  expect(refused).toEqual([
    { kind: 'session', id: ['s1'] },
    { kind: 'session', id: ['s1'] },
  ]);
});

test('without keys nothing is signed, and every record verifies', () => {
  const signatures = new Signatures();
  expect(signatures.hasKeys).toBe(false);
  expect(signatures.fingerprints).toEqual([]);
  expect(signatures.sign('session', 's1', '{}')).toBe('');
  expect(signatures.verify('session', 's1', '{}', 'k:forged')).toBe(true);
});

test('a scope with keys of its own trusts those alone', () => {
  const signatures = new Signatures(signer, () => {}, { elevated: tierSigner });
  const scoped = signatures.scope('elevated');
  expect(scoped?.sign('tool', 't1', '{}')).toBe(tierSigner.sign('tool', 't1', '{}'));
  expect(scoped?.verify('tool', 't1', '{}', signatures.sign('tool', 't1', '{}'))).toBe(false);
  expect(signatures.scope('workspace')).toBeUndefined();
});
