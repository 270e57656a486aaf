import { describe, expect, test, vi } from 'vitest';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { ClaimWriter } from '../../../../src/shared/store/calls/claim/claim.ts';
import { LedgerAccess } from '../../../../src/shared/store/calls/ledger-context.ts';
import { type Books, claimOf, envelopeFor, failureOutcome, openBooks, PLACE, settle, started } from '../calls.ts';

const PARAMS = { text: 'x'.repeat(600_000), list: [1, 'é'] };

function largeClaim(name: string, params: Record<string, unknown> = PARAMS) {
  const envelope = envelopeFor(name);
  const claim = claimOf(name);
  return {
    ...claim,
    request: { ...claim.request, envelope: { ...envelope, payload: { ...envelope.payload, params } } },
  };
}

async function claimed(books: Books, name = 'a') {
  const claim = largeClaim(name);
  expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
  const record = books.ledger.keys(PLACE).record(claim.callId);
  const at = (await books.redis.hget(record, 'paramsAt')) ?? '';
  return { claim, record, at };
}

const textsOf = async ({ world }: Books) => (await world.keys()).filter((key) => key.includes(':params:'));

describe('large parameters', () => {
  test('are stored apart, read with the call, and not read by a brief read or a wait for its end', async () => {
    const books = await openBooks();
    const { claim, record, at } = await claimed(books);
    expect(await textsOf(books)).toEqual([at]);
    expect(await books.redis.hstrlen(record, 'request')).toBeLessThan(2_000);
    const begun = await started(books, claim);
    expect(begun.request.envelope.payload.params).toEqual({});
    const whole = await books.ledger.requestWithParams(claim.callId, begun.request);
    expect(whole).toEqual(claim.request);
    expect((await books.ledger.read(claim.callId))?.request).toEqual(claim.request);
    for (const part of [await books.ledger.readBrief(claim.callId), await books.ledger.read(claim.callId, 'inbox')])
      expect(part?.request).toMatchObject({
        envelope: { payload: { params: {} } },
        largeParams: { bytes: Buffer.byteLength(JSON.stringify(PARAMS)) },
      });
  });

  test('are not kept when they are not needed: of a call that runs already, that has ended, or that conflicts', async () => {
    const books = await openBooks();
    const { claim, at } = await claimed(books);
    expect(await books.ledger.claim(largeClaim('a'))).toMatchObject({ kind: 'inflight' });
    expect(await books.ledger.claim({ ...largeClaim('a'), paramsDigest: 'other' })).toMatchObject({ kind: 'conflict' });
    await settle(books, claim, (await started(books, claim)).fence);
    expect(await books.ledger.claim(largeClaim('a'))).toMatchObject({ kind: 'ended' });
    await vi.waitFor(async () => expect(await textsOf(books)).toEqual([at]), { timeout: 30_000 });
  });

  test.each<[string, (books: Books, call: Awaited<ReturnType<typeof claimed>>) => Promise<unknown>]>([
    ['settled', async (books, { claim }) => settle(books, claim, (await started(books, claim)).fence)],
    [
      'cancelled',
      ({ ledger }, { claim }) =>
        ledger.cancel(claim.callId, {
          state: 'cancelled',
          beforeStart: failureOutcome('CANCELLED'),
          betweenAttempts: failureOutcome('CANCELLED'),
          ttlMs: 60_000,
        }),
    ],
    [
      'resolved',
      async (books, { claim }) => {
        const { fence } = await started(books, claim);
        await settle(books, claim, fence, failureOutcome('OUTCOME_UNKNOWN'), { ttlMs: 1_000 });
        return books.ledger.resolve(claim.callId, {
          state: 'done',
          outcome: { ...failureOutcome('CANCELLED') },
          ttlMs: 60_000,
        });
      },
    ],
  ])('live as long as the record of a call that was %s, and for ever while it is in flight', async (_how, end) => {
    const books = await openBooks();
    const call = await claimed(books);
    expect(await books.redis.pttl(call.at)).toBe(-1);
    await end(books, call);
    const times = await Promise.all([books.redis.pexpiretime(call.record), books.redis.pexpiretime(call.at)]).catch(
      () => undefined,
    );
    if (times !== undefined) expect(times[0]).toBe(times[1]);
    expect(await books.redis.pttl(call.at)).toBeGreaterThan(0);
    expect(await books.redis.pttl(call.at)).toBeLessThanOrEqual(60_000);
  });

  test('of a call that is queued again they are there again for as long as it takes; a flush forgets them', async () => {
    const books = await openBooks();
    const { claim, at } = await claimed(books);
    await settle(books, claim, (await started(books, claim)).fence, failureOutcome('OUTCOME_UNKNOWN'));
    const record = await books.ledger.read(claim.callId);
    if (record === undefined) throw new Error('the call is gone');
    const generation = String(Number(claim.generation) + 1);
    expect(await books.ledger.requeue(record, { reason: 'resolved', generation })).toBe('queued');
    expect(await books.redis.pttl(at)).toBe(-1);
    await settle(books, claim, (await started(books, { ...claim, generation })).fence);
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1 });
    expect(await textsOf(books)).toEqual([]);
  });

  test('that Redis has lost before the claim leave no call behind', async () => {
    const books = await openBooks();
    const { redis, world } = books;
    const access = new LedgerAccess(redis, world.prefix, 60_000, new Signatures());
    const { texts } = access;
    const write = texts.write.bind(texts);
    vi.spyOn(texts, 'write').mockImplementation(async (key, text) => {
      const reference = await write(key, text);
      await redis.del(key);
      return reference;
    });
    const claim = largeClaim('a');
    await expect(new ClaimWriter(access).claim(claim)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect(await books.ledger.read(claim.callId)).toBeUndefined();
    expect((await world.keys()).filter((key) => key.includes(claim.callId))).toEqual([]);
  });

  test('that are lost or changed later are typed errors, and the record is still one', async () => {
    const books = await openBooks();
    const { claim, at } = await claimed(books);
    const { request } = await started(books, claim);
    await books.redis.hset(at, '0', 'changed');
    await expect(books.ledger.requestWithParams(claim.callId, request)).rejects.toMatchObject({
      code: 'SIGNATURE_INVALID',
    });
    await books.redis.del(at);
    await expect(books.ledger.requestWithParams(claim.callId, request)).rejects.toMatchObject({ code: 'PARAMS_LOST' });
    expect(await books.ledger.read(claim.callId)).toMatchObject({
      state: 'inflight',
      request: { envelope: { payload: { params: {} } }, largeParams: {} },
    });
  });
});
