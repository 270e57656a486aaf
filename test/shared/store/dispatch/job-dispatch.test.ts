import { QueueEvents } from 'bullmq';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { FetchedJob, FinishResult } from '../../../../src/shared/store/dispatch/job-dispatch.ts';
import { jobIdOf, KEPT_JOBS } from '../../../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { type Books, begin, claimOf, fetched, openBooks, PLACE, SUCCESS } from '../calls.ts';

function idOf(taken: FetchedJob | undefined): string | undefined {
  return Array.isArray(taken?.job) ? (taken.job[1] as string) : undefined;
}

async function take({ dispatch }: Pick<Books, 'dispatch'>): Promise<FetchedJob> {
  const [taken] = await dispatch.fetch(PLACE, fetched());
  if (taken === undefined) throw new Error('there is always an answer');
  return taken;
}

function finish(
  { dispatch }: Books,
  claim: { readonly callId: string; readonly generation: string },
  fence: number,
  change: {
    readonly kept?: number;
    readonly lockToken?: string;
    readonly takeNext?: boolean;
  } = {},
): Promise<FinishResult> {
  const { kept = 0, lockToken = 'lock-1', takeNext = true } = change;
  return dispatch.finish(
    {
      callId: claim.callId,
      fence,
      state: 'done',
      outcome: SUCCESS,
      outcomeJson: JSON.stringify(SUCCESS),
      attempts: [],
      ttlMs: 60_000,
    },
    {
      id: jobIdOf(claim.callId, claim.generation),
      returnValue: '{"status":"success"}',
      keptJobs: kept,
      fetchNext: takeNext,
    },
    { ...fetched(), lockToken },
  );
}

describe('taking a job', () => {
  test('starts its attempt in the same step: the newest fence, signed request and all', async () => {
    const { dispatch, ledger } = await openBooks();
    const claim = claimOf('a');
    await ledger.claim(claim);
    const taken = await take({ dispatch });
    expect(idOf(taken)).toBe(jobIdOf(claim.callId, claim.generation));
    expect(taken.beginResult).toMatchObject({ kind: 'started', fence: 1, request: claim.request, recovered: false });
    expect(await ledger.read(claim.callId)).toMatchObject({ phase: 'running', worker: 'worker-1', fence: 1 });
  });

  test('leaves an attempt with effects `once` to a step that can be repeated: a lost answer must not be in doubt', async () => {
    const books = await openBooks();
    const claim = claimOf('a', { once: true });
    await books.ledger.claim(claim);
    const taken = await take(books);
    expect(idOf(taken)).toBe(jobIdOf(claim.callId, claim.generation));
    expect(taken.beginResult).toBeUndefined();
    expect(await books.ledger.read(claim.callId)).toMatchObject({ phase: 'queued', fence: 0 });
    expect(await begin(books, claim)).toMatchObject({ kind: 'started', fence: 1 });
  });

  test('takes nothing from an empty queue and from a paused one', async () => {
    const { dispatch, ledger, redis } = await openBooks();
    expect(idOf(await take({ dispatch }))).toBe(0);
    await ledger.claim(claimOf('a'));
    await redis.hset(ledger.keys(PLACE).job('meta'), 'paused', 1);
    expect(idOf(await take({ dispatch }))).toBe(0);
  });

  test('takes a delayed job that is due', async () => {
    const { dispatch, ledger, redis } = await openBooks();
    const claim = claimOf('a');
    await ledger.claim(claim);
    const keys = ledger.keys(PLACE);
    const jobId = jobIdOf(claim.callId, claim.generation);
    await redis.lrem(keys.job('wait'), 0, jobId);
    await redis.zadd(keys.job('delayed'), (Date.now() - 1_000) * 0x1000, jobId);
    expect(idOf(await take({ dispatch }))).toBe(jobId);
  });

  test('says when there is nothing more, now or later', async () => {
    const { dispatch, ledger, redis } = await openBooks();
    const left = async () => ((await take({ dispatch })).job as unknown[])[4];
    await ledger.claim(claimOf('a'));
    await ledger.claim(claimOf('b'));
    expect(await left()).toBe(0);
    expect(await left()).toBe(1);
    await ledger.claim(claimOf('c'));
    // Long before, each worker looks again by itself.
    await redis.zadd(ledger.keys(PLACE).job('delayed'), String((Date.now() + 60_000) * 0x1000), 'much later');
    expect(await left()).toBe(1);
    await ledger.claim(claimOf('d'));
    await redis.zadd(ledger.keys(PLACE).job('delayed'), String((Date.now() + 10_000) * 0x1000), 'later');
    expect(await left()).toBe(0);
  });

  test('wakes another worker only when there is more to take', async () => {
    const { dispatch, ledger, redis } = await openBooks();
    const marker = ledger.keys(PLACE).job('marker');
    await ledger.claim(claimOf('a'));
    await ledger.claim(claimOf('b'));
    await redis.zpopmin(marker);
    await take({ dispatch });
    expect(await redis.zcard(marker)).toBe(1);
    await redis.zpopmin(marker);
    await take({ dispatch });
    expect(await redis.zcard(marker)).toBe(0);
  });
});

describe('ending a call with its job', () => {
  test('settles, removes the job and takes the next, in one step', async () => {
    const books = await openBooks();
    const [first, second] = [claimOf('a', { keepJob: false }), claimOf('b')];
    await books.ledger.claim(first);
    await books.ledger.claim(second);
    await take(books);
    const finished = await finish(books, first, 1);
    expect(finished).toMatchObject({
      code: 'settled',
      next: { beginResult: { kind: 'started', request: second.request }, fetched: { lockToken: 'lock-1' } },
    });
    expect(idOf(finished.next)).toBe(jobIdOf(second.callId, second.generation));
    expect(await books.ledger.read(first.callId)).toMatchObject({ state: 'done', outcome: SUCCESS });
    const keys = books.ledger.keys(PLACE);
    const jobId = jobIdOf(first.callId, first.generation);
    expect(await books.redis.exists(keys.job(jobId), keys.job(`${jobId}:lock`))).toBe(0);
    expect(await books.redis.lrange(keys.job('active'), 0, -1)).toEqual([idOf(finished.next)]);
  });

  test('tells BullMQ’s listeners, with a summary only', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    await books.redis.hset(keys.job('meta'), 'events', 'on');
    const events = new QueueEvents(keys.queue, {
      prefix: keys.base,
      connection: redisOptions({ url: books.world.redisUrl, name: 'events', mode: 'patient' }) as never,
      lastEventId: '0',
    });
    onTestFinished(() => events.close());
    const heard = (name: 'waiting' | 'active' | 'completed') =>
      new Promise<object>((resolve) => events.once(name, resolve));
    const all = Promise.all([heard('waiting'), heard('active'), heard('completed')]);
    const drained = new Promise<void>((resolve) => events.once('drained', () => resolve()));
    const claim = claimOf('a', { keepJob: false });
    const jobId = jobIdOf(claim.callId, claim.generation);
    await books.ledger.claim(claim);
    await take(books);
    await finish(books, claim, 1);
    await drained;
    expect(await all).toMatchObject([
      { jobId },
      { jobId, prev: 'waiting' },
      { jobId, returnvalue: { status: 'success' }, prev: 'active' },
    ]);
  });

  test('keeps a job for Bull Board as BullMQ does', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await take(books);
    await finish(books, claim, 1, { kept: KEPT_JOBS });
    const keys = books.ledger.keys(PLACE);
    const jobId = jobIdOf(claim.callId, claim.generation);
    expect(await books.redis.zrange(keys.job('completed'), '0', '-1')).toEqual([jobId]);
    expect(await books.redis.hget(keys.job(jobId), 'returnvalue')).toBe('{"status":"success"}');
  });

  test('leaves a job alone that a newer attempt holds', async () => {
    const books = await openBooks();
    const claim = claimOf('a', { keepJob: false });
    await books.ledger.claim(claim);
    await take(books);
    expect(await begin(books, claim)).toMatchObject({ kind: 'started', fence: 2, recovered: true });
    const finished = await finish(books, claim, 1);
    expect([finished.code, finished.next]).toEqual(['fenced', undefined]);
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', fence: 2 });
    const keys = books.ledger.keys(PLACE);
    expect(await books.redis.exists(keys.job(jobIdOf(claim.callId, claim.generation)))).toBe(1);
  });

  test('keeps the outcome when the job’s lock is lost, and says what BullMQ says', async () => {
    const books = await openBooks();
    const claim = claimOf('a', { keepJob: false });
    await books.ledger.claim(claim);
    await take(books);
    const LOCK_OF_ANOTHER = -6;
    expect(await finish(books, claim, 1, { lockToken: 'lock-2' })).toMatchObject({
      code: 'settled',
      refused: LOCK_OF_ANOTHER,
    });
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'done' });
  });

  test('a second run of the step, because the first answer was lost, changes nothing', async () => {
    const books = await openBooks();
    const claim = claimOf('a', { keepJob: false });
    await books.ledger.claim(claim);
    await take(books);
    await finish(books, claim, 1);
    const MISSING_JOB = -1;
    expect(await finish(books, claim, 1)).toMatchObject({ code: 'ended', refused: MISSING_JOB });
    expect(await books.redis.llen(`${books.ledger.keys(PLACE).inboxes}producer-1`)).toBe(1);
  });

  test('those that end at the same time end in one step: each with its own outcome, and with a next job where one is wanted', async () => {
    const books = await openBooks();
    const [first, second, taken, ...waiting] = ['a', 'b', 'c', 'd', 'e'].map((name) =>
      claimOf(name, { keepJob: false }),
    );
    if (first === undefined || second === undefined || taken === undefined) throw new Error('there are five');
    for (const claim of [first, second, taken, ...waiting]) await books.ledger.claim(claim);
    await books.dispatch.fetch(PLACE, fetched(), 3);
    // A newer attempt has it.
    await begin(books, second);
    // Of this connection alone: the server has other users.
    const sent = vi.spyOn(books.redis, 'sendCommand');
    const ended = await Promise.all([
      finish(books, first, 1),
      finish(books, second, 1),
      finish(books, taken, 1, { takeNext: false }),
    ]);
    expect(sent.mock.calls.filter(([{ name }]) => name.startsWith('eval'))).toHaveLength(1);
    expect(ended.map(({ code, next }) => [code, idOf(next)])).toEqual([
      ['settled', jobIdOf(waiting[0]?.callId ?? '', waiting[0]?.generation ?? '')],
      ['fenced', undefined],
      ['settled', undefined],
    ]);
    expect(await books.redis.zcard(books.ledger.keys(PLACE).job('prioritized'))).toBe(1);
    expect(await books.redis.zcard(books.ledger.keys(PLACE).inflight)).toBe(3);
  });

  test('while jobs wait for slots a step takes half as many, so that the worker runs some while Redis ends others', async () => {
    const books = await openBooks();
    const claims = Array.from({ length: 60 }, (_, number) => claimOf(`call-${number}`, { keepJob: false }));
    await Promise.all(claims.map((claim) => books.ledger.claim(claim)));
    await books.dispatch.fetch(PLACE, fetched(), claims.length);
    const waiting = claimOf('waiting', { keepJob: false });
    for (const claim of [waiting, claimOf('behind it', { keepJob: false })]) await books.ledger.claim(claim);
    const sent = vi.spyOn(books.redis, 'sendCommand');
    const end = async (some: typeof claims) => {
      sent.mockClear();
      const ended = await Promise.all(some.map((claim) => finish(books, claim, 1, { takeNext: claim === some[0] })));
      expect(ended.every(({ code }) => code === 'settled')).toBe(true);
      return sent.mock.calls.filter(([{ name }]) => name.startsWith('eval')).length;
    };
    // It takes one of the two that wait.
    expect(await end(claims.slice(0, 1))).toBe(1);
    // They take the other one.
    expect(await end(claims.slice(1, 51))).toBe(2);
    expect(await end(claims.slice(51))).toBe(1);
  });

  test('the failure of one of several is returned for that one, and the others end', async () => {
    const books = await openBooks();
    const [good, broken] = [claimOf('a', { keepJob: false }), claimOf('b', { keepJob: false })];
    for (const claim of [good, broken]) await books.ledger.claim(claim);
    await books.dispatch.fetch(PLACE, fetched(), 2);
    await books.redis.set(books.ledger.keys(PLACE).record(broken.callId), 'no record');
    const [first, second] = await Promise.allSettled([finish(books, good, 1), finish(books, broken, 1)]);
    expect(first).toMatchObject({ status: 'fulfilled', value: { code: 'settled' } });
    expect(second).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining('WRONGTYPE') } });
    expect(await books.ledger.read(good.callId)).toMatchObject({ state: 'done' });
  });
});
