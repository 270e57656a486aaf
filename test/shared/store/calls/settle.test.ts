import { describe, expect, test } from 'vitest';
import type { AttemptRecord } from '../../../../src/shared/calls/call-state.ts';
import { resultError } from '../../../../src/shared/calls/outcome.ts';
import { MAX_EVENT_OUTCOME_BYTES, MAX_INLINE_OUTCOME_BYTES } from '../../../../src/shared/store/calls/settle.ts';
import { jobIdOf } from '../../../../src/shared/store/queues/jobs.ts';
import type { SettledEvent } from '../../../../src/shared/store/queues/result-inbox.ts';
import {
  begin,
  CIRCUIT,
  callIdFor,
  claimOf,
  failureOutcome,
  openBooks,
  PLACE,
  SUCCESS,
  settle,
  started,
} from '../calls.ts';
import { CANCELLED, inbox, jobExists, STANDINGS } from './ledger-rig.ts';

describe('settling', () => {
  test('writes the end, takes the running parts away, and tells every producer that waits, once', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    for (const inboxId of ['producer-1', 'producer-2', 'producer-1', 'producer-10'])
      await books.ledger.claim(claimOf('a', { inboxId }));
    const { fence, nowMs } = await started(books, claim);
    await settle(books, claim, fence, SUCCESS, { ttlMs: 40_000 });
    const record = await books.ledger.read(claim.callId);
    expect(record).toMatchObject({ state: 'done', outcome: SUCCESS, version: 2, fence: 1 });
    expect(record?.expiresAtMs).toBeGreaterThanOrEqual(nowMs + 40_000);
    const fields = await books.redis.hkeys(books.ledger.keys(PLACE).record(claim.callId));
    for (const gone of ['phase', 'inboxes', 'lockUntilMs', 'worker', 'token', 'cancelRequested'])
      expect(fields).not.toContain(gone);
    for (const id of ['producer-1', 'producer-2', 'producer-10'])
      expect(await inbox(books, id)).toEqual([
        { type: 'settled', callId: claim.callId, state: 'done', atMs: expect.any(Number), outcome: SUCCESS },
      ]);
    expect(await books.ledger.index.counts(PLACE)).toEqual({ inflight: 0, delayed: 0, pending: 0, calls: 1 });
  });

  test.each([
    ['done', 86_400_000],
    ['failed', 300_000],
    ['cancelled', 7_000],
  ] as const)(
    'R16: a record that is %s lives exactly for its TTL, and one in flight does not expire',
    async (state, ttlMs) => {
      const books = await openBooks();
      const claim = claimOf('a');
      await books.ledger.claim(claim);
      const record = books.ledger.keys(PLACE).record(claim.callId);
      expect(await books.redis.pttl(record)).toBe(-1);
      const { fence } = await started(books, claim);
      expect(await books.redis.pttl(record)).toBe(-1);
      const beganAtMs = performance.now();
      await settle(books, claim, fence, SUCCESS, { state, ttlMs });
      const leftMs = await books.redis.pttl(record);
      expect(leftMs).toBeLessThanOrEqual(ttlMs);
      expect(leftMs).toBeGreaterThan(ttlMs - (performance.now() - beganAtMs) - 2);
    },
  );

  test('a large outcome is kept once, travels by reference, and expires with its record', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    const large = { ...SUCCESS, output: { content: 'x'.repeat(MAX_INLINE_OUTCOME_BYTES) } };
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, large, { ttlMs: 33_000 });
    expect(await inbox(books)).toEqual([
      { type: 'settled', callId: claim.callId, state: 'done', atMs: expect.any(Number) },
    ]);
    expect(await books.redis.hexists(keys.record(claim.callId), 'outcome')).toBe(0);
    expect(await books.ledger.outcome(claim.callId)).toEqual(large);
    expect(await books.ledger.read(claim.callId)).toMatchObject({ outcome: large });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome: large });
    const at = (await books.redis.hget(keys.record(claim.callId), 'outcomeAt')) ?? '';
    expect(at).toContain(`:outcome:${claim.callId}:`);
    const times = await Promise.all([
      books.redis.pexpiretime(keys.record(claim.callId)),
      books.redis.pexpiretime(at),
    ]).catch(() => undefined);
    if (times !== undefined) expect(times[0]).toBe(times[1]);
    expect(await books.redis.pttl(at)).toBeLessThanOrEqual(33_000);
  });

  test('an outcome that has just the largest size that travels comes with its event, and a larger one does not', async () => {
    const books = await openBooks();
    const empty = { ...SUCCESS, output: { content: '' } };
    const room = MAX_EVENT_OUTCOME_BYTES - JSON.stringify(empty).length;
    const told = async (name: string, length: number) => {
      const claim = claimOf(name);
      await books.ledger.claim(claim);
      const outcome = { ...SUCCESS, output: { content: 'x'.repeat(length) } };
      await settle(books, claim, (await started(books, claim)).fence, outcome);
      return 'outcome' in ((await inbox(books)).at(-1) ?? {});
    };
    expect(await told('a', room)).toBe(true);
    expect(await told('b', room + 1)).toBe(false);
  });

  test('one that does not travel is kept in one piece beside its record, which the event names', async () => {
    const books = await openBooks();
    const record = books.ledger.keys(PLACE).record(callIdFor('a'));
    const outcome = { ...SUCCESS, output: { content: 'é'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, outcome, { ttlMs: 3_300_000 });
    const [event] = (await inbox(books)) as unknown as [SettledEvent];
    expect(event).toMatchObject({ type: 'settled', state: 'done', textId: '1-0' });
    const at = (await books.redis.hget(record, 'outcomeAt')) ?? '';
    expect(await books.redis.get(at)).toBe(JSON.stringify(outcome));
    expect(await books.redis.hmget(record, 'outcome', 'outcomeParts')).toEqual([null, null]);
    // The answer was lost, and it is written again.
    expect(await settle(books, claim, 1, outcome, { ttlMs: 3_300_000 })).toBe('ended');
    expect(await books.redis.pttl(at)).toBeGreaterThan(3_200_000);
    expect(await books.ledger.outcome(claim.callId, event)).toEqual(outcome);
    // Whoever names another text learns what the record says.
    expect(await books.ledger.outcome(claim.callId, { ...event, textId: '2-0' })).toEqual(outcome);
    expect(await books.ledger.readBrief(claim.callId)).toMatchObject({ outcome });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome });
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1 });
    expect(await books.redis.exists(at)).toBe(0);
  });

  test('a text that an attempt of a forgotten life left behind is not taken for the outcome of one with its number', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence, nowMs } = await started(books, claim);
    const keys = books.ledger.keys(PLACE);
    await books.redis.set(keys.outcome(claim.callId, `${fence}-${nowMs - 60_000}`), '"of another life"');
    const outcome = { ...SUCCESS, output: { content: 'x'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const attempt: AttemptRecord = {
      attempt: 1,
      fence,
      worker: 'worker-1',
      startedAtMs: nowMs,
      finishedAtMs: nowMs,
      status: 'success',
      retriable: false,
    };
    const ending = { callId: claim.callId, fence, state: 'done', outcome, attempts: [attempt], ttlMs: 60_000 } as const;
    expect(await books.ledger.settle({ ...ending, outcomeJson: JSON.stringify(outcome) })).toBe('settled');
    expect(await books.ledger.outcome(claim.callId)).toEqual(outcome);
  });

  test('a call does not end while the text of its outcome is not there', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    const outcome = { ...SUCCESS, output: { content: 'x'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const { set } = books.redis;
    books.redis.set = (() => Promise.reject(new Error('OOM'))) as unknown as typeof set;
    await expect(settle(books, claim, fence, outcome)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', phase: 'running' });
    books.redis.set = set;
    expect(await settle(books, claim, fence, outcome)).toBe('settled');
  });

  test('a success is added to the circuit’s window of its epoch, and to no other', async () => {
    const books = await openBooks();
    for (const [name, epoch] of [
      ['a', 0],
      ['b', 3],
    ] as const) {
      const claim = claimOf(name);
      await books.ledger.claim(claim);
      const { fence } = await started(books, claim);
      await books.ledger.settle({
        callId: claim.callId,
        fence,
        state: 'done',
        outcome: SUCCESS,
        outcomeJson: JSON.stringify(SUCCESS),
        attempts: [],
        ttlMs: 1_000,
        sample: { circuit: CIRCUIT, epoch, windowSize: 20, windowMs: 120_000 },
      });
    }
    expect(await books.breakers.window(PLACE, CIRCUIT)).toEqual([{ atMs: expect.any(Number), ok: true }]);
  });
});

describe('resolving an unknown outcome', () => {
  test('as succeeded: replayed from then on, with the new time to live', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.unknown(books);
    await books.ledger.resolve(claim.callId, { state: 'done', outcome: SUCCESS, ttlMs: 90_000 });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', state: 'done' });
    const leftMs = await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId));
    expect(leftMs).toBeLessThanOrEqual(90_000);
    expect(leftMs).toBeGreaterThan(60_000);
    expect(await books.ledger.resolve(claim.callId, { state: 'failed', outcome: CANCELLED, ttlMs: 9_000 })).toBe(
      'refused',
    );
  });

  test('as retry: queued under a new generation, without an end to its life, the old job is stale', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.unknown(books);
    const record = await books.ledger.read(claim.callId);
    if (record === undefined) throw new Error('there is no record');
    await books.ledger.requeue(record, { reason: 'resolved', generation: '1800000000000', inboxId: 'asks' });
    expect(await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId))).toBe(-1);
    expect(await books.ledger.read(claim.callId)).toMatchObject({
      state: 'inflight',
      phase: 'queued',
      lostAttempts: 0,
    });
    expect(await books.ledger.read(claim.callId)).not.toHaveProperty('outcome');
    expect((await begin(books, claim)).kind).toBe('stale');
    const again = { ...claim, generation: '1800000000000' };
    expect(await started(books, again)).toMatchObject({ fence: fence + 1, recovered: false });
    await settle(books, again, fence + 1);
    expect(await inbox(books, 'asks')).toHaveLength(1);
    expect(await books.ledger.index.counts(PLACE)).toMatchObject({ inflight: 0 });
  });

  test('a message that quotes the code does not make another failure resolvable', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    const error = { ...resultError({ ...failure, message: '"code":"OUTCOME_UNKNOWN"' }, 'error') };
    await settle(books, claim, fence, { ...failureOutcome('HTTP_4XX'), error });
    expect(await books.ledger.resolve(claim.callId, { state: 'done', outcome: SUCCESS, ttlMs: 9_000 })).toBe('refused');
  });
  const failure = {
    code: 'HTTP_4XX',
    class: 'caller',
    retriable: false,
    nothingHappened: false,
    againstCircuit: false,
  } as const;
});

describe('a job that is gone', () => {
  test.each(['queued', 'running', 'waiting-retry'] as const)(
    'a %s call without a job is queued again',
    async (stand) => {
      const books = await openBooks();
      const { claim } = await STANDINGS[stand](books);
      const keys = books.ledger.keys(PLACE);
      await books.redis.del(keys.job(jobIdOf(claim.callId, claim.generation)), keys.job('wait'));
      const record = await books.ledger.read(claim.callId);
      if (record === undefined) throw new Error('there is no record');
      expect(await books.ledger.requeue(record, { reason: 'missing', generation: '1800000000000' })).toBe('queued');
      expect(await jobExists(books, claim.callId, '1800000000000')).toBe(true);
      expect((await begin(books, { ...claim, generation: '1800000000000' })).kind).toBe('started');
    },
  );

  test('of two who miss it at the same time, one queues the call again', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    const keys = books.ledger.keys(PLACE);
    await books.redis.del(keys.job(jobIdOf(claim.callId, claim.generation)), keys.job('wait'));
    const record = await books.ledger.read(claim.callId);
    if (record === undefined) throw new Error('there is no record');
    expect(await books.ledger.requeue(record, { reason: 'missing', generation: '1800000000000' })).toBe('queued');
    // Its attempt may have begun: another job would run the call a second time.
    expect(await books.ledger.requeue(record, { reason: 'missing', generation: '1800000000001' })).toBe('refused');
    expect((await begin(books, { ...claim, generation: '1800000000000' })).kind).toBe('started');
  });
});
