import { describe, expect, test } from 'vitest';
import type { Pawl } from '../../../src/producer/client.ts';
import { partitionFor } from '../../../src/shared/calls/call-id.ts';
import { publishBroadcast } from '../../../src/shared/store/redis/broadcasts.ts';
import { FleetKeys, PartitionKeys } from '../../../src/shared/store/redis/keys.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, within } from '../../helpers/signal.ts';
import { echo, gated, scripted } from '../../helpers/tools.ts';

const KEYS = Array.from({ length: 12 }, (_, number) => `session-${number}`);
const open = (pawl: Pawl, sessionKey: string) => pawl.openSession({ sessionKey, actorId: 'ada' });
const shardsOf = (callIds: readonly string[]) => new Set(callIds.map((callId) => partitionFor(callId).shard));

describe('shards of a tier', () => {
  test('take its sessions, each with all its calls; what lists, counts and flushes calls covers all of them', async () => {
    const fleet = await startFleet({ tools: [echo], settings: { shards: { 'read-only': 4 } }, workers: 2 });
    const sessions = await Promise.all(KEYS.map((key) => open(fleet.pawl, key)));
    const callIds = await Promise.all(
      sessions.map(async (session) => {
        const calls = await Promise.all(['a', 'b'].map((text) => session.submit(echo, { text })));
        const results = await Promise.all(calls.map((call) => call.result));
        expect(results.map(contentOf)).toEqual([{ text: 'a' }, { text: 'b' }]);
        const ids = calls.map((call) => pending(call).callId);
        expect(shardsOf(ids).size, session.key).toBe(1);
        return ids;
      }),
    );
    expect(shardsOf(callIds.flat())).toEqual(new Set([0, 1, 2, 3]));
    const listed = await fleet.pawl.calls.list({ limit: 100 });
    expect(listed.map(({ callId }) => callId).sort()).toEqual(callIds.flat().sort());
    const layout = await fleet.pawl.shards.list();
    expect(layout.filter(({ tier }) => tier === 'read-only').map(({ shard }) => shard)).toEqual([0, 1, 2, 3]);
    expect(layout.reduce((sum, { kept }) => sum + kept, 0)).toBe(24);
    expect(layout.every(({ takesSessions, waiting, running }) => takesSessions && waiting + running === 0)).toBe(true);
    expect(await fleet.pawl.calls.flush()).toEqual({ flushed: 24, inflight: 0, unresolved: 0 });
    const ofShards = (await fleet.world.connections()).filter((name) => /:worker:.*read-only|{read-only/.test(name));
    expect(ofShards, 'two of each worker for each shard').toHaveLength(2 * 2 * 4);
  });

  test('a session stays in its shard, and every key finds its call, after any change and from any process', async () => {
    const gate = gated('gate', { effects: 'once' });
    const fleet = await startFleet({ tools: [echo, gate.tool], concurrency: 50 });
    const key = { idempotencyKey: 'the-key' };
    const before = await Promise.all(KEYS.map((each) => open(fleet.pawl, each)));
    const first = await Promise.all(before.map((session) => session.submit(gate.tool, { of: session.key }, key)));
    const ids = first.map((call) => pending(call).callId);
    expect(shardsOf(ids)).toEqual(new Set([0]));
    await gate.arrived(KEYS.length);

    for (const tier of ['read-only', 'workspace'] as const) await fleet.pawl.shards.set(tier, 4);
    const newer = await fleet.openProducer();
    const dispatches = async () =>
      (await fleet.world.connections()).filter((name) => /:push:(?:read-only|workspace)/.test(name));
    await eventually(async () => (await dispatches()).length === 0, {
      what: 'the end of pushes where queues share slots',
    });
    const joined = await Promise.all(
      KEYS.map(async (each) => (await newer.session(each)).submit(gate.tool, { of: each }, key)),
    );
    expect(joined.map((call) => pending(call).callId)).toEqual(ids);
    const conflicts = await Promise.all(KEYS.map(async (each) => (await newer.session(each)).call(gate.tool, {}, key)));
    expect(conflicts.map(({ error }) => error?.code)).toEqual(KEYS.map(() => 'IDEMPOTENCY_CONFLICT'));
    gate.open();
    expect((await Promise.all(joined.map((call) => call.result))).map(({ status }) => status)).toEqual(
      KEYS.map(() => 'success'),
    );
    const replayed = await Promise.all(before.map((session) => session.call(gate.tool, { of: session.key }, key)));
    expect(replayed.map(({ fromCache }) => fromCache)).toEqual(KEYS.map(() => true));
    expect(gate.contexts).toHaveLength(KEYS.length);

    const later = await Promise.all(KEYS.map((each) => open(newer, `later-${each}`)));
    const spread = await Promise.all(later.map((session) => session.submit(echo, { text: 'x' })));
    expect(shardsOf(spread.map((call) => pending(call).callId)).size).toBeGreaterThan(1);
    expect((await Promise.all(spread.map((call) => call.result))).every(({ status }) => status === 'success')).toBe(
      true,
    );
  });

  test('a session whose record has expired is opened where its calls are kept', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: 1 }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], settings: { shards: { workspace: 3 } } });
    const call = async (pawl: Pawl, sessionKey: string) =>
      (await open(pawl, sessionKey)).call(tool, { text: 'once' }, { idempotencyKey: 'k' });
    for (const each of KEYS) await call(fleet.pawl, each);
    const { redis } = fleet.pawl.backend;
    await redis.del(KEYS.map((each) => new FleetKeys(fleet.world.prefix).session(each)));
    await fleet.pawl.shards.set('workspace', 5, 'ada');
    expect(fleet.audited).toContainEqual({ type: 'override', what: 'shards', action: 'workspace 5', by: 'ada' });
    const other = await fleet.openProducer();
    for (const each of KEYS) expect(await call(other, each), each).toMatchObject({ fromCache: true });
    expect(contexts).toHaveLength(KEYS.length);
  });

  test('workers go on with shards that take no new sessions until nothing of them is kept', async () => {
    const fleet = await startFleet({ tools: [echo], settings: { shards: { 'read-only': 4 } } });
    const call = async (sessionKey: string) => {
      const session = await fleet.pawl.session(sessionKey).catch(() => open(fleet.pawl, sessionKey));
      return session.call(echo, { text: 'x' });
    };
    const names = async () =>
      (await fleet.world.connections())
        .filter((name) => /:worker:read-only/.test(name))
        .map((name) => name.split(':')[2]);
    await Promise.all(KEYS.map(call));
    await fleet.pawl.shards.set('read-only', 1);
    expect((await Promise.all(KEYS.map(call))).every(({ status }) => status === 'success')).toBe(true);
    expect(new Set(await names())).toEqual(new Set(['read-only', 'read-only.1', 'read-only.2', 'read-only.3']));
    const session = await open(fleet.pawl, 'session-new');
    expect(shardsOf([pending(await session.submit(echo, { text: 'x' })).callId])).toEqual(new Set([0]));

    await eventually(async () => (await fleet.pawl.calls.backlog()) === 0);
    await fleet.pawl.calls.flush();
    // Workers look by themselves with every heartbeat.
    const look = () => publishBroadcast(fleet.pawl.backend.redis, fleet.world.prefix, { type: 'shards' });
    await look();
    await eventually(async () => new Set(await names()).size === 1, { what: 'the end of the queues that are empty' });
    // Its sessions still are where they were, and are served again.
    const again = KEYS.map(call);
    await eventually(async () => (await fleet.pawl.calls.backlog()) > 0);
    await look();
    expect((await Promise.all(again)).every(({ status }) => status === 'success')).toBe(true);
  });

  test('workers go on with a shard for as long as a call of it is in flight, whatever else has expired meanwhile', async () => {
    const gate = gated();
    const settings = { shards: { workspace: 4 } };
    const fleet = await startFleet({ tools: [gate.tool], tiers: ['read-only', 'workspace'], settings, concurrency: 1 });
    const sessions = await Promise.all(KEYS.map((key) => open(fleet.pawl, key)));
    const session = sessions.find(({ record }) => record.shards?.workspace !== undefined);
    const calls = [1, 2].map((number) => session?.call(gate.tool, { number }));
    await gate.arrived();
    await eventually(async () => (await fleet.pawl.calls.backlog()) === 2);

    await fleet.pawl.shards.set('workspace', 1);
    const { ledger, shards } = fleet.pawl.backend;
    const muchLaterMs = (await ledger.now()) + 2 * fleet.settings.ttl.doneMs;
    for (const partition of shards.partitions()) await ledger.index.prune(partition, muchLaterMs);
    await fleet.pawl.shards.set('read-only', 2);
    const isServed = async () => (await fleet.world.connections()).some((name) => name.includes(':read-only.1'));
    await eventually(isServed, { what: 'a look at all shards' });
    gate.open();
    const ended = await within(Promise.all(calls), 30_000, 'the end of both calls');
    expect(ended.map((result) => result?.status)).toEqual(['success', 'success']);
  });

  test('one circuit holds for all of them: failures in several shards open it together, for all', async () => {
    const failing = scripted('failing', () => Promise.reject(Object.assign(new Error('down'), { status: 503 })), {
      retry: { maxAttempts: 1 },
      circuit: { consecutiveFailures: 5 },
    });
    const fleet = await startFleet({ tools: [failing.tool], settings: { shards: { workspace: 4 } }, concurrency: 1 });
    const sessions = await Promise.all(KEYS.map((key) => open(fleet.pawl, key)));
    const used = sessions.slice(0, 5);
    const ends = [];
    for (const session of used) ends.push((await session.call(failing.tool, {})).status);
    expect(ends).toEqual(Array.from({ length: 5 }, () => 'retry_exhausted'));
    expect(new Set(used.map(({ record }) => record.shards?.workspace ?? 0)).size).toBeGreaterThan(1);
    expect(await fleet.pawl.circuits.list()).toMatchObject([
      { key: 'tool:tools.failing', partition: { tier: 'workspace', shard: 0 }, circuit: { state: 'OPEN' } },
    ]);
    for (const session of sessions) expect((await session.call(failing.tool, {})).status).toBe('circuit_open');
    expect(failing.contexts).toHaveLength(5);
  });

  test('a worker runs as many attempts of the tier at a time as configured, and no shard keeps them all', async () => {
    const gate = gated();
    const quick = scripted('quick', () => ({ output: 1 }));
    const settings = { shards: { workspace: 4 } };
    const fleet = await startFleet({ tools: [gate.tool, quick.tool], settings, workers: 0 });
    const worker = await fleet.startWorker({ concurrency: 2 });
    const sessions = await Promise.all(KEYS.map((key) => open(fleet.pawl, key)));
    const held = sessions.slice(0, 6).map((session) => session.call(gate.tool, {}));
    await gate.arrived(2);
    const others = sessions.map((session) => session.call(quick.tool, {}));
    expect(worker.running).toBe(2);
    gate.open();
    expect((await Promise.all([...held, ...others])).every(({ status }) => status === 'success')).toBe(true);
    await eventually(() => worker.running === 0);
  });

  test('a call that a worker took begins at once, although the next one of its shard waits for a slot', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], settings: { shards: { workspace: 2 } }, workers: 0 });
    await fleet.startWorker({ concurrency: 2 });
    const sessions = await Promise.all(KEYS.map((key) => open(fleet.pawl, key)));
    const [near, far] = [0, 1].map((shard) => sessions.find(({ record }) => (record.shards?.workspace ?? 0) === shard));
    const { redis, prefix } = fleet.pawl.backend;
    // Whoever looks and finds nothing waits with nothing else at hand.
    for (const shard of [0, 1]) {
      const marker = new PartitionKeys(prefix, { tier: 'workspace', shard }).job('marker');
      await redis.zadd(marker, 0, '0');
      await eventually(async () => (await redis.exists(marker)) === 0, { what: 'a look at the queue' });
    }
    const calls = [near?.call(gate.tool, {})];
    await gate.arrived(1);
    calls.push(far?.call(gate.tool, { of: 'far' }), far?.call(gate.tool, { of: 'farther' }));
    await gate.arrived(2);
    gate.open();
    expect((await Promise.all(calls)).map((result) => result?.status)).toEqual(['success', 'success', 'success']);
  });

  test('calls that all sessions share are where each of them finds them', async () => {
    const shared = scripted('shared', () => ({ output: 1 }), { effects: 'none', tier: 'read-only' });
    const fleet = await startFleet({
      tools: [shared.tool],
      settings: { shards: { 'read-only': 4 }, tools: { shared: { scope: 'global' } } },
    });
    for (const key of KEYS.slice(0, 6)) {
      const session = await open(fleet.pawl, key);
      await session.call(shared.tool, {}, { idempotencyKey: 'one' });
    }
    expect(shared.contexts).toHaveLength(1);
    const { redis, prefix } = fleet.pawl.backend;
    expect(await redis.llen(new PartitionKeys(prefix, { tier: 'read-only', shard: 1 }).calls)).toBe(0);
  });
});
