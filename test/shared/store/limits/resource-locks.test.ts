import { expect, onTestFinished, test } from 'vitest';
import { digest } from '../../../../src/shared/schema/canonical-json.ts';
import { ResourceLocks } from '../../../../src/shared/store/limits/resource-locks.ts';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { FleetKeys, PartitionKeys } from '../../../../src/shared/store/redis/keys.ts';
import { jobFor, turnsBehave } from '../../../conformance/turns.ts';
import { createWorld } from '../../../helpers/world.ts';

const LEASE_MS = 30_000;
const A = { resource: digest('a'), mode: 'exclusive' } as const;

/** Turns whose waiting calls are delayed jobs of the workspace tier. */
async function open(names: readonly string[]) {
  const world = await createWorld();
  const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:test`, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  const keys = new PartitionKeys(world.prefix, { tier: 'workspace', shard: 0 });
  const jobIdOf = (name: string) => `${jobFor(name).callId}.1`;
  for (const name of names) {
    await redis.hset(keys.record(jobFor(name).callId), 'state', 'inflight');
    await redis.zadd(keys.job('delayed'), '1', jobIdOf(name));
  }
  const called = async () => {
    const jobIds = await redis.lrange(keys.job('wait'), 0, -1);
    await redis.del(keys.job('wait'));
    return names
      .filter((name) => jobIds.includes(jobIdOf(name)))
      .sort((a, b) => jobIds.indexOf(jobIdOf(b)) - jobIds.indexOf(jobIdOf(a)));
  };
  /** As if so much time had passed for those who have turns at A. */
  const age = async (ms: number) => {
    const holders = `${new FleetKeys(world.prefix).locks}holders:${A.resource}`;
    for (const holder of await redis.zrange(holders, '0', '-1')) await redis.zincrby(holders, -ms, holder);
  };
  return { world, redis, keys, locks: new ResourceLocks(redis, world.prefix, LEASE_MS), called, age };
}

turnsBehave(async (names) => {
  const { locks, called } = await open(names);
  return { locks, called: async () => (await called()).toReversed() };
});

test('C3: the turn of a worker that died is free when its lease ends, and nothing is left of it', async () => {
  const { locks, world, redis, age } = await open(['1', '2']);
  expect(await locks.acquire(jobFor('1'), 1, A, true)).toEqual({ kind: 'granted' });
  await age(20_000);
  const answer = await locks.acquire(jobFor('2'), 1, A, true);
  expect(answer).toMatchObject({ kind: 'waiting' });
  expect(answer.kind === 'waiting' && answer.withinMs).toBeLessThanOrEqual(LEASE_MS - 20_000);
  await age(10_000);
  expect(await locks.acquire(jobFor('2'), 1, A, true)).toEqual({ kind: 'granted' });
  expect(await locks.renew(jobFor('1').callId, 1)).toBe(false);
  const left = (await world.keys()).filter((name) => name.includes('{turns}'));
  expect(left.length).toBeGreaterThan(0);
  for (const name of left) {
    const leftMs = await redis.pttl(name);
    expect([name, leftMs > 0 && leftMs <= 3 * LEASE_MS]).toEqual([name, true]);
  }
});

test('C3: a lease that is renewed keeps the turn', async () => {
  const { locks, age } = await open(['1', '2']);
  await locks.acquire(jobFor('1'), 1, A, true);
  for (let renewals = 0; renewals < 3; renewals += 1) {
    await age(20_000);
    expect(await locks.renew(jobFor('1').callId, 1)).toBe(true);
    expect((await locks.acquire(jobFor('2'), 1, A, true)).kind).toBe('waiting');
  }
});

test('C3: a call that ended while it waited is passed over', async () => {
  const { locks, called, redis, keys } = await open(['1', '2', '3']);
  for (const name of ['1', '2', '3']) await locks.acquire(jobFor(name), 1, A, true);
  await redis.hset(keys.record(jobFor('2').callId), 'state', 'cancelled');
  await locks.release(jobFor('1'), 1);
  expect(await called()).toEqual(['3']);
});

test('C3: a job that is granted its lock while it is being parked is promoted afterwards', async () => {
  const { locks, called, redis, keys } = await open(['1']);
  await locks.acquire(jobFor('1'), 1, A, true);
  expect((await locks.acquire(jobFor('2'), 1, A, true)).kind).toBe('waiting');
  await redis.hset(keys.record(jobFor('2').callId), 'state', 'inflight');
  await locks.release(jobFor('1'), 1);
  expect(await called()).toEqual([]);
  await redis.zadd(keys.job('delayed'), '1', `${jobFor('2').callId}.1`);
  await locks.parked(jobFor('2'));
  expect(await redis.lrange(keys.job('wait'), 0, -1)).toEqual([`${jobFor('2').callId}.1`]);
});

test('C3: an older attempt takes and gives up nothing that a newer one has', async () => {
  const { locks } = await open(['1', '2']);
  await locks.acquire(jobFor('1'), 2, A, true);
  expect(await locks.acquire(jobFor('1'), 1, A, true)).toEqual({ kind: 'fenced' });
  expect(await locks.renew(jobFor('1').callId, 1)).toBe(false);
  await locks.release(jobFor('1'), 1);
  expect((await locks.acquire(jobFor('2'), 1, A, true)).kind).toBe('waiting');
});
