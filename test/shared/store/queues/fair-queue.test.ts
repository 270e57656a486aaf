import { type ConnectionOptions, Queue } from 'bullmq';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { queueNameOf } from '../../../../src/shared/queues/priority.ts';
import type { Priority } from '../../../../src/shared/queues/priority-names.ts';
import type { Claim } from '../../../../src/shared/store/calls/claim/claim.ts';
import { callOfJob, jobIdOf } from '../../../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { type Books, claimOf, fetched, openBooks, PLACE, SUCCESS } from '../calls.ts';

interface Asked {
  readonly session: string;
  readonly tenant?: string;
  readonly weight?: number;
  readonly importance?: Priority;
}

let calls = 0;

/** A queue that is busy: its first job is served at once and would blur the picture. */
async function openBusyQueue() {
  const books = await openBooks();
  const askedFor = new Map<string, Asked>();
  const claim = async (count: number, asked: Asked): Promise<Claim[]> => {
    const { session, tenant, weight = 1, importance = 'normal' } = asked;
    const claims = Array.from({ length: count }, () => {
      calls += 1;
      return claimOf(`call-${calls}`, {
        keepJob: false,
        sessionKey: session,
        fairQueue: queueNameOf(importance, tenant, weight),
      });
    });
    for (const { callId } of claims) askedFor.set(callId, asked);
    await Promise.all(claims.map((each) => books.ledger.claim(each)));
    return claims;
  };
  const take = async (count: number, atATime = 1): Promise<Asked[]> => {
    const taken: Asked[] = [];
    while (taken.length < count) {
      const jobs = await takeJobs(books, Math.min(atATime, count - taken.length));
      if (jobs.length === 0) break;
      taken.push(...jobs.map((jobId) => askedFor.get(callOfJob(jobId).callId) ?? { session: 'unknown' }));
    }
    return taken;
  };
  await claim(1, { session: 'first' });
  return { ...books, claim, take, first: () => take(1) };
}

async function takeJobs({ dispatch }: Pick<Books, 'dispatch'>, most: number): Promise<string[]> {
  const taken = await dispatch.fetch(PLACE, fetched(), most);
  return taken.flatMap(({ job }) => (Array.isArray(job) && typeof job[1] === 'string' ? [job[1]] : []));
}

/** The job that an end took along. */
async function endAndTakeNext({ dispatch }: Pick<Books, 'dispatch'>, jobId: string): Promise<string | undefined> {
  const { callId } = callOfJob(jobId);
  const { next } = await dispatch.finish(
    { callId, fence: 1, state: 'done', outcome: SUCCESS, outcomeJson: '{}', attempts: [], ttlMs: 60_000 },
    { id: jobId, returnValue: '{}', keptJobs: 0, fetchNext: true },
    fetched(),
  );
  return Array.isArray(next?.job) && typeof next.job[1] === 'string' ? next.job[1] : undefined;
}

function count(taken: readonly Asked[], fits: (asked: Asked) => boolean): number {
  return taken.filter(fits).length;
}

describe('calls that wait for a worker', () => {
  test('a quiet session’s call behind 10,000 of a loud one is among the next three', async () => {
    const { claim, take, first } = await openBusyQueue();
    await claim(10_000, { session: 'loud' });
    await first();
    await take(20, 16);
    await claim(1, { session: 'quiet' });
    expect((await take(3)).map(({ session }) => session)).toContain('quiet');
  });

  test('sessions take turns, whatever each has waiting, and each in the order in which it called', async () => {
    const { claim, first, ...books } = await openBusyQueue();
    const [loud, ...others] = [
      await claim(30, { session: 'loud' }),
      await claim(5, { session: 'middle' }),
      await claim(5, { session: 'quiet' }),
    ];
    await first();
    // Of the loud one, the first was there before the others came.
    const taken = (await takeJobs(books, 16)).map((jobId) => callOfJob(jobId).callId);
    for (const claims of [loud.slice(0, 6), ...others])
      expect(taken.filter((id) => claims.some(({ callId }) => callId === id))).toEqual(
        claims.map(({ callId }) => callId),
      );
  });

  test('tenants take turns by weight, whatever the number of their sessions', async () => {
    const { claim, take, first } = await openBusyQueue();
    for (let session = 0; session < 20; session += 1) await claim(10, { session: `a-${session}`, tenant: 'a' });
    await claim(200, { session: 'b', tenant: 'b' });
    await claim(200, { session: 'c', tenant: 'c', weight: 2 });
    await first();
    const taken = await take(200, 16);
    const of = (tenant: string) => count(taken, (asked) => asked.tenant === tenant);
    expect(of('a')).toBeGreaterThanOrEqual(49);
    expect(of('a')).toBeLessThanOrEqual(51);
    expect(of('b')).toBeGreaterThanOrEqual(49);
    expect(of('c')).toBeGreaterThanOrEqual(99);
    // Its sessions share alike what is the tenant's.
    expect(new Set(taken.map(({ session }) => session)).size).toBe(22);
  });

  test('background calls get every ninth turn while normal ones wait, and all when none does', async () => {
    const { claim, take, first } = await openBusyQueue();
    await claim(100, { session: 'batch', importance: 'background' });
    await claim(80, { session: 'person' });
    await first();
    const busy = await take(90, 4);
    expect(count(busy, ({ importance }) => importance === 'background')).toBeGreaterThanOrEqual(10);
    expect(count(busy, ({ importance }) => importance === 'background')).toBeLessThanOrEqual(12);
    expect(await take(200, 16)).toHaveLength(90);
  });

  test('critical calls get four turns while normal ones have one', async () => {
    const { claim, take, first } = await openBusyQueue();
    await claim(100, { session: 'person' });
    await claim(100, { session: 'guard', importance: 'critical' });
    await first();
    expect(count(await take(100, 16), ({ importance }) => importance === 'critical')).toBeGreaterThanOrEqual(79);
  });

  test('returned jobs and queued jobs alternate, also while delayed jobs are due', async () => {
    const { claim, redis, ledger, first, ...books } = await openBusyQueue();
    const keys = ledger.keys(PLACE);
    const fresh = await claim(40, { session: 'fresh' });
    await first();
    const back = fresh.slice(20).map(({ callId, generation }) => jobIdOf(callId, generation));
    await redis.zrem(keys.job('prioritized'), ...back);
    const due = String((Date.now() - 1_000) * 0x1000);
    for (const jobId of back.slice(10)) await redis.lpush(keys.job('wait'), jobId);
    const served: boolean[] = [];
    for (let turn = 0; turn < 20; turn += 1) {
      const next = back[turn];
      if (next !== undefined && turn < 10) await redis.zadd(keys.job('delayed'), due, next);
      served.push(...(await takeJobs(books, 1)).map((jobId) => back.includes(jobId)));
    }
    expect(served.filter((isBack) => isBack)).toHaveLength(10);
    expect(served.slice(0, 4).filter((isBack) => isBack)).toHaveLength(2);
  });

  test('what is due has its turn also where each end takes the next job along', async () => {
    const { claim, redis, ledger, first, ...books } = await openBusyQueue();
    const keys = ledger.keys(PLACE);
    const fresh = await claim(30, { session: 'fresh' });
    await first();
    const back = jobIdOf(fresh.at(-1)?.callId ?? '', fresh.at(-1)?.generation ?? '');
    await redis.zrem(keys.job('prioritized'), back);
    await redis.zadd(keys.job('delayed'), String((Date.now() - 1_000) * 0x1000), back);
    let [running] = await takeJobs(books, 1);
    const served: string[] = [];
    // As a worker of one slot: an end takes the next job along, or the worker asks for one.
    for (let turn = 0; turn < 6 && running !== undefined; turn += 1) {
      served.push(running);
      running = (await endAndTakeNext(books, running)) ?? (await takeJobs(books, 1))[0];
    }
    expect(served.slice(0, 3)).toContain(back);
  });

  test('a line that was served alone owes nothing when another one comes', async () => {
    const { claim, take, first } = await openBusyQueue();
    await claim(200, { session: 'a', tenant: 'a' });
    await first();
    await take(100, 16);
    await claim(50, { session: 'b', tenant: 'b' });
    expect(count(await take(40), ({ tenant }) => tenant === 'b')).toBe(20);
  });

  test('no state of the fair queue is kept when no call waits any more', async () => {
    const { claim, take, redis, ledger } = await openBusyQueue();
    for (const tenant of ['a', 'b', 'c']) await claim(3, { session: tenant, tenant });
    expect(await take(20, 4)).toHaveLength(10);
    const names = ['wait', 'prioritized', 'lines', 'line-order', 'line-sessions'];
    expect(await redis.exists(...names.map((name) => ledger.keys(PLACE).job(name)))).toBe(0);
  });

  test('whatever is asked for and taken in whatever order, every job is taken once, and a session’s in order', async () => {
    const books = await openBusyQueue();
    await books.first();
    const session = fc.constantFrom('s1', 's2', 's3');
    const importance = fc.constantFrom<Priority>('critical', 'normal', 'background');
    const claimed = fc.record({
      tenant: fc.constantFrom('a', 'b'),
      session,
      importance,
      count: fc.integer({ min: 1, max: 6 }),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(claimed, fc.integer({ min: 1, max: 9 })), { maxLength: 12 }),
        async (steps) => {
          const waiting = new Map<string, string[]>();
          let left = 0;
          const takeSome = async (most: number) => {
            const taken = await takeJobs(books, most);
            expect(taken).toHaveLength(Math.min(most, left));
            left -= taken.length;
            for (const jobId of taken) {
              const line = [...waiting.values()].find((jobs) => jobs.includes(jobId));
              expect(line?.shift()).toBe(jobId);
            }
          };
          for (const step of steps) {
            if (typeof step === 'number') {
              await takeSome(step);
              continue;
            }
            const { count: number, ...asked } = step;
            const name = JSON.stringify(asked);
            const jobs = await books.claim(number, { ...asked, session: name });
            waiting.set(name, [
              ...(waiting.get(name) ?? []),
              ...jobs.map(({ callId, generation }) => jobIdOf(callId, generation)),
            ]);
            left += number;
          }
          while (left > 0) await takeSome(9);
        },
      ),
      { numRuns: 25 },
    );
  });
});

describe('jobs in line, as BullMQ sees them', () => {
  async function openQueue(books: Books): Promise<Queue> {
    const keys = books.ledger.keys(PLACE);
    const queue = new Queue(keys.queue, {
      prefix: keys.base,
      connection: redisOptions({
        url: books.world.redisUrl,
        name: `${books.world.prefix}:queue`,
        mode: 'patient',
      }) as ConnectionOptions,
      skipMetasUpdate: true,
    });
    onTestFinished(() => queue.close());
    return queue;
  }

  test('are prioritized jobs, which can be counted, found and removed', async () => {
    const books = await openBusyQueue();
    const [one, other] = await books.claim(2, { session: 'a' });
    const queue = await openQueue(books);
    expect(await queue.getJobCounts('waiting', 'prioritized')).toMatchObject({ waiting: 1, prioritized: 2 });
    const job = await queue.getJob(jobIdOf(one?.callId ?? '', one?.generation ?? ''));
    expect(await job?.getState()).toBe('prioritized');
    await job?.remove();
    await books.first();
    expect(await takeJobs(books, 5)).toEqual([jobIdOf(other?.callId ?? '', other?.generation ?? '')]);
  });

  test('are taken by BullMQ’s own text too, as workers of an older version and limited queues do', async () => {
    const books = await openBusyQueue();
    for (const tenant of ['a', 'b']) await books.claim(3, { session: tenant, tenant });
    await books.redis.hset(books.ledger.keys(PLACE).job('meta'), 'concurrency', '5');
    expect(await books.take(7)).toHaveLength(5);
    await books.redis.hdel(books.ledger.keys(PLACE).job('meta'), 'concurrency');
    expect(await books.take(7)).toHaveLength(2);
  });

  test('wait while the queue is paused', async () => {
    const books = await openBusyQueue();
    await books.claim(2, { session: 'a' });
    const queue = await openQueue(books);
    await queue.pause();
    expect(await takeJobs(books, 5)).toEqual([]);
    await queue.resume();
    expect(await takeJobs(books, 5)).toHaveLength(3);
  });
});
