import { type ConnectionOptions, Worker } from 'bullmq';
import { expect, onTestFinished, test } from 'vitest';
import { callOfJob, jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../../src/shared/store/redis/connection-options.ts';
import { systemClock } from '../../../src/shared/util/time.ts';
import { ConcurrencyLimiter } from '../../../src/workers/queue/concurrency-slots.ts';
import { type ActiveJob, type JobEnd, JobFetcher } from '../../../src/workers/queue/job-fetcher.ts';
import { eventually } from '../../helpers/signal.ts';
import { type Books, claimOf, LEASE_MS, openBooks, PLACE, SUCCESS } from '../../shared/store/calls.ts';

/** A worker's way to its queue, asked by hand in the place of BullMQ's loop. Jobs run until they are ended by hand. */
async function openDeliveries(
  books: Books,
  share: { readonly workers?: number; readonly slots?: ConcurrencyLimiter; readonly monotonic?: () => number } = {},
) {
  const { workers = 1, monotonic = systemClock.monotonic } = share;
  const keys = books.ledger.keys(PLACE);
  const running = new Map<string, { readonly job: ActiveJob; readonly end: (ending: JobEnd | undefined) => void }>();
  const errors: Error[] = [];
  let tokens = 0;
  const fetcher = new JobFetcher({
    ledger: books.ledger,
    dispatch: books.dispatch,
    partition: PLACE,
    workerId: 'worker-1',
    leaseMs: LEASE_MS,
    pollIntervalMs: LEASE_MS,
    clock: { ...systemClock, monotonic },
    nextToken: () => {
      tokens += 1;
      return `attempt-${tokens}`;
    },
    slots: share.slots ?? new ConcurrencyLimiter(100),
    redisClock: systemClock,
    workers: () => workers,
    dispatches: () => undefined,
    skipWorker: ({ member, score }) => void books.redis.zadd(keys.job('marker'), score, member),
    run: (job) => new Promise((end) => running.set(job.id, { job, end })),
    onError: (error) => errors.push(error),
  });
  const connection = redisOptions({ url: books.world.redisUrl, name: `${books.world.prefix}:jobs`, mode: 'patient' });
  const queue = new Worker(
    keys.queue,
    async () => {},
    { connection: connection as ConnectionOptions, prefix: keys.base, autorun: false },
    fetcher.backend,
  );
  onTestFinished(() => queue.close());
  onTestFinished(() => expect(errors).toEqual([]));
  await queue.waitUntilReady();
  const { backend } = queue;
  const end = (jobId: string, ending?: JobEnd): void => {
    running.get(jobId)?.end(ending);
    running.delete(jobId);
  };
  onTestFinished(() => {
    for (const jobId of running.keys()) end(jobId);
  });
  return {
    fetcher,
    backend,
    take: () => backend.moveToActive('lock'),
    jobs: () => [...running.keys()],
    job: (jobId: string) => running.get(jobId)?.job,
    /** Without an ending, as one that has found its end elsewhere. */
    end,
    succeed: (jobId: string) => end(jobId, endingOf(jobId)),
  };
}

async function claimed({ ledger }: Books, ...names: readonly string[]): Promise<string[]> {
  const claims = names.map((name) => claimOf(name, { keepJob: false }));
  for (const claim of claims) await ledger.claim(claim);
  return claims.map(({ callId, generation }) => jobIdOf(callId, generation));
}

/** The success of a job's first attempt. */
function endingOf(jobId: string): JobEnd {
  const { callId } = callOfJob(jobId);
  return {
    settle: { callId, fence: 1, state: 'done', outcome: SUCCESS, outcomeJson: '{}', attempts: [], ttlMs: 60_000 },
    returnValue: '{}',
    write: (attempt) => attempt(),
  };
}

test('jobs that wait are taken in one step, and run at once, in their order, each with an attempt of its own', async () => {
  const books = await openBooks();
  const jobs = await claimed(books, 'a', 'b', 'c');
  const worker = await openDeliveries(books);
  expect(await worker.take()).toEqual([]);
  expect(await books.redis.llen(books.ledger.keys(PLACE).job('active'))).toBe(3);
  expect(worker.jobs()).toEqual(jobs);
  const taken = jobs.map((jobId) => worker.job(jobId));
  expect(new Set(taken.map((job) => job?.attempt?.token)).size).toBe(3);
  expect(taken.map((job) => [job?.lockToken, job?.attempt?.answer.kind])).toEqual(jobs.map(() => ['lock', 'started']));
});

test('a lease that Redis gave after it was away runs since then, and not since it was asked for', async () => {
  const books = await openBooks();
  const [jobId = ''] = await claimed(books, 'a');
  let nowMs = 1_000;
  const worker = await openDeliveries(books, { monotonic: () => nowMs });
  const taken = worker.take();
  nowMs += 3 * LEASE_MS;
  await taken;
  expect(worker.job(jobId)?.attempt?.requestedAtMs).toBeGreaterThan(nowMs - LEASE_MS / 6);
});

test('a worker takes no more than its share and its free slots, and leaves a marker for the rest', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  await claimed(books, 'a', 'b', 'c', 'd', 'e', 'f');
  await books.redis.del(keys.job('marker'));
  const shared = await openDeliveries(books, { workers: 3 });
  await shared.take();
  expect(shared.jobs()).toHaveLength(2);
  expect(await books.redis.zcard(keys.job('marker'))).toBe(1);
  const slots = new ConcurrencyLimiter(1);
  const small = await openDeliveries(books, { slots });
  await small.take();
  expect(small.jobs()).toHaveLength(1);
  expect(slots.free).toBe(0);
});

test('a job that succeeds leaves its slot to the next one, which is taken in the same step', async () => {
  const books = await openBooks();
  const [first = '', second = ''] = await claimed(books, 'a', 'b');
  const slots = new ConcurrencyLimiter(1);
  const worker = await openDeliveries(books, { slots });
  await worker.take();
  // As BullMQ's worker does meanwhile.
  const asks = worker.take();
  worker.succeed(first);
  await eventually(() => worker.jobs().includes(second));
  expect(await books.ledger.read(callOfJob(first).callId)).toMatchObject({ state: 'done' });
  worker.succeed(second);
  await Promise.all([asks, worker.fetcher.ended()]);
  expect(slots.free).toBe(1);
});

test('a slot that another queue waits for goes there, whatever is queued here', async () => {
  const books = await openBooks();
  const [first = '', second = ''] = await claimed(books, 'a', 'b');
  const slots = new ConcurrencyLimiter(1);
  const worker = await openDeliveries(books, { slots });
  await worker.take();
  const other = slots.acquire({});
  worker.succeed(first);
  await other;
  await worker.fetcher.ended();
  expect(await books.ledger.read(callOfJob(second).callId)).toMatchObject({ phase: 'queued' });
  slots.release(1);
  await worker.take();
  expect(worker.jobs()).toEqual([second]);
});

test('a job whose end was written elsewhere gives its slot back', async () => {
  const books = await openBooks();
  const [first = '', second = ''] = await claimed(books, 'a', 'b');
  const worker = await openDeliveries(books, { slots: new ConcurrencyLimiter(1) });
  await worker.take();
  const asks = worker.take();
  worker.end(first);
  await asks;
  expect(worker.jobs()).toEqual([second]);
});

test('a job that comes while the worker closes goes back without consuming an attempt, and another worker takes it', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  const jobs = await claimed(books, 'a', 'b', 'c');
  await books.redis.del(keys.job('marker'));
  const worker = await openDeliveries(books);
  const asked = worker.take();
  // The question is on its way, and no answer has been read.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  worker.fetcher.close();
  await asked;
  await worker.fetcher.ended();
  expect(worker.jobs()).toEqual([]);
  expect(await worker.take()).toEqual([]);
  expect((await books.redis.lrange(keys.job('wait'), 0, -1)).sort()).toEqual(jobs.sort());
  expect(await books.redis.zcard(keys.job('marker'))).toBe(1);
  for (const jobId of jobs)
    expect(await books.ledger.read(callOfJob(jobId).callId)).toMatchObject({ phase: 'queued', attempts: [] });
});

test('a worker that could not take all jobs asks again without waiting', async () => {
  const books = await openBooks();
  const jobs = await claimed(books, ...Array.from({ length: 20 }, (_, number) => `call-${number}`));
  await books.redis.del(books.ledger.keys(PLACE).job('marker'));
  const worker = await openDeliveries(books);
  await worker.take();
  expect(worker.jobs()).toHaveLength(16);
  expect(await worker.backend.waitForJob(10)).not.toBeNull();
  await worker.take();
  expect(worker.jobs()).toEqual(jobs);
});

test('a worker without a free slot leaves the marker to one that has some, and looks itself once a slot is free', async () => {
  const books = await openBooks();
  const slots = new ConcurrencyLimiter(1);
  expect(slots.acquireFree(1)).toBe(1);
  const [full, idle] = [await openDeliveries(books, { slots }), await openDeliveries(books)];
  // Redis serves whoever asked first.
  const asking = async () => {
    const clients = String(await books.redis.client('LIST')).split('\n');
    return clients.filter((line) => line.includes(books.world.prefix) && line.includes('cmd=bzpopmin')).length;
  };
  const looks = full.backend.waitForJob(10);
  await eventually(async () => (await asking()) === 1);
  const woken = idle.backend.waitForJob(10);
  await eventually(async () => (await asking()) === 2);
  const [job] = await claimed(books, 'a');
  await looks;
  const taken = full.take();
  expect(await woken).not.toBeNull();
  await idle.take();
  expect(idle.jobs()).toEqual([job]);
  slots.release(1);
  await taken;
  expect(full.jobs()).toEqual([]);
});

test('a worker that ends a job while another one is delayed asks when that is due, whichever worker had its marker', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  const [job = ''] = await claimed(books, 'a');
  await books.redis.zadd(keys.job('delayed'), (Date.now() + 10_000) * 0x1000, 'later');
  await books.redis.del(keys.job('marker'));
  const worker = await openDeliveries(books);
  await worker.take();
  expect(await worker.backend.waitForJob(10)).not.toBeNull();
  expect((await worker.take())[3]).toBeGreaterThan(Date.now());
  worker.succeed(job);
  await worker.fetcher.ended();
  expect(await worker.backend.waitForJob(10)).not.toBeNull();
  expect((await worker.take())[3]).toBeGreaterThan(Date.now());
});
