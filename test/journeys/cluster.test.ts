/** @module-tag slow */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool, type Session } from '../../src/index.ts';
import { partitionFor } from '../../src/shared/calls/call-id.ts';
import type { Server } from '../chaos/server.ts';
import { startCluster, type TestCluster, whyNoCluster } from '../helpers/cluster.ts';
import { contentOf, startFleet as startFleetHere } from '../helpers/fleet.ts';
import { eventually } from '../helpers/signal.ts';
import { echo, scripted } from '../helpers/tools.ts';
import { connectTo, type Fleet, startFleet } from './fixtures/fleet.ts';

const whyNot = await whyNoCluster();
if (whyNot !== undefined) console.log(`skipped: ${whyNot}`);
const KEYS = Array.from({ length: 8 }, (_, number) => `session-${number}`);

describe.skipIf(whyNot !== undefined)('a Redis Cluster of three nodes', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  }, 60_000);
  afterAll(() => cluster?.[Symbol.asyncDispose]());

  const start = (shards: number) =>
    startFleet({ workers: 2, redisUrl: cluster.url, env: { PAWL_SHARDS: `workspace=${shards}` } });
  const open = ({ pawl, folder }: Fleet) =>
    Promise.all(KEYS.map((sessionKey) => pawl.openSession({ sessionKey, workspaceRoot: folder })));
  const held = (sessions: readonly Session[], gate: string) =>
    Promise.all(
      sessions.map((session) =>
        session.submit('record_once', { label: session.key, gate }, { idempotencyKey: 'held' }),
      ),
    );

  test('four shards on its nodes run the calls of eight sessions in two worker processes, each once', async () => {
    const fleet = await start(4);
    const sessions = await open(fleet);
    const gate = fleet.gate('held');
    const calls = await held(sessions, gate.path);
    const callIds = calls.map(({ callId = '' }) => callId);
    expect(new Set(callIds.map((callId) => partitionFor(callId).shard)).size).toBeGreaterThan(1);
    const layout = (await fleet.pawl.shards.list()).filter(({ tier }) => tier === 'workspace');
    expect(layout.map(({ slot }) => typeof slot)).toEqual(['number', 'number', 'number', 'number']);
    expect(new Set(layout.map(({ node }) => node)).size).toBeGreaterThan(1);
    await eventually(() => fleet.effects().filter(({ phase }) => phase === 'begin').length === KEYS.length);

    // Another producer, with more shards by then: it finds the same calls.
    await fleet.pawl.shards.set('workspace', 6);
    const other = await connectTo(fleet.world, cluster.url);
    const same = await Promise.all(KEYS.map((key) => other.session(key)));
    const joined = await held(same, gate.path);
    expect(joined.map(({ callId }) => callId)).toEqual(callIds);
    const [cancelled] = callIds as [string];
    expect((await other.cancel(cancelled)).settlement).not.toBe('too-late');
    gate.open();
    const results = await Promise.all([...calls, ...joined].map((call) => call.result));
    const expected = KEYS.map((_, index) => (index === 0 ? 'error' : 'success'));
    expect(results.map(({ status }) => status)).toEqual([...expected, ...expected]);
    const replayed = await Promise.all((await held(sessions, gate.path)).map((call) => call.result));
    expect(replayed.slice(1).map(({ fromCache, status }) => [fromCache, status])).toEqual(
      KEYS.slice(1).map(() => [true, 'success']),
    );
    const conflict = await same[1]?.call('record_once', { label: 'other' }, { idempotencyKey: 'held' });
    expect(conflict?.error?.code).toBe('IDEMPOTENCY_CONFLICT');
    for (const callId of callIds.slice(1))
      expect(fleet.effects(callId).filter(({ phase }) => phase === 'effect')).toHaveLength(1);
    expect(new Set(fleet.effects().map(({ pid }) => pid)).size).toBe(2);
    expect((await fleet.pawl.calls.list({ limit: 100 })).map(({ callId }) => callId).sort()).toEqual(
      [...callIds].sort(),
    );
  });

  test.each([
    [
      'dies and comes back',
      async (server: Server) => {
        await server.kill();
        await server.start();
      },
    ],
    ['gives its slots to a replica', (server: Server) => cluster.takeOver(server)],
  ])('a node that %s has lost no call, and no effect happens twice', async (_, befall) => {
    const fleet = await start(4);
    const sessions = await open(fleet);
    const gate = fleet.gate('held');
    const calls = await held(sessions, gate.path);
    await eventually(() => fleet.effects().filter(({ phase }) => phase === 'begin').length === KEYS.length);
    const { node } = (await fleet.pawl.shards.list()).find(({ running }) => running > 0) ?? {};
    const server = cluster.nodes.find(({ port }) => node?.endsWith(`:${port}`));
    await befall(server as Server);
    gate.open();
    const results = await Promise.all(calls.map((call) => call.result));
    expect(results.map(({ status }) => status)).toEqual(KEYS.map(() => 'success'));
    for (const { callId = '' } of calls)
      expect(fleet.effects(callId).filter(({ phase }) => phase === 'effect')).toHaveLength(1);
    const more = await Promise.all(sessions.map((session) => session.call('record_once', { label: 'after' })));
    expect(more.map(({ status }) => status)).toEqual(KEYS.map(() => 'success'));
  });

  test('large parameters and results are where their call is, and come back from there', async () => {
    const { pawl, openProducer } = await startFleetHere({
      tools: [echo],
      settings: { redisUrl: cluster.url, shards: { 'read-only': 4 } },
    });
    const baseOf = (callId: string) => pawl.backend.ledger.keys(partitionFor(callId)).base;
    const params = { text: 'é'.repeat(400_000) };
    const sessions = await Promise.all(KEYS.map((sessionKey) => pawl.openSession({ sessionKey, actorId: 'ada' })));
    const call = (all: readonly Session[]) =>
      Promise.all(all.map((session) => session.call(echo, params, { idempotencyKey: 'large' })));
    const first = await call(sessions);
    const other = await openProducer();
    const again = await call(await Promise.all(KEYS.map((key) => other.session(key))));
    for (const result of [...first, ...again]) expect(contentOf(result)).toEqual(params);
    expect(again.every(({ fromCache }) => fromCache)).toBe(true);
    expect(new Set(first.map(({ callId = '' }) => partitionFor(callId).shard)).size).toBeGreaterThan(1);
    // A caller does not wait until the text that its claim did not need is removed.
    await expect
      .poll(async () => {
        const texts = (await cluster.keys()).filter((key) => /:(params|outcome):/.test(key));
        return first.map(({ callId = '' }) =>
          texts.filter((key) => key.includes(callId)).map((key) => key.slice(0, baseOf(callId).length)),
        );
      })
      .toEqual(first.map(({ callId = '' }) => [baseOf(callId), baseOf(callId)]));
  });

  test('a batch and a plan under one approval run on its nodes', async () => {
    const approved = defineTool({
      name: 'approved_echo',
      version: '1.0.0',
      description: 'Says what it is told, once a person approves.',
      tier: 'elevated',
      effects: 'idempotent',
      input: z.object({ text: z.string() }),
      run: (params) => ({ output: params }),
    });
    const { pawl, settings } = await startFleetHere({
      tools: [echo, approved],
      settings: { redisUrl: cluster.url, shards: { 'read-only': 4, elevated: 2 } },
    });
    const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const results = await session.batch(KEYS.map((text) => ({ tool: echo, params: { text } })));
    expect(results.map((result) => contentOf(result))).toEqual(KEYS.map((text) => ({ text })));
    const running = session.plan({
      nodes: {
        first: { tool: 'echo', params: { text: 'hello' } },
        second: { tool: 'approved_echo', params: { text: { $from: 'first.text' } } },
      },
    });
    const { approvalId = '' } = await running.accepted;
    const { digest } = await pawl.approvals.show(approvalId);
    await pawl.approvals.decide(approvalId, { decision: 'approve', digest, by: 'grace' });
    expect((await running).state).toBe('done');
    const groups = (await cluster.keys()).filter(
      (key) => key.startsWith(`${settings.prefix}:`) && key.includes('group'),
    );
    expect(groups.length).toBeGreaterThan(0);
    expect(groups.every((key) => key.includes('{groups}'))).toBe(true);
  });

  test('circuits, budgets and the audit trail are one for all of its nodes', async () => {
    let down = true;
    const { tool, contexts } = scripted(
      'shaky',
      () => (down ? Promise.reject(Object.assign(new Error('down'), { status: 503 })) : { output: 1 }),
      { retry: { maxAttempts: 1 }, circuit: { consecutiveFailures: 5, cooldownMs: 600_000 } },
    );
    const { pawl } = await startFleetHere({
      tools: [tool],
      settings: { redisUrl: cluster.url, shards: { workspace: 4 }, budgets: { tenants: { acme: { calls: 10 } } } },
    });
    const sessions = await Promise.all(
      KEYS.map((sessionKey) => pawl.openSession({ sessionKey, actorId: 'ada', tenantId: 'acme' })),
    );
    const shards = new Set(sessions.map(({ record }) => record.shards?.workspace ?? 0));
    expect(shards.size).toBeGreaterThan(1);
    const statusOf = async (session: Session | undefined, key?: string) =>
      (await session?.call(tool, {}, key === undefined ? {} : { idempotencyKey: key }))?.status;
    for (const session of sessions.slice(0, 5)) expect(await statusOf(session)).toBe('retry_exhausted');
    const refused = [];
    for (const session of sessions.slice(5)) refused.push(await session.call(tool, {}));
    expect(refused.map(({ status }) => status)).toEqual(refused.map(() => 'circuit_open'));
    // The news of the open circuit may come after a call or two that a worker then refuses: those have been claimed.
    const left = 10 - 5 - refused.filter(({ callId }) => callId !== undefined).length;
    expect(contexts).toHaveLength(5);
    expect(await pawl.circuits.list()).toMatchObject([
      { partition: { tier: 'workspace', shard: 0 }, circuit: { state: 'OPEN' } },
    ]);

    down = false;
    await pawl.circuits.set('reset', {});
    // So many of ten calls are left, whatever asks for one again.
    for (const session of sessions.slice(0, left)) expect(await statusOf(session, 'k')).toBe('success');
    const window = () => pawl.backend.breakers.window({ tier: 'workspace', shard: 0 }, 'tool:tools.shaky@acme');
    await eventually(async () => (await window()).filter(({ ok }) => ok).length === left, { what: 'the successes' });
    expect(await sessions[left]?.call(tool, {})).toMatchObject({ error: { code: 'BUDGET_EXHAUSTED' } });
    for (const session of sessions.slice(0, left)) expect(await statusOf(session, 'k')).toBe('success');
    await eventually(
      async () => (await pawl.audit({ limit: 200 })).filter(({ record }) => record.type === 'call').length >= 10,
      { what: 'ten calls in the audit trail' },
    );
  });

  test('a schedule occurs once at each of its times, whichever front door starts it', async () => {
    const fleet = await startFleetHere({ tools: [echo], settings: { redisUrl: cluster.url } });
    const { pawl, session, openProducer } = fleet;
    await pawl.schedules.put({
      id: 'often',
      tool: echo,
      params: { text: 'hi' },
      session: session.key,
      every: '1s',
      limit: 2,
    });
    await Promise.all([openProducer({}, { schedules: true }), openProducer({}, { schedules: true })]);
    const { counts, recent } = await eventually(async () => {
      const view = await pawl.schedules.get('often');
      return view.state === 'ended' && view;
    });
    expect(counts).toMatchObject({ started: 2, refused: 0, unknown: 0 });
    for (const { callId = '' } of recent) expect((await pawl.result(callId))?.status).toBe('success');
    await pawl.schedules.remove('often');
    expect(await pawl.schedules.list()).toEqual([]);
  });
});
