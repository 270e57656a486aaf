import { expect, test } from 'vitest';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { type RefusedRecord, Signatures } from '../../../../src/shared/signing/signatures.ts';
import { SwitchRecords } from '../../../../src/shared/store/config/switches.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { signedText } from '../../../../src/shared/store/signing/signed-text.ts';
import { openBooks } from '../calls.ts';

const OLD = { kid: 'old', key: 'a key of this fleet alone' };
const NEW = { kid: 'new', key: 'the key that comes after it' };

async function open() {
  const { redis, world } = await openBooks();
  const refused: RefusedRecord[] = [];
  const recordsOf = (...keys: readonly (typeof OLD)[]) =>
    new SwitchRecords(redis, world.prefix, new Signatures(new Signer(keys), (each) => void refused.push(each)));
  return { redis, hash: new FleetKeys(world.prefix).switches, recordsOf, refused };
}

const off = { enabled: false, atMs: 1 };
const stranger = new Signatures(new Signer([{ kid: 'old', key: 'a key that another fleet has' }]));
const own = new Signatures(new Signer([OLD]));

test.each([
  ['no signature', '*', JSON.stringify(off)],
  ['an empty signature', '*', ` ${JSON.stringify(off)}`],
  ['another fleet’s signature', '*', signedText(stranger, 'switch', '*', off)],
  ['the signature of another tool’s switch', 'tools.pay', signedText(own, 'switch', 'tools.look', off)],
  ['one tool’s switch for all tools', '*', signedText(own, 'switch', 'tools.pay', off)],
  ['the signature of another kind of record', 'tools.pay', signedText(own, 'spec', 'tools.pay', off)],
  [
    'a changed text',
    'tools.pay',
    signedText(own, 'switch', 'tools.pay', { ...off, enabled: true }).replace('true', 'false'),
  ],
])('a switch with %s merges and retries as before, and is reported', async (_, field, stored) => {
  const { redis, hash, recordsOf, refused } = await open();
  const records = recordsOf(OLD);
  await records.set(false, { tool: 'tools.look', reason: 'wrong results' });
  await redis.hset(hash, field, stored);
  for (let look = 0; look < 2; look += 1) {
    const { all, tools } = (await records.read()).switches;
    expect([all, Object.keys(tools)]).toEqual([undefined, ['tools.look']]);
  }
  expect(refused).toMatchObject([{ kind: 'switch', id: [field] }]);
});

test('switches outlive the key that signed them, once they are signed again', async () => {
  const { recordsOf, refused } = await open();
  await recordsOf(OLD).set(false, {});
  await recordsOf(OLD).set(true, { tool: 'tools.pay', reason: 'mended' });
  const before = (await recordsOf(OLD).read()).switches;
  expect(before).toMatchObject({
    all: { enabled: false },
    tools: { 'tools.pay': { enabled: true, reason: 'mended' } },
  });
  await recordsOf(NEW, OLD).reSign();
  expect((await recordsOf(NEW).read()).switches).toEqual(before);
  expect(refused).toEqual([]);
});
