import { type ConnectionOptions, Worker } from 'bullmq';
import { expect, onTestFinished, test } from 'vitest';
import { callOfJob, jobIdOf } from '../../src/shared/store/queues.ts';
import { redisOptions } from '../../src/shared/store/redis.ts';
import { systemClock } from '../../src/shared/time.ts';
import { Deliveries, type Ending } from '../../src/workers/deliveries.ts';
import { Slots } from '../../src/workers/slots.ts';
import { eventually } from '../helpers/signal.ts';
import { type Books, claimOf, LEASE_MS, openBooks, PLACE, SUCCESS } from '../shared/store/calls.ts';

/** A worker's way to its queue, asked by hand in the place of BullMQ's loop. */
async function openDeliveries(
  books: Books,
  share: { readonly freeLanes?: number; readonly workers?: number; readonly slots?: Slots } = {},
) {
  const { freeLanes = 8, workers = 1 } = share;
  const keys = books.ledger.keys(PLACE);
  let tokens = 0;
  const deliveries = new Deliveries({
    ledger: books.ledger,
    place: PLACE,
    workerId: 'worker-1',
    leaseMs: LEASE_MS,
    clock: systemClock,
    nextToken: () => {
      tokens += 1;
      return `attempt-${tokens}`;
    },
    slots: share.slots ?? new Slots(100),
    freeLanes: () => freeLanes,
    redisClock: systemClock,
    workers: () => workers,
    pushes: () => undefined,
    passOn: ({ member, score }) => void books.redis.zadd(keys.job('marker'), score, member),
  });
  const connection = redisOptions({ url: books.world.redisUrl, name: `${books.world.prefix}:lanes`, mode: 'patient' });
  const queue = new Worker(
    keys.queue,
    async () => {},
    { connection: connection as ConnectionOptions, prefix: keys.base, autorun: false },
    deliveries.backend,
  );
  onTestFinished(() => queue.close());
  await queue.waitUntilReady();
  const { backend } = queue;
  const take = async (lane: string): Promise<string | undefined> => (await backend.moveToActive(lane))[1] ?? undefined;
  return { deliveries, backend, take };
}

async function claimed({ ledger }: Books, ...names: readonly string[]): Promise<string[]> {
  const claims = names.map((name) => claimOf(name, { kept: false }));
  for (const claim of claims) await ledger.claim(claim);
  return claims.map(({ callId, generation }) => jobIdOf(callId, generation));
}

/** The success of a job's first attempt. */
function endingOf(jobId: string): Ending {
  const { callId } = callOfJob(jobId);
  return {
    settle: { callId, fence: 1, state: 'done', outcome: SUCCESS, outcomeJson: '{}', attempts: [], ttlMs: 60_000 },
    write: (attempt) => attempt(),
  };
}

test('jobs that wait are taken in one step, in their order, each with an attempt of its own', async () => {
  const books = await openBooks();
  const jobs = await claimed(books, 'a', 'b', 'c');
  const { deliveries, take } = await openDeliveries(books);
  expect(await take('lane-1')).toBe(jobs[0]);
  expect(await books.redis.llen(books.ledger.keys(PLACE).job('active'))).toBe(3);
  expect([await take('lane-2'), await take('lane-3')]).toEqual(jobs.slice(1));
  const taken = jobs.map((jobId) => deliveries.taken(jobId));
  expect(new Set(taken.map((job) => job?.attempt?.token)).size).toBe(3);
  expect(taken.map((job) => [job?.lockToken, job?.attempt?.answer.kind])).toEqual(
    jobs.map(() => ['lane-1', 'started']),
  );
  // Those that were taken may run first.
  expect(await take('lane-4')).toBeUndefined();
});

test('a worker takes no more than its share and its free lanes, and leaves a marker for the rest', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  await claimed(books, 'a', 'b', 'c', 'd', 'e', 'f');
  await books.redis.del(keys.job('marker'));
  const shared = await openDeliveries(books, { workers: 3 });
  await shared.take('lane-1');
  expect(await books.redis.llen(keys.job('active'))).toBe(2);
  expect(await books.redis.zcard(keys.job('marker'))).toBe(1);
  const full = await openDeliveries(books, { freeLanes: 1 });
  await full.take('lane-1');
  expect(await books.redis.llen(keys.job('active'))).toBe(3);
});

test('what nobody has asked for when the worker closes goes back, unspent, and wakes another one', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  const jobs = await claimed(books, 'a', 'b', 'c');
  await books.redis.del(keys.job('marker'));
  const { deliveries, take } = await openDeliveries(books);
  await take('lane-1');
  await deliveries.close();
  expect(await take('lane-2')).toBeUndefined();
  expect((await books.redis.lrange(keys.job('wait'), 0, -1)).sort()).toEqual(jobs.slice(1).sort());
  expect(await books.redis.zcard(keys.job('marker'))).toBe(1);
  for (const jobId of jobs.slice(1))
    expect(await books.ledger.read(callOfJob(jobId).callId)).toMatchObject({ phase: 'queued', attempts: [] });
});

test('whoever is woken asks, although it was said meanwhile that nothing is left', async () => {
  const books = await openBooks();
  const [first = '', second = ''] = await claimed(books, 'a', 'b');
  const { deliveries, backend, take } = await openDeliveries(books, { freeLanes: 1 });
  expect(await take('lane-1')).toBe(first);
  expect(await backend.waitForJob(1)).not.toBeNull();
  const woken = backend.waitForJob(5);
  deliveries.endWith(first, endingOf(first));
  const ended = await backend.moveToCompleted({ id: first } as never, {}, true, 'lane-1', true);
  expect((ended.result as unknown[])[1]).toBe(second);
  const [third] = await claimed(books, 'c');
  expect(await woken).not.toBeNull();
  expect(await take('lane-2')).toBe(third);
});

test('a worker without a free slot leaves the marker to one that has some, and looks itself once a slot is free', async () => {
  const books = await openBooks();
  const slots = new Slots(1);
  expect(slots.takeNow(1)).toBe(1);
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
  const taken = full.take('lane-1');
  expect(await woken).not.toBeNull();
  expect(await idle.take('lane-1')).toBe(job);
  slots.give(1);
  expect(await taken).toBeFalsy();
});

test('whoever ends a job while another one is delayed asks when that is due, whoever had its marker', async () => {
  const books = await openBooks();
  const keys = books.ledger.keys(PLACE);
  const [job = ''] = await claimed(books, 'a');
  await books.redis.zadd(keys.job('delayed'), (Date.now() + 60_000) * 0x1000, 'later');
  await books.redis.del(keys.job('marker'));
  const { deliveries, backend, take } = await openDeliveries(books);
  expect(await take('lane-1')).toBe(job);
  deliveries.endWith(job, endingOf(job));
  expect((await backend.moveToCompleted({ id: job } as never, {}, true, 'lane-1', true)).result).toEqual([]);
  expect(await backend.waitForJob(10)).not.toBeNull();
  expect((await backend.moveToActive('lane-1'))[3]).toBeGreaterThan(Date.now());
});
