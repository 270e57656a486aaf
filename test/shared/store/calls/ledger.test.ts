import { describe, expect, test } from 'vitest';
import { retryAllowance } from '../../../../src/shared/retries/retry-budget.ts';
import type { WriteAnswer } from '../../../../src/shared/store/calls/settle.ts';
import { begin, claimOf, LEASE_MS, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';
import { cancel, inbox, jobExists, STANDINGS } from './ledger-rig.ts';

type Stand = keyof typeof STANDINGS;

describe('what every script answers in every state', () => {
  test.each<[Stand, WriteAnswer]>([
    ['queued', 'postponed'],
    ['running', 'postponed'],
    ['done', 'ended'],
    ['failed', 'ended'],
    ['cancelled', 'ended'],
    ['gone', 'ended'],
  ])('postpone: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS[stand](books);
    expect(
      await books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 100 }),
    ).toBe(answer);
    if (answer === 'postponed')
      expect(await books.ledger.postpone(claim.callId, fence + 1, { phase: 'queued', attempts: [], delayMs: 0 })).toBe(
        'fenced',
      );
  });

  test('a budget of retries that is empty is kept for as long as calls ask for a retry', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    const allowance = retryAllowance('tools.note', undefined, { floor: 1, windowMs: 50_000 });
    const bucket = books.ledger.keys(PLACE).retries(allowance.bucket);
    const retry = () =>
      books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 0, allowance });
    await books.redis.set(bucket, '0.8', 'PX', 1_000);
    expect(await retry()).toBe('exhausted');
    expect(await books.redis.pttl(bucket)).toBeGreaterThan(40_000);
    expect(await books.redis.get(bucket)).toBe('0.8');
  });

  test('a budget of retries is refilled by the smallest ratio, too', async () => {
    const books = await openBooks();
    const refill = retryAllowance('tools.note', undefined, { floor: 1, ratio: 1e-6 });
    const bucket = books.ledger.keys(PLACE).retries(refill.bucket);
    await books.redis.set(bucket, '0.5');
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    await settle(books, claim, fence, SUCCESS, { refill });
    expect(Number(await books.redis.get(bucket))).toBeCloseTo(0.500_001, 9);
  });

  test('a budget of retries whose tokens are a text is a new one', async () => {
    const books = await openBooks();
    const allowance = retryAllowance('tools.note', undefined, { floor: 3, capacity: 9, ratio: 0.5 });
    const bucket = books.ledger.keys(PLACE).retries(allowance.bucket);
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    await books.redis.set(bucket, 'many');
    await settle(books, claim, fence, SUCCESS, { refill: allowance });
    expect(Number(await books.redis.get(bucket))).toBe(3.5);
    const other = claimOf('b');
    await books.ledger.claim(other);
    const { fence: token } = await started(books, other);
    await books.redis.set(bucket, 'many');
    await books.ledger.postpone(other.callId, token, { phase: 'waiting-retry', attempts: [], delayMs: 0, allowance });
    expect(Number(await books.redis.get(bucket))).toBe(2);
  });

  test.each<[Stand, string]>([
    ['queued', 'cancelled'],
    ['running', 'requested'],
    ['waiting-retry', 'cancelled'],
    ['handed-back', 'cancelled'],
    ['done', 'too-late'],
    ['failed', 'too-late'],
    ['unknown', 'too-late'],
    ['cancelled', 'too-late'],
    ['gone', 'gone'],
  ])('cancel: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    expect((await cancel(books, claim.callId)).kind).toBe(answer);
  });

  test.each<[Stand, string]>([
    ['queued', 'refused'],
    ['running', 'refused'],
    ['done', 'refused'],
    ['failed', 'refused'],
    ['unknown', 'resolved'],
    ['cancelled', 'refused'],
    ['gone', 'gone'],
  ])('resolve: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    const before = await books.ledger.outcome(claim.callId);
    expect(await books.ledger.resolve(claim.callId, { state: 'done', outcome: SUCCESS, ttlMs: 9_000 })).toBe(answer);
    if (answer === 'refused') expect(await books.ledger.outcome(claim.callId)).toEqual(before);
  });

  test.each<[Stand, string, string]>([
    ['queued', 'refused', 'refused'],
    ['running', 'refused', 'refused'],
    ['waiting-retry', 'refused', 'refused'],
    ['done', 'refused', 'refused'],
    ['failed', 'refused', 'refused'],
    ['unknown', 'queued', 'refused'],
    ['cancelled', 'refused', 'refused'],
  ])('requeue: %s, resolved: %s, missing: %s', async (stand, resolved, missing) => {
    for (const [because, answer] of [
      ['resolved', resolved],
      ['missing', missing],
    ] as const) {
      const books = await openBooks();
      const { claim } = await STANDINGS[stand](books);
      const record = await books.ledger.read(claim.callId);
      if (record === undefined) throw new Error('there is no record');
      expect(await books.ledger.requeue(record, { reason: because, generation: '1800000000000' })).toBe(answer);
      expect(await jobExists(books, claim.callId, '1800000000000')).toBe(answer === 'queued');
    }
  });

  test.each<[Stand, boolean]>([
    ['queued', false],
    ['running', false],
    ['waiting-retry', false],
    ['done', true],
    ['failed', true],
    ['unknown', true],
    ['cancelled', true],
    ['gone', false],
  ])('TR-3: of a call that is %s the record alone tells what a claim would, or nothing', async (stand, known) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    const { callId, paramsDigest, mode } = claim;
    const ended = await books.ledger.ended({ callId, paramsDigest, mode });
    expect(ended !== undefined).toBe(known);
    expect(await books.ledger.ended({ callId, paramsDigest: 'other', mode })).toBe(undefined);
    if (known)
      expect(await books.ledger.claim({ ...claim, request: { ...claim.request, idempotencyKey: 'again' } })).toEqual({
        ...ended,
        ageMs: expect.any(Number),
      });
  });

  test('requeue: gone', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    const record = await books.ledger.read(claim.callId);
    await books.redis.del(books.ledger.keys(PLACE).record(claim.callId));
    if (record === undefined) throw new Error('there is no record');
    expect(await books.ledger.requeue(record, { reason: 'missing', generation: '1800000000000' })).toBe('gone');
  });
});

describe('telling', () => {
  test('renews the lease, passes progress on, and learns of a cancellation', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    const event = { type: 'progress', callId: claim.callId, progress: 1 };
    expect(await books.ledger.renewLease(claim.callId, fence, 90_000, event)).toEqual({
      renewed: true,
      cancelRequested: false,
    });
    const record = await books.ledger.read(claim.callId);
    expect((record?.lockUntilMs ?? 0) - (record?.readAtMs ?? 0)).toBeGreaterThan(LEASE_MS);
    expect(await inbox(books)).toEqual([event]);
    await cancel(books, claim.callId);
    expect(await books.ledger.renewLease(claim.callId, fence, 1_000)).toEqual({ renewed: true, cancelRequested: true });
  });

  test('a worker that lost the call is notified', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    await started(books, claim);
    expect(await books.ledger.renewLease(claim.callId, fence, 1_000)).toMatchObject({ renewed: false });
    const done = await STANDINGS.done(await openBooks());
    expect(await books.ledger.renewLease(done.claim.callId, 5, 1_000)).toMatchObject({ renewed: false });
  });
});

describe('cancelling', () => {
  test('ends a call that never ran as cancelled-before-start, and tells the caller and the canceller', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    expect(await cancel(books, claim.callId)).toEqual({ kind: 'cancelled' });
    const record = await books.ledger.read(claim.callId);
    expect(record).toMatchObject({ state: 'cancelled', outcome: { settlement: 'cancelled-before-start' }, version: 2 });
    expect(record).not.toHaveProperty('phase');
    expect(await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId))).toBeLessThanOrEqual(50_000);
    for (const id of ['producer-1', 'canceller'])
      expect(await inbox(books, id)).toMatchObject([{ type: 'settled', state: 'cancelled' }]);
    expect((await begin(books, claim)).kind).toBe('ended');
    expect(await books.ledger.index.counts(PLACE)).toMatchObject({ inflight: 0 });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', state: 'cancelled' });
  });

  test('ends a call that waits for its next attempt as cancelled', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS['waiting-retry'](books);
    await cancel(books, claim.callId);
    expect(await books.ledger.read(claim.callId)).toMatchObject({ outcome: { settlement: 'cancelled' } });
  });

  test('asks the worker of a running one, by record and by news', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    const listener = books.redis.duplicate();
    try {
      const heard = new Promise((resolve) => listener.on('message', (_channel, text) => resolve(JSON.parse(text))));
      await listener.subscribe(`${books.world.prefix}:news`);
      await cancel(books, claim.callId);
      expect(await heard).toEqual({ type: 'cancel', callId: claim.callId, because: 'cancelled' });
    } finally {
      listener.disconnect();
    }
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', cancelRequested: true });
  });

  test('a deadline that passes afterwards does not take the cancellation back', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    await cancel(books, claim.callId);
    await cancel(books, claim.callId, 'failed');
    expect(await books.ledger.read(claim.callId)).toMatchObject({ cancelRequested: true });
  });

  test('a deadline alone cancels no call', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    expect((await cancel(books, claim.callId, 'failed')).kind).toBe('requested');
    expect(await books.ledger.read(claim.callId)).toMatchObject({ cancelRequested: false });
  });
});

describe('indexes', () => {
  test('list the newest first, by place and by session, and those in flight by age', async () => {
    const books = await openBooks();
    const claims = [claimOf('a'), claimOf('b', { sessionKey: 'session-2' }), claimOf('c')];
    for (const claim of claims) {
      await books.ledger.claim(claim);
      // Two claims of one millisecond have no order.
      const { createdAtMs = 0 } = (await books.ledger.read(claim.callId)) ?? {};
      while ((await books.ledger.now()) <= createdAtMs);
    }
    const [a, b, c] = claims.map((claim) => claim.callId);
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([c, b, a]);
    expect(await books.ledger.index.list(PLACE, { limit: 2 })).toEqual([c, b]);
    expect(await books.ledger.index.list(PLACE, { limit: 10, sessionKey: 'session-1' })).toEqual([c, a]);
    expect(await books.ledger.index.inflightBefore(PLACE, (await books.ledger.now()) + 1, 2)).toEqual([a, b]);
    expect(await books.ledger.index.inflightBefore(PLACE, 0, 2)).toEqual([]);
  });

  test('are pruned where no call is claimed any more', async () => {
    const books = await openBooks(10_000);
    const keys = books.ledger.keys(PLACE);
    await books.redis.rpush(keys.calls, 'old', ...Array.from({ length: 2_500 }, (_, n) => `old-${n}`));
    await books.ledger.claim(claimOf('new'));
    const nowMs = await books.ledger.now();
    await books.ledger.index.prune(PLACE, nowMs);
    expect(await books.redis.lrange(keys.calls, 0, -1)).toEqual([claimOf('new').callId]);
    await books.ledger.index.prune(PLACE, nowMs + 60_000);
    expect(await books.redis.llen(keys.calls)).toBe(0);
  });

  test('lose more than many calls at once add', async () => {
    const books = await openBooks(60_000);
    const key = books.ledger.keys(PLACE).sessionCalls('session-1');
    await books.redis.rpush(key, ...Array.from({ length: 6_000 }, (_, n) => `old-${n}`));
    let removed = 0;
    // One script in sixteen prunes: a few hundred make it as good as certain.
    for (let round = 0; round < 400 && removed <= 0; round += 1) {
      const before = await books.redis.llen(key);
      const calls = Array.from({ length: 16 }, (_, n) => claimOf(`${round}-${n}`));
      await Promise.all(calls.map((call) => books.ledger.claim(call)));
      removed = before - (await books.redis.llen(key));
    }
    expect(removed).toBeGreaterThan(16 * 16);
  });

  test('a call that runs again holds up no older ones, and stands in front', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    const [again, between] = [claimOf('again'), claimOf('between')];
    await books.ledger.claim(between);
    const nowMs = await books.ledger.now();
    await books.redis.hset(keys.record(between.callId), 'createdAtMs', nowMs - 1_000);
    await books.ledger.claim(again);
    // As in an index that is too long to be searched when a call runs again.
    await books.redis.rpush(keys.calls, again.callId, ...Array.from({ length: 20 }, (_, n) => `gone-${n}`));
    await books.ledger.index.prune(PLACE, nowMs);
    expect(await books.redis.lrange(keys.calls, 0, -1)).toEqual([again.callId, between.callId]);
  });

  test('forget what is older than the longest life of a record', async () => {
    const books = await openBooks(50);
    const keys = books.ledger.keys(PLACE);
    for (let index = 0; index < 20; index += 1) await books.redis.rpush(keys.calls, `old ${index}`);
    await books.redis.rpush(keys.sessionCalls('session-1'), 'old');
    // One claim in sixteen looks: a few hundred make it as good as certain.
    for (let index = 0; index < 400 && (await books.redis.lpos(keys.calls, 'old 0')) !== null; index += 1)
      await books.ledger.claim(claimOf(`new ${index}`));
    for (const key of [keys.calls, keys.sessionCalls('session-1')])
      expect((await books.redis.lrange(key, 0, -1)).filter((callId) => callId.startsWith('old'))).toEqual([]);
    const leftMs = await books.redis.pttl(keys.sessionCalls('session-1'));
    expect(leftMs).toBeLessThanOrEqual(100);
  });
});
