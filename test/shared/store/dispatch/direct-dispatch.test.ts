import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { QueueEvents } from 'bullmq';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import { type DispatchedJob, DispatchReader } from '../../../../src/shared/store/dispatch/direct-dispatch.ts';
import type { FetchRequest } from '../../../../src/shared/store/dispatch/job-dispatch.ts';
import { jobIdOf } from '../../../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { startServer } from '../../../chaos/server.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type Books, begin, CIRCUIT, claimOf, LEASE_MS, openBooks, PLACE, SUCCESS } from '../calls.ts';

/** A worker that listens; `take` says how many slots it has free, and takes what stands in line. */
async function listen(books: Books, workerId = 'worker-1') {
  const arrived: DispatchedJob[] = [];
  const reader = new DispatchReader(books.ledger.access, {
    url: books.world.redisUrl,
    prefix: books.world.prefix,
    partition: PLACE,
    workerId,
    leaseMs: LEASE_MS,
    onJobs: (jobs) => arrived.push(...jobs),
    onError: () => {},
  });
  onTestFinished(() => reader.close());
  const channel = () => `${books.ledger.keys(PLACE).job('')}push:${reader.state.name}`;
  await eventually(async () => (await books.redis.pubsub('NUMSUB', channel()))[1] === 1);
  const fetched = (free: number): FetchRequest => ({
    lockToken: `lock of ${workerId}`,
    timestampMs: Date.now(),
    requestedAtMs: performance.now(),
    workers: 1,
    leaseMs: LEASE_MS,
    workerId,
    token: `delivery ${workerId} ${Math.random()}`,
    capacity: () => ({ free, dispatches: reader.state }),
  });
  return {
    reader,
    arrived,
    fetched,
    take: (free: number) => books.dispatch.fetch(PLACE, fetched(free), free),
    jobs: () => arrived.map(({ job }) => (job as unknown[])[1]),
  };
}

const jobOf = ({ callId, generation }: { readonly callId: string; readonly generation: string }) =>
  jobIdOf(callId, generation);

async function claimAll({ ledger }: Books, ...names: readonly string[]) {
  const claims = names.map((name) => claimOf(name));
  for (const claim of claims) expect(await ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
  return claims;
}

describe('a worker with nothing to do', () => {
  test('gets a new call with its attempt started; no call is queued, and listeners of the queue are notified', async () => {
    const books = await openBooks();
    const worker = await listen(books);
    await worker.take(4);
    const keys = books.ledger.keys(PLACE);
    await books.redis.hset(keys.job('meta'), 'events', 'on');
    const connection = redisOptions({ url: books.world.redisUrl, name: 'events', mode: 'patient' });
    const events = new QueueEvents(keys.queue, { connection, prefix: keys.base, lastEventId: '0-0' } as never);
    onTestFinished(() => events.close());
    const heard: string[] = [];
    for (const name of ['added', 'active'] as const) events.on(name, () => heard.push(name));
    const [claim] = await claimAll(books, 'a');
    if (claim === undefined) throw new Error('it was claimed');
    await eventually(() => worker.arrived.length === 1);
    const [dispatched] = worker.arrived;
    expect(dispatched?.beginResult).toMatchObject({
      kind: 'started',
      fence: 1,
      request: claim.request,
      circuit: CIRCUIT,
    });
    expect(await books.ledger.read(claim.callId)).toMatchObject({ phase: 'running', worker: 'worker-1', fence: 1 });
    expect(await books.redis.lrange(keys.job('active'), 0, -1)).toEqual([jobOf(claim)]);
    expect(await books.redis.get(`${keys.job(jobOf(claim))}:lock`)).toBe(dispatched?.lockToken);
    expect(await books.redis.exists(keys.job('wait'), keys.job('prioritized'), keys.job('marker'))).toBe(0);
    await eventually(() => heard.length === 2);
    expect(heard).toEqual(['added', 'active']);
  });

  test('gets no more than it has slots for, those on their way included; the rest is queued and sets the marker', async () => {
    const books = await openBooks();
    const worker = await listen(books);
    await worker.take(2);
    const claims = await claimAll(books, 'a', 'b', 'c', 'd');
    await eventually(() => worker.arrived.length === 2);
    expect(worker.jobs()).toEqual(claims.slice(0, 2).map(jobOf));
    const keys = books.ledger.keys(PLACE);
    expect(await books.redis.zcard(keys.job('marker'))).toBe(1);
    // It asks while it has not heard of them: they fill its slots.
    const deaf = {
      ...worker.fetched(2),
      capacity: () => ({ free: 2, dispatches: { ...worker.reader.state, received: 0 } }),
    };
    expect(await books.dispatch.fetch(PLACE, deaf, 2)).toEqual([]);
    expect((await worker.take(1)).map(({ job }) => (job as unknown[])[1])).toEqual([jobOf(claims[2] as never)]);
  });

  test('gets no dispatch while other calls are queued: a later call waits behind them', async () => {
    const books = await openBooks();
    const [first] = await claimAll(books, 'first');
    const worker = await listen(books);
    await books.redis.zadd(books.ledger.keys(PLACE).job('pushable'), 8, worker.reader.state.name);
    await claimAll(books, 'second');
    expect((await worker.take(1)).map(({ job }) => (job as unknown[])[1])).toEqual([jobOf(first as never)]);
    expect(worker.arrived).toEqual([]);
  });

  test('gets a call with effects `once` without its begin: a message may get lost', async () => {
    const books = await openBooks();
    const worker = await listen(books);
    await worker.take(4);
    const claim = claimOf('a', { once: true });
    await books.ledger.claim(claim);
    await eventually(() => worker.arrived.length === 1);
    expect(worker.arrived[0]?.beginResult).toBeUndefined();
    expect(await books.ledger.read(claim.callId)).toMatchObject({ phase: 'queued', fence: 0 });
    expect(await begin(books, claim)).toMatchObject({ kind: 'started', fence: 1 });
  });

  test('is pushed nothing once it has left, nor while its queue is paused', async () => {
    const books = await openBooks();
    const worker = await listen(books);
    await worker.take(4);
    await books.redis.hset(books.ledger.keys(PLACE).job('meta'), 'paused', 1);
    await claimAll(books, 'while paused');
    await books.redis.hdel(books.ledger.keys(PLACE).job('meta'), 'paused');
    await books.redis.del(books.ledger.keys(PLACE).job('wait'));
    await claimAll(books, 'before');
    await worker.reader.leave();
    expect(worker.arrived).toHaveLength(1);
    await claimAll(books, 'after');
    expect(await books.redis.llen(books.ledger.keys(PLACE).job('wait'))).toBe(1);
    expect(await books.redis.exists(books.ledger.keys(PLACE).job('pushable'))).toBe(0);
  });
});

test('of several workers, the one with the most room is pushed the next call', async () => {
  const books = await openBooks();
  const [one, other] = [await listen(books, 'worker-1'), await listen(books, 'worker-2')];
  await one.take(3);
  await other.take(3);
  await claimAll(books, 'a', 'b', 'c', 'd');
  await eventually(() => one.arrived.length + other.arrived.length === 4);
  expect([one.arrived.length, other.arrived.length]).toEqual([2, 2]);
});

test('a worker that is dead, or deaf, is pushed nothing: the call waits for others', async () => {
  const books = await openBooks();
  const worker = await listen(books);
  await worker.take(4);
  worker.reader.close();
  await eventually(async () => (await books.world.connections()).every((name) => !name.includes(':worker:push:')));
  const [claim] = await claimAll(books, 'a');
  const keys = books.ledger.keys(PLACE);
  expect(await books.redis.lrange(keys.job('wait'), 0, -1)).toEqual([jobOf(claim as never)]);
  expect(await books.redis.exists(keys.job('pushable'), keys.job('pushed'))).toBe(0);
});

test('a Redis that is full refuses a call, also when a dead worker is to be forgotten with it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-full-'));
  await using server = await startServer(folder);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { admin } = server;
  const ledger = new Ledger(admin, 'full', 60_000);
  const pushable = ledger.keys(PLACE).job('pushable');
  await admin.zadd(pushable, 4, `${LEASE_MS} 1 died`);
  await admin.config('SET', 'maxmemory', '1');
  await expect(ledger.claim(claimOf('a'))).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  await admin.config('SET', 'maxmemory', '0');
  expect(await ledger.claim(claimOf('a'))).toMatchObject({ kind: 'claimed' });
  expect(await admin.exists(pushable)).toBe(0);
});

test('a worker that ends a call gets the next one by dispatch, as long as no call is queued', async () => {
  const books = await openBooks();
  const worker = await listen(books);
  await worker.take(1);
  const [first] = await claimAll(books, 'first');
  await eventually(() => worker.arrived.length === 1);
  const [dispatched] = worker.arrived;
  const { callId } = first as { callId: string };
  const settle = {
    callId,
    fence: 1,
    state: 'done',
    outcome: SUCCESS,
    outcomeJson: '{}',
    attempts: [],
    ttlMs: 60_000,
  } as const;
  const job = { id: jobOf(first as never), returnValue: '{}', keptJobs: 0, fetchNext: true };
  const finished = await books.dispatch.finish(settle, job, {
    ...worker.fetched(0),
    lockToken: dispatched?.lockToken ?? '',
  });
  expect(finished).toMatchObject({ code: 'settled', idle: true });
  await claimAll(books, 'second');
  await eventually(() => worker.arrived.length === 2);
});

test('a worker whose connection was cut is pushed again what its slots hold; what got lost there fills none of them', async () => {
  const books = await openBooks();
  const worker = await listen(books);
  await worker.take(2);
  const keys = books.ledger.keys(PLACE);
  const before = worker.reader.state.name;
  // As if one had been on its way when the connection broke.
  await books.redis.hset(keys.job('pushed'), before, 1);
  const clients = String(await books.redis.client('LIST')).split('\n');
  const id = clients.find((line) => line.includes(':worker:push:') && line.includes(books.world.prefix));
  await books.redis.client('KILL', 'ID', /^id=(\d+)/.exec(id ?? '')?.[1] ?? '');
  await eventually(() => worker.reader.state.name !== before);
  await eventually(async () => {
    await worker.take(2);
    const [, count] = await books.redis.pubsub('NUMSUB', `${keys.job('')}push:${worker.reader.state.name}`);
    return count === 1;
  });
  await claimAll(books, 'a', 'b', 'c');
  await eventually(() => worker.arrived.length === 2);
  expect(await books.redis.llen(keys.job('wait'))).toBe(1);
});
