import { expect, onTestFinished, test } from 'vitest';
import { fakeClock } from '../../../../src/local/fake-clock.ts';
import { DEDUPE_DEFAULTS, type DedupeRecord } from '../../../../src/shared/calls/dedupe-store.ts';
import { InMemoryDedupeStore } from '../../../../src/shared/store/dedupe/dedupe-memory.ts';
import { RedisDedupeStore } from '../../../../src/shared/store/dedupe/dedupe-redis.ts';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { describeDedupeStore } from '../../../conformance/dedupe-store.ts';
import { eventually } from '../../../helpers/signal.ts';
import { createWorld } from '../../../helpers/world.ts';

describeDedupeStore('the store in memory', async () => {
  const clock = fakeClock();
  return {
    open: (hooks) => new InMemoryDedupeStore({ clock, ...hooks }),
    pass: (untilMs) => clock.advance(Math.max(0, untilMs - clock.now())),
  };
});

async function redisRig() {
  const world = await createWorld();
  const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:test`, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  const { prefix } = world;
  const store = new RedisDedupeStore({ redis, prefix });
  return {
    world,
    redis,
    open: (hooks = {}) => new RedisDedupeStore({ redis, prefix, ...hooks }),
    pass: async (untilMs: number) => {
      await eventually(async () => (await store.now()) >= untilMs, { everyMs: 1 });
    },
  };
}

describeDedupeStore('the store in Redis', redisRig);

const record: DedupeRecord = {
  key: 'key',
  tool: 'tools.note',
  idempotencyKey: 'key',
  state: 'done',
  createdAtMs: 0,
  updatedAtMs: 0,
  expiresAtMs: 0,
  ttlMs: 0,
  request: { sessionKey: 'session-1', actorId: 'ada', requestId: 'request-1', paramsDigest: 'digest-1' },
  version: 1,
};

test('the defaults are the seed’s (R16)', () => {
  expect(DEDUPE_DEFAULTS).toEqual({ maxKeys: 25_000, doneMs: 86_400_000, failedMs: 300_000, lockMs: 120_000 });
});

test('the store in memory holds 25,000 keys and not one more, without a timer of its own (R13)', async () => {
  const evicted: string[] = [];
  const clock = fakeClock();
  const store = new InMemoryDedupeStore({ clock, onEvicted: ({ key }) => evicted.push(key) });
  const expiresAtMs = clock.now() + 1_000;
  for (let index = 0; index < 25_010; index += 1)
    await store.setIfNotExists({ ...record, key: `key-${index}`, expiresAtMs });
  expect(await store.size()).toBe(25_000);
  expect(evicted).toEqual(Array.from({ length: 10 }, (_, index) => `key-${index}`));
  await clock.advance(1_001);
  expect(await store.sweep()).toBe(25_000);
  expect(() => new InMemoryDedupeStore({ maxKeys: 0 })).toThrow('maxKeys');
});

test('a full store in memory looks for expired records again before it refuses, however lately it looked', async () => {
  const clock = fakeClock();
  const store = new InMemoryDedupeStore({ clock, maxKeys: 1 });
  const claim = (key: string, ttlMs: number) =>
    store.setIfNotExists({ ...record, key, state: 'inflight', expiresAtMs: clock.now() + ttlMs });
  await claim('first', 10);
  await expect(claim('second', 10)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  await clock.advance(11);
  expect(await claim('second', 10)).toEqual({ created: true });
});

test('all keys in Redis carry the prefix and one hash tag, and the last record to expire takes them along', async () => {
  const { world, open, pass } = await redisRig();
  const store = open({ maxKeys: 10 });
  const expiresAtMs = (await store.now()) + 1_500;
  await store.setIfNotExists({ ...record, key: 'a', expiresAtMs: expiresAtMs - 100 });
  await store.setIfNotExists({ ...record, key: 'b', state: 'inflight', expiresAtMs });
  await store.get('a');
  const keys = await world.keys();
  expect(keys.map((key) => key.slice(world.prefix.length))).toEqual([
    ':{dedupe}:all',
    ':{dedupe}:finished',
    ':{dedupe}:record:a',
    ':{dedupe}:record:b',
  ]);
  await pass(expiresAtMs + 1);
  expect(await world.keys()).toEqual([]);
});

test('the index in Redis forgets expired records when it is swept', async () => {
  const { world, redis, open, pass } = await redisRig();
  const store = open();
  const lastMs = (await store.now()) + 100;
  for (let index = 0; index < 20; index += 1)
    await store.setIfNotExists({ ...record, key: `short-${index}`, expiresAtMs: lastMs });
  await pass(lastMs + 1);
  await store.setIfNotExists({ ...record, key: 'next', expiresAtMs: lastMs + 60_000 });
  await store.sweep();
  expect(await redis.zcard(`${world.prefix}:{dedupe}:all`)).toBe(1);
});

test('a store in Redis that is out of reach says so with a typed error', async () => {
  const { redis, open } = await redisRig();
  const store = open();
  redis.disconnect();
  await expect(store.get('key')).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
});
