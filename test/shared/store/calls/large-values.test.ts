import { randomBytes } from 'node:crypto';
import { zstdCompressSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import type { Outcome } from '../../../../src/shared/calls/outcome.ts';
import { digest } from '../../../../src/shared/schema/canonical-json.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { BlobStores } from '../../../../src/shared/store/blobs/blob-stores.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import { LedgerAccess } from '../../../../src/shared/store/calls/ledger-context.ts';
import { LargeTexts } from '../../../../src/shared/store/calls/records/large-values.ts';
import { MAX_INLINE_OUTCOME_BYTES, settleCall } from '../../../../src/shared/store/calls/settle.ts';
import { JobDispatch } from '../../../../src/shared/store/dispatch/job-dispatch.ts';
import { jobIdOf } from '../../../../src/shared/store/queues/jobs.ts';
import { largeTextOf, PART_BYTES } from '../../../../src/shared/util/json/large-json.ts';
import { type Books, callIdFor, claimOf, LEASE_MS, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

const large = (content: unknown = 'x'.repeat(4 * PART_BYTES)): Outcome => ({ ...SUCCESS, output: { content } });
/** Printable characters in which there is nothing to compress. */
const noise = (length: number) =>
  [...randomBytes(length)].map((byte) => String.fromCharCode(0x21 + (byte % 94))).join('');

/** What is written first is lost before anything refers to it. */
function losePartsOnce({ texts, redis }: LedgerAccess): void {
  const write = texts.write.bind(texts);
  vi.spyOn(texts, 'write').mockImplementationOnce(async (key, text) => {
    const reference = await write(key, text);
    await redis.del(key);
    return reference;
  });
}

async function settled(books: Books, outcome = large()) {
  const claim = claimOf('a');
  await books.ledger.claim(claim);
  await settle(books, claim, (await started(books, claim)).fence, outcome, { ttlMs: 33_000 });
  const record = books.ledger.keys(PLACE).record(claim.callId);
  const [at = '', parts = ''] = await books.redis.hmget(record, 'outcomeAt', 'outcomeParts');
  return { claim, record, at: at ?? '', reference: JSON.parse(parts ?? '') as { parts: string[] } };
}

describe('large outcomes', () => {
  test.each<[string, Outcome, RegExp]>([
    ['one that can be compressed', large(), /^zstd:/],
    ['one that cannot', large(noise(2 * PART_BYTES)), /^plain:/],
    ['one of characters of several bytes', large('é🙂'.repeat(PART_BYTES)), /^zstd:/],
    ['one that is just too large for its record', large('x'.repeat(MAX_INLINE_OUTCOME_BYTES)), /^zstd:/],
  ])(
    '%s: parts of at most 256 KiB, which are read alike by the index, by the record and by a claim',
    async (_what, outcome, encoding) => {
      const books = await openBooks();
      const { claim, at, reference } = await settled(books, outcome);
      const stored = await books.redis.hvalsBuffer(at);
      expect(stored).toHaveLength(reference.parts.length);
      expect(stored.every((part) => part.length <= PART_BYTES)).toBe(true);
      for (const part of reference.parts) expect(part).toMatch(encoding);
      expect(await books.ledger.outcome(claim.callId)).toEqual(outcome);
      expect((await books.ledger.read(claim.callId))?.outcome).toEqual(outcome);
      const again = await books.ledger.claim(claimOf('a'));
      expect(JSON.stringify(again.kind === 'ended' && again.outcome) === JSON.stringify(outcome)).toBe(true);
      expect((await books.ledger.readBrief(claim.callId))?.outcome).toBeUndefined();
    },
  );

  test('parts that nothing refers to expire, and writing them again takes nothing back of what refers to them', async () => {
    const { redis, world } = await openBooks();
    const texts = new LargeTexts(new BlobStores(redis));
    const key = `${world.prefix}:text`;
    const text = largeTextOf(noise(3 * PART_BYTES));
    await texts.write(key, text);
    const leftMs = await redis.pttl(key);
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(600_000);
    await redis.pexpire(key, 86_400_000);
    await texts.write(key, text);
    expect(await redis.pttl(key)).toBeGreaterThan(600_000);
    await redis.persist(key);
    await texts.write(key, text);
    expect(await redis.pttl(key)).toBe(-1);
  });

  test('a range is read from the parts that hold it', async () => {
    const { redis, world } = await openBooks();
    const texts = new LargeTexts(new BlobStores(redis));
    const written = noise(3 * PART_BYTES + 7);
    const reference = await texts.write(`${world.prefix}:text`, largeTextOf(written));
    for (const [from, to] of [
      [0, written.length],
      [PART_BYTES - 1, PART_BYTES + 1],
      [2 * PART_BYTES, 2 * PART_BYTES + 5],
      [written.length - 1, written.length],
    ] as const) {
      const read: Buffer[] = [];
      for await (const part of texts.read(`${world.prefix}:text`, reference, [from, to])) read.push(part);
      expect(Buffer.concat(read).toString() === written.slice(from, to)).toBe(true);
    }
  });

  test('a settle whose parts Redis has lost writes nothing, and can be made again', async () => {
    const books = await openBooks();
    const { redis, world } = books;
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    const access = new LedgerAccess(redis, world.prefix, 60_000, new Signatures());
    losePartsOnce(access);
    const outcomeJson = JSON.stringify(large());
    const settling = { callId: claim.callId, fence, state: 'done', outcome: large(), outcomeJson } as const;
    const again = () => settleCall(access, { ...settling, attempts: [], ttlMs: 9_000 });
    await expect(again()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', phase: 'running' });
    expect(await again()).toBe('settled');
  });

  test('neither does the end of a job: another call that ends with it is not kept from that', async () => {
    const books = await openBooks();
    const { redis, world, ledger } = books;
    const [lost, whole] = [claimOf('a'), claimOf('b')];
    await ledger.claim(lost);
    await ledger.claim(whole);
    const fetched = {
      ...{ lockToken: 'lock', timestampMs: Date.now(), requestedAtMs: performance.now(), leaseMs: LEASE_MS },
      ...{ workerId: 'worker-1', token: 'delivery', workers: 1 },
      capacity: () => ({ free: 2, received: 0, pushable: false }),
    };
    expect(await books.dispatch.fetch(PLACE, fetched, 2)).toHaveLength(2);
    const access = new LedgerAccess(redis, world.prefix, 60_000, new Signatures());
    losePartsOnce(access);
    const dispatch = new JobDispatch(access);
    const end = ({ callId, generation }: typeof lost, outcome: Outcome) =>
      dispatch.finish(
        { callId, fence: 1, state: 'done', outcome, outcomeJson: JSON.stringify(outcome), attempts: [], ttlMs: 9_000 },
        { id: jobIdOf(callId, generation), returnValue: '{}', keptJobs: 0, fetchNext: false },
        fetched,
      );
    const [first, second] = await Promise.allSettled([end(lost, large()), end(whole, SUCCESS)]);
    expect(first).toMatchObject({ status: 'rejected', reason: { code: 'BACKEND_UNAVAILABLE' } });
    expect(second).toMatchObject({ status: 'fulfilled', value: { code: 'settled' } });
    expect(await ledger.read(lost.callId)).toMatchObject({ state: 'inflight', phase: 'running' });
    expect(await end(lost, large())).toMatchObject({ code: 'settled' });
    expect(await ledger.outcome(lost.callId)).toEqual(large());
  });

  test('parts that have expired are a typed error', async () => {
    const books = await openBooks();
    const { claim, at } = await settled(books);
    await books.redis.hdel(at, '2');
    await expect(books.ledger.outcome(claim.callId)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });

  test('a flush forgets the parts, too', async () => {
    const books = await openBooks();
    const { at } = await settled(books);
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1 });
    expect(await books.redis.exists(at)).toBe(0);
  });

  test('outcomes that earlier versions kept as one text are read', async () => {
    const books = await openBooks();
    const { claim, record } = await settled(books);
    const at = `${books.ledger.keys(PLACE).base}:outcome:${claim.callId}`;
    await books.redis.hdel(record, 'outcomeParts');
    await books.redis.hset(record, 'outcomeAt', at);
    await books.redis.set(at, JSON.stringify(large('as it was')));
    expect(await books.ledger.outcome(claim.callId)).toEqual(large('as it was'));
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome: large('as it was') });
  });
});

describe('DESIGN, decision 11: what others wrote in place of an outcome is refused', () => {
  const FORGED = { status: 'error', error: { code: 'SIGNATURE_INVALID' } };

  test('a part with other bytes, also without keys', async () => {
    const books = await openBooks();
    const { claim, at } = await settled(books);
    await books.redis.hset(at, '1', zstdCompressSync(Buffer.from('y'.repeat(PART_BYTES))));
    expect(await books.ledger.outcome(claim.callId)).toMatchObject(FORGED);
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome: FORGED });
  });

  test('a part that would be decompressed to more than it was', async () => {
    const books = await openBooks();
    const { claim, at, record, reference } = await settled(books);
    const bomb = zstdCompressSync(Buffer.alloc(64 * 1_024 * 1_024));
    const parts = reference.parts.with(1, `zstd:${digest(bomb)}`);
    await books.redis.hset(at, '1', bomb);
    await books.redis.hset(record, 'outcomeParts', JSON.stringify({ ...reference, parts }));
    expect(await books.ledger.outcome(claim.callId)).toMatchObject(FORGED);
  });

  test('a reference that no key signed, and the outcome of another call', async () => {
    const { redis, world, ...rest } = await openBooks();
    const refused: unknown[] = [];
    const signatures = new Signatures(new Signer([{ kid: 'k', key: 'fleet' }]), (event) => void refused.push(event));
    const books = { ...rest, redis, world, ledger: new Ledger(redis, world.prefix, 60_000, signatures) };
    // A signed request is only as old as its generation says.
    const claim = { ...claimOf('a'), generation: String(Date.now()) };
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, large());
    expect(await books.ledger.outcome(claim.callId)).toEqual(large());
    const record = books.ledger.keys(PLACE).record(claim.callId);
    const other = books.ledger.keys(PLACE).record(callIdFor('other'));
    await redis.copy(record, other);
    expect(await books.ledger.outcome(callIdFor('other'))).toMatchObject(FORGED);
    const text = await redis.hget(record, 'outcomeParts');
    await redis.hset(record, 'outcomeParts', (text ?? '').replace('"bytes":', '"bytes": '));
    expect(await books.ledger.outcome(claim.callId)).toMatchObject(FORGED);
    // Neither is the reference an outcome.
    await redis.hset(record, 'outcome', text ?? '');
    expect(await books.ledger.outcome(claim.callId)).toMatchObject(FORGED);
    expect(refused).toHaveLength(3);
  });
});
