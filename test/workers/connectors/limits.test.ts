import { expect, test } from 'vitest';
import type { DeclaredTool } from '../../../src/shared/connectors/declared-tool.ts';
import type { NamedLimit } from '../../../src/shared/limits/concurrency-limit.ts';
import { Limits, type Starter } from '../../../src/shared/store/limits/concurrency-limits.ts';
import { callOfJob, jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { gated } from '../../helpers/tools.ts';
import { claimOf, openBooks, PLACE } from '../../shared/store/calls.ts';
import { door, sendJson, startTestService } from './service.ts';

const LEASE_MS = 30_000;
const CALLS = 50;
const COUNTS_FOR_MS = 2_000;

async function openLimit(most: Pick<NamedLimit, 'concurrency' | 'perSecond'>) {
  const books = await openBooks();
  const limits = new Limits(books.redis, books.world.prefix);
  const limit = { name: 'credential:one', ...most };
  const { holders, starts } = new FleetKeys(books.world.prefix).limit(limit.name);
  const starters = new Map<string, Starter>();
  let areStartsKept = false;
  /** As late as a start may count: what counts for longer was written before Redis' clock was set back. */
  const renewStarts = async () => {
    if (!areStartsKept) return;
    const until = (await books.ledger.now()) + COUNTS_FOR_MS;
    for (const start of await books.redis.zrange(starts, '0', '-1')) await books.redis.zadd(starts, until, start);
  };
  const of = async (name: string, session = name): Promise<Starter> => {
    const known = starters.get(name);
    if (known !== undefined) return known;
    const claim = claimOf(name, { sessionKey: session });
    await books.ledger.claim(claim);
    const starter = { jobId: jobIdOf(claim.callId, claim.generation), session, sinceMs: 1 + starters.size };
    starters.set(name, starter);
    return starter;
  };
  return {
    ...books,
    of,
    holders,
    take: async (name: string, session?: string) => {
      const starter = await of(name, session);
      await renewStarts();
      return (await limits.acquire(limit, starter, LEASE_MS)).kind === 'granted';
    },
    release: async (name: string) => limits.release(limit, await of(name)),
    hasSlot: async (name: string) => limits.hasSlot(limit, await of(name)),
    hasStart: async (name: string) => limits.hasStart(limit, await of(name)),
    /** The past starts count until they are dropped. */
    keepStarts: () => {
      areStartsKept = true;
    },
    forgetStarts: async () => {
      areStartsKept = false;
      await books.redis.del(starts);
    },
    waitMs: async (name: string) => {
      const starter = await of(name);
      await renewStarts();
      const answer = await limits.acquire(limit, starter, LEASE_MS);
      return answer.kind === 'granted' ? 0 : answer.waitMs;
    },
  };
}

test('slots go to the calls that came first, and return from calls that have ended', async () => {
  const { redis, take, release, of, holders } = await openLimit({ concurrency: 2 });
  expect([await take('a'), await take('b'), await take('c'), await take('d')]).toEqual([true, true, false, false]);
  expect(await take('a')).toBe(true);
  // The slot is reserved for the call that waited longest, for two seconds. All three requests go in one round trip.
  const [, ...taken] = await Promise.all([release('b'), take('d'), take('c')]);
  expect(taken).toEqual([false, true]);
  expect(await take('d')).toBe(false);
  await redis.zincrby(holders, -LEASE_MS, (await of('a')).jobId);
  expect(await take('d'), 'the slot of a, whose lease has ended').toBe(true);
  expect(await take('e')).toBe(false);
});

test('a worker that lost its call to another worker leaves the slot to it', async () => {
  const { tool, arrived, open } = gated('visit');
  const settings = { tools: { visit: { limits: { concurrency: 1 } } } };
  const fleet = await startFleet({ tools: [tool], settings, workers: 0 });
  const worker = await fleet.startWorker();
  const { ledger, limits } = fleet.pawl.backend;
  const { callId } = pending(await fleet.session.submit(tool, {}));
  await arrived();
  const generation = (await ledger.read(callId))?.generation ?? '';
  const job = { callId, generation, session: fleet.session.key };
  await ledger.begin(job, { workerId: 'other', leaseMs: LEASE_MS, token: 'other' });
  const limit = { name: 'policy:tools.visit', concurrency: 1 };
  const jobId = jobIdOf(callId, generation);
  expect((await limits.acquire(limit, { jobId, start: `${jobId} 2` }, 2 * LEASE_MS)).kind).toBe('granted');
  open();
  await worker.close();
  expect(await limits.counts(limit)).toMatchObject({ running: 1 });
});

test('sessions that wait for a slot are served in rotation, however many calls each has queued', async () => {
  const { take, release, hasSlot } = await openLimit({ concurrency: 1 });
  await take('held');
  for (let number = 0; number < 20; number += 1) await take(`loud-${number}`, 'loud');
  await take('quiet', 'quiet');
  await release('held');
  await release('loud-0');
  expect([await hasSlot('loud-1'), await hasSlot('quiet')]).toContain(true);
  await release((await hasSlot('quiet')) ? 'quiet' : 'loud-1');
  expect([await hasSlot('loud-1'), await hasSlot('quiet')]).toContain(true);
});

test('a promoted call whose slot is still free takes it before the calls that still wait', async () => {
  const { redis, take, release, of, holders, hasSlot } = await openLimit({ concurrency: 1 });
  for (const name of ['a', 'late', 'next']) await take(name, 'one');
  await release('a');
  expect(await hasSlot('late')).toBe(true);
  // All workers are busy for longer than the reservation lasts.
  await redis.zrem(holders, (await of('late')).jobId);
  expect(await take('late')).toBe(true);
  expect(await take('next')).toBe(false);
});

test('a promoted call whose slot was taken gets its place in the queue back', async () => {
  const { redis, take, release, of, holders, hasSlot } = await openLimit({ concurrency: 1 });
  for (const name of ['a', 'late', 'next', 'last']) await take(name, 'one');
  await release('a');
  await redis.zrem(holders, (await of('late')).jobId);
  expect(await take('last')).toBe(false);
  expect(await hasSlot('next')).toBe(true);
  expect(await take('late')).toBe(false);
  await release('next');
  expect([await hasSlot('late'), await hasSlot('last')]).toEqual([true, false]);
});

test('a slot that is held for an hour counts for an hour, whatever is granted beside it', async () => {
  const books = await openBooks();
  const limits = new Limits(books.redis, books.world.prefix);
  const limit = { name: 'credential:one', concurrency: 2 };
  const { holders } = new FleetKeys(books.world.prefix).limit(limit.name);
  await limits.acquire(limit, { jobId: 'long' }, 3_600_000);
  await limits.acquire(limit, { jobId: 'short' }, LEASE_MS);
  expect(await books.redis.pttl(holders)).toBeGreaterThan(3_500_000);
});

test('a call that was cancelled while it waited leaves its slot to the next', async () => {
  const { redis, ledger, take, release, of, hasSlot } = await openLimit({ concurrency: 1 });
  for (const name of ['a', 'cancelled', 'b']) await take(name);
  const { callId } = callOfJob((await of('cancelled')).jobId);
  await redis.hset(ledger.keys(PLACE).record(callId), 'state', 'cancelled');
  await release('a');
  expect([await hasSlot('cancelled'), await hasSlot('b')]).toEqual([false, true]);
});

test('a call that asks while slots are idle promotes the calls queued before it', async () => {
  const { redis, take, of, holders, hasSlot } = await openLimit({ concurrency: 1 });
  for (const name of ['a', 'b']) await take(name);
  // The worker of the first call died.
  await redis.zincrby(holders, -LEASE_MS, (await of('a')).jobId);
  expect(await take('c')).toBe(false);
  expect(await hasSlot('b')).toBe(true);
});

test('the starts of a rate go to the calls that asked first, even if another call comes when one is free', async () => {
  const { take, hasStart, keepStarts, forgetStarts } = await openLimit({ perSecond: 1 });
  expect(await take('a')).toBe(true);
  keepStarts();
  expect([await take('b'), await take('c')]).toEqual([false, false]);
  await forgetStarts();
  expect(await take('newcomer')).toBe(false);
  expect([await hasStart('b'), await hasStart('c')]).toEqual([true, false]);
  expect(await take('b')).toBe(true);
});

test('calls that were cancelled while they waited for their time leave it to the next', async () => {
  const { redis, ledger, take, of, hasStart, keepStarts, forgetStarts, waitMs } = await openLimit({ perSecond: 1 });
  await take('a');
  keepStarts();
  for (let number = 0; number < 20; number += 1) {
    await take(`cancelled-${number}`);
    const { callId } = callOfJob((await of(`cancelled-${number}`)).jobId);
    await redis.hset(ledger.keys(PLACE).record(callId), 'state', 'cancelled');
  }
  // The call checks again within twenty seconds.
  expect(await waitMs('b')).toBeLessThan(5_000);
  await forgetStarts();
  expect(await take('newcomer')).toBe(false);
  expect(await hasStart('b')).toBe(true);
});

test('4 workers, 3 at a time and 20 in a second on one credential: the service never sees more (I17)', async () => {
  const entrance = door(3, CALLS);
  const service = await startTestService(async (_asked, response) => {
    await entrance.enter();
    sendJson(response, { ok: true });
  });
  const { pawl, session } = await startFleet({
    tools: [],
    workers: 4,
    concurrency: 16,
    settings: { allowedHosts: [service.host] },
  });
  const limits = { credential: 'shared', concurrency: 3, perSecond: 20 };
  for (const name of ['first', 'second'])
    await pawl.registry.put(name, {
      kind: 'http',
      version: '1.0.0',
      description: 'Asks the service.',
      inputSchema: { type: 'object' },
      routing: { method: 'GET', url: `${service.url}/${name}`, limits },
    } as DeclaredTool);
  const calls = Promise.all(
    Array.from({ length: CALLS }, (_, index) => session.call(index % 2 === 0 ? 'first' : 'second', { index })),
  );
  // The longest pause of this process or of Redis.
  let [lookedAtMs, stillMs] = [performance.now(), 0];
  const ended = calls.then(() => true);
  await eventually(
    async () => {
      await pawl.backend.redis.ping();
      stillMs = Math.max(stillMs, performance.now() - lookedAtMs);
      lookedAtMs = performance.now();
      return Promise.race([ended, false]);
    },
    { what: 'the end of all calls' },
  );
  const results = await calls;
  for (const result of results) {
    expect(contentOf(result)).toEqual({ ok: true });
    // Waiting consumes no attempt.
    expect(result.attempts).toBe(1);
  }
  expect(entrance.most()).toBe(3);
  const times = service.asked.map(({ atMs }) => atMs);
  // A start that takes more than a second counts as arrived, so three of them may come within a full second.
  const mostInASecond = stillMs < 900 ? 20 : 23;
  for (const atMs of times)
    expect(times.filter((other) => other >= atMs && other < atMs + 1_000).length).toBeLessThanOrEqual(mostInASecond);
  const lastedMs = Math.max(...times) - Math.min(...times);
  // The limit is used up: 50 starts at 20 per second take a little more than two seconds.
  expect(lastedMs).toBeLessThan(20_000);
});

test('a call that takes longer than its lease holds its slot, which is renewed with the lease', async () => {
  const gate = gated('slow', { timeoutMs: 1_000 });
  const limited = { lockDurationMs: 2_000, tools: { slow: { limits: { concurrency: 1 } } } };
  const { pawl, session, settings } = await startFleet({ tools: [gate.tool], settings: limited });
  const call = session.call(gate.tool, {}, { timeoutMs: 600_000 });
  await gate.arrived();
  const { holders } = new FleetKeys(settings.prefix).limit('policy:tools.slow');
  const heldUntilMs = async () => Number((await pawl.backend.redis.zrange(holders, '0', '0', 'WITHSCORES'))[1] ?? 0);
  const firstMs = await heldUntilMs();
  await eventually(async () => (await heldUntilMs()) > firstMs + 2_000, {
    what: 'a slot that outlives its first lease',
  });
  gate.open();
  expect(await call).toMatchObject({ status: 'success' });
  expect(await pawl.backend.redis.exists(holders)).toBe(0);
});
