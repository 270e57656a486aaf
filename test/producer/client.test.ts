import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import type { CallOptions } from '../../src/producer/calls/call-envelope.ts';
import { Pawl } from '../../src/producer/client.ts';
import { Session } from '../../src/producer/sessions/session.ts';
import { partitionOf } from '../../src/shared/calls/call-id.ts';
import { awaitReady } from '../../src/shared/store/redis/connection.ts';
import { FleetKeys } from '../../src/shared/store/redis/keys.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { type AnyTool, TIERS } from '../../src/shared/tools/tool.ts';
import { type Fleet, pending, resultOf, startFleet } from '../helpers/fleet.ts';
import { eventually } from '../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../helpers/tools.ts';

/** Leaves a call of a `once` tool whose attempt began and left no record. */
async function unknownOutcome(tool: AnyTool, options: CallOptions = {}) {
  const fleet = await startFleet({ tools: [tool], workers: 0 });
  const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k', ...options }));
  const { callId } = submission;
  const record = await fleet.pawl.read(callId);
  const job = { callId, generation: record?.generation ?? '', session: fleet.session.key };
  await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
  await fleet.startWorker();
  expect((await submission.result).error?.code).toBe('OUTCOME_UNKNOWN');
  return { fleet, callId };
}

describe('opening sessions', () => {
  test('a key is taken once, a parent must exist, and faults are named', async () => {
    const { pawl, session } = await startFleet({ tools: [], workers: 0 });
    await expect(pawl.openSession({ sessionKey: session.key })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'sessionKey' }],
    });
    await expect(pawl.openSession({ parent: 'nobody' })).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
    await expect(pawl.openSession({ kind: 'root' as never })).rejects.toMatchObject({ issues: [{ path: 'kind' }] });
    await expect(pawl.session('nobody')).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
  });

  test('a session below another takes over whose it is and where it works', async () => {
    const { pawl } = await startFleet({ tools: [], workers: 0 });
    const above = await pawl.openSession({
      actorId: 'ada',
      agentId: 'agent',
      tenantId: 'acme',
      workspaceRoot: tmpdir(),
    });
    const below = await pawl.openSession({ kind: 'branch', parent: above.key });
    expect(below.record).toMatchObject({ actorId: 'ada', agentId: 'agent', tenantId: 'acme', workspaceRoot: tmpdir() });
    expect((await pawl.sessions.list()).map(({ sessionKey }) => sessionKey)).toContain(below.key);
  });

  test('an envelope that names an unknown session opens it, also when two do so at once', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const envelope = session.envelope(echo, { text: 'x' });
    const target = { sessionKey: 'fresh', actorId: 'bob' };
    const other = await startFleetPeer(pawl);
    const results = await Promise.all([
      resultOf(pawl, { ...envelope, target }),
      resultOf(other, { ...session.envelope(echo, { text: 'y' }), target }),
    ]);
    await other.close();
    expect(results.map((result) => result.status)).toEqual(['success', 'success']);
    expect((await pawl.session('fresh')).record).toMatchObject({ kind: 'main', actorId: 'bob' });
  });

  test('that Redis has lost is the same one again when its holder calls, and may do no more than before', async () => {
    const change = scripted('change', () => ({ output: null })).tool;
    const { pawl, session } = await startFleet({ tools: [change] });
    const helper = await session.worker();
    const elsewhere = await startFleetPeer(pawl);
    const { redis, prefix } = pawl.backend;
    await redis.unlink(new FleetKeys(prefix).session(helper.key));
    const lost = new Session(elsewhere.sessions.host, helper.record);
    expect(await lost.call(change, {})).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
    expect((await elsewhere.session(helper.key)).record).toEqual(helper.record);
    await elsewhere.close();
  });

  test('that Redis has lost together with the connection is opened again at once', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const { redis, prefix } = pawl.backend;
    await redis.unlink(new FleetKeys(prefix).session(session.key));
    const lost = once(redis, 'close');
    redis.disconnect(true);
    await lost;
    await awaitReady(redis, 30_000);
    expect(await session.call(echo, { text: 'a' })).toMatchObject({ status: 'success' });
  });

  test('that Redis has lost unnoticed is opened again, as it was, after the first call that did not find it', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const { record } = await session.worker();
    await pawl.backend.redis.unlink(new FleetKeys(pawl.settings.prefix).session(record.sessionKey));
    const { sessionKey, actorId } = record;
    const call = (text: string) =>
      resultOf(pawl, { ...session.envelope(echo, { text }), target: { sessionKey, actorId: actorId ?? '' } });
    expect(await call('a')).toMatchObject({ error: { code: 'UNKNOWN_SESSION' } });
    expect(await call('b')).toMatchObject({ status: 'success' });
    expect((await pawl.session(sessionKey)).record).toMatchObject({ kind: 'worker' });
  });
});

function startFleetPeer({ settings }: Pawl): Promise<Pawl> {
  return Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: tmpdir() });
}

describe('a call by its ID', () => {
  test('its result can be waited for as long as it takes', async () => {
    const gate = gated();
    const { pawl, session } = await startFleet({ tools: [gate.tool] });
    const { callId } = pending(await session.submit(gate.tool, {}));
    const result = pawl.result(callId, { waitMs: Number.POSITIVE_INFINITY });
    await gate.arrived();
    gate.open();
    expect(await result).toMatchObject({ status: 'success' });
  });

  test('its result can be read later and elsewhere; waiting can run out', async () => {
    const gate = gated();
    const { session, pawl, openProducer } = await startFleet({ tools: [gate.tool] });
    const { callId, stop } = pending(await session.submit(gate.tool, {}));
    stop();
    const other = await openProducer();
    expect(partitionOf(callId)).toBeDefined();
    expect(await other.result(callId, { waitMs: 10 })).toBeUndefined();
    const later = other.result(callId);
    gate.open();
    expect((await later)?.status).toBe('success');
    expect((await pawl.result(callId))?.status).toBe('success');
    await expect(pawl.result('nonsense')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });

  test('calls are listed, the newest first, and by session', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const other = await pawl.openSession();
    const first = await session.call(echo, { text: 'a' });
    await other.call(echo, { text: 'b' });
    expect(await pawl.calls.list()).toHaveLength(2);
    expect((await pawl.calls.list({ sessionKey: session.key })).map(({ callId }) => callId)).toEqual([first.callId]);
    expect(await pawl.calls.list({ limit: 1 })).toHaveLength(1);
  });
});

describe('the four ways a cancellation ends', () => {
  test('cancelled-before-start, and it is replayed', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: null }));
    const { session, pawl, startWorker } = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await session.submit(tool, {}, { idempotencyKey: 'k' }));
    expect(await pawl.cancel(submission.callId)).toMatchObject({
      settlement: 'cancelled-before-start',
      result: { error: { code: 'CANCELLED' } },
    });
    expect((await submission.result).error?.code).toBe('CANCELLED');
    await startWorker();
    expect(await session.call(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
    expect(contexts).toHaveLength(0);
  });

  test.each([
    ['cancelled', 'none', 'read-only'],
    ['unsettled', 'once', 'workspace'],
    ['unsettled', 'idempotent', 'workspace'],
  ] as const)('%s: a running tool with effects %s', async (settlement, effects, tier) => {
    const gate = gated('gate', { effects, tier });
    const { session, openProducer } = await startFleet({ tools: [gate.tool] });
    const submission = pending(await session.submit(gate.tool, {}));
    await gate.arrived();
    const canceller = await openProducer();
    expect(await canceller.cancel(submission.callId)).toMatchObject({ settlement });
    expect(await submission.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' }, attempts: 1 });
    expect(gate.contexts[0]?.signal.aborted).toBe(true);
  });

  test.each([
    ['cancelled', 'idempotent', 'workspace', 429],
    ['cancelled', 'none', 'read-only', 503],
    ['unsettled', 'idempotent', 'workspace', 503],
  ] as const)('%s: a call between two attempts, with effects %s in the tier %s, after HTTP %i', async (...row) => {
    const [settlement, effects, tier, status] = row;
    const down = () => {
      throw httpError(status, { retryAfterMs: 20_000 });
    };
    const { tool, contexts } = scripted('down', down, { effects, tier });
    const { session, pawl } = await startFleet({ tools: [tool] });
    const submission = pending(await session.submit(tool, {}));
    await eventually(async () => (await pawl.read(submission.callId))?.phase === 'waiting-retry');
    expect(await pawl.cancel(submission.callId)).toMatchObject({ settlement, result: { attempts: 1 } });
    expect(contexts).toHaveLength(1);
  });

  test('unsettled: a call whose attempt was lost, and which waits for a worker that has its tool', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const { callId } = await passedOn(fleet, pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' })));
    expect(await fleet.pawl.cancel(callId)).toMatchObject({ settlement: 'unsettled', result: { attempts: 1 } });
  });

  test('the deadline of such a call leaves its outcome unknown', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const deadlineAtMs = Date.now() + 3_000;
    const asked = { idempotencyKey: 'k', deadlineAtMs };
    const submission = await passedOn(fleet, pending(await fleet.session.submit(tool, {}, asked)));
    expect(await submission.result).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await fleet.pawl.resolve(submission.callId, { as: 'succeeded' })).toMatchObject({ state: 'done' });
  });

  test('too-late, with the outcome; and an unknown call is a typed error', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const { callId = '' } = await session.call(echo, { text: 'x' });
    expect(await pawl.cancel(callId)).toMatchObject({ settlement: 'too-late', result: { status: 'success' } });
    await expect(pawl.cancel('nonsense')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});

/** Its worker died in the middle, and another one that does not have its tool has put it aside. */
async function passedOn({ pawl, session }: Fleet, submission: ReturnType<typeof pending>) {
  const { callId } = submission;
  const { ledger } = pawl.backend;
  const job = { callId, generation: (await pawl.read(callId))?.generation ?? '', session: session.key };
  await ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
  const taken = await ledger.begin(job, { workerId: 'other', leaseMs: 1_000, token: 'other' });
  if (taken.kind !== 'started') throw new Error(`the call did not begin: ${taken.kind}`);
  await ledger.postpone(callId, taken.fence, { phase: 'queued', attempts: taken.earlierAttempts, delayMs: 60_000 });
  return submission;
}

describe('resolving an unknown outcome', () => {
  test('as succeeded: the answer is replayed', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    expect(await fleet.pawl.resolve(callId, { as: 'succeeded', output: { receipt: 7 } })).toMatchObject({
      state: 'done',
    });
    const replay = await fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    expect(replay).toMatchObject({
      fromCache: true,
      output: { content: { receipt: 7 }, metadata: { resolved: true } },
    });
    expect(contexts).toHaveLength(0);
    await expect(fleet.pawl.resolve(callId, { as: 'failed' })).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
  });

  test('as failed: the failure is replayed', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    expect(await fleet.pawl.resolve(callId, { as: 'failed' })).toMatchObject({ state: 'failed' });
    const replay = await fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    expect(replay).toMatchObject({ fromCache: true, error: { code: 'TOOL_FAILED' } });
  });

  test('as retry: it runs, and who waits by ID gets the new end, not the old one', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    await fleet.pawl.resolve(callId, { as: 'retry' });
    expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'paid' } });
    expect(contexts.map(({ fence }) => fence)).toEqual([3]);
  });

  test('as retry after its deadline: that was of the caller who has given it up, and it runs', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const deadlineAtMs = Date.now() + 3_000;
    const { fleet, callId } = await unknownOutcome(tool, { deadlineAtMs });
    const { pawl } = fleet;
    await eventually(async () => (await pawl.backend.ledger.now()) > deadlineAtMs, { what: 'the deadline' });
    await pawl.resolve(callId, { as: 'retry' });
    expect(await pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'paid' } });
    expect(contexts.map((context) => context.deadlineAtMs)).toEqual([undefined]);
  });

  test('other calls cannot be resolved', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const { callId = '' } = await session.call(echo, { text: 'x' });
    for (const resolution of [{ as: 'succeeded' }, { as: 'failed' }, { as: 'retry' }] as const)
      await expect(pawl.resolve(callId, resolution)).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
    await expect(pawl.resolve('nonsense', { as: 'failed' })).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});

describe('R25: circuits', () => {
  test('are listed, forced open by tool or key, and reset', async () => {
    const { pawl } = await startFleet({ tools: [echo], workers: 0 });
    expect(await pawl.circuits.list()).toEqual([]);
    const [forced] = await pawl.circuits.set('force_open', { tool: 'echo' }, 'maintenance');
    expect(forced).toMatchObject({ key: 'tool:tools.echo', circuit: { state: 'FORCED_OPEN', reason: 'maintenance' } });
    expect(await pawl.circuits.list()).toHaveLength(1);
    expect((await pawl.circuits.set('reset', {}))[0]?.circuit).toEqual({ state: 'CLOSED', epoch: 2 });
    await expect(pawl.circuits.set('force_open', { tool: 'nonsense' })).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });
  });

  test('the process that forces or resets one sees the change at once, broadcast or not', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    await session.call(echo, { text: 'x' });
    for (let round = 0; round < 20; round += 1) {
      await pawl.circuits.set('force_open', { tool: 'echo' });
      const refused = await session.call(echo, { text: 'x' });
      // Refused here: there is not even a record.
      expect([refused.status, refused.callId]).toEqual(['circuit_open', undefined]);
      await pawl.circuits.set('reset', { tool: 'echo' });
      expect((await session.call(echo, { text: String(round) })).status).toBe('success');
    }
  });

  test('of a tool are not those of another one of its name', async () => {
    const { tool: other } = scripted('echo', () => ({ output: null }), { namespace: 'github' });
    const { pawl, session } = await startFleet({ tools: [echo, other] });
    const states = async () => (await pawl.circuits.list()).map(({ key, circuit }) => `${key} ${circuit.state}`).sort();
    for (const tool of ['github.echo', 'echo']) await pawl.circuits.set('force_open', { tool });
    await pawl.circuits.set('reset', { tool: 'echo' });
    expect(await states()).toEqual(['tool:github.echo FORCED_OPEN', 'tool:tools.echo CLOSED']);
    await pawl.circuits.set('reset', { tool: 'github.echo' });
    await pawl.circuits.set('force_open', { tool: 'echo' });
    expect(await states()).toEqual(['tool:github.echo CLOSED', 'tool:tools.echo FORCED_OPEN']);
    expect((await session.call('echo', {}, { namespace: 'github' })).status).toBe('success');
  });

  test('of one tenant are not those of another', async () => {
    const { pawl } = await startFleet({ tools: [echo] });
    const acme = await pawl.openSession({ tenantId: 'acme' });
    const other = await pawl.openSession({ tenantId: 'other' });
    await pawl.circuits.set('force_open', { tool: 'echo', tenantId: 'acme' });
    expect((await acme.call(echo, { text: 'x' })).status).toBe('circuit_open');
    expect((await other.call(echo, { text: 'x' })).status).toBe('success');
  });

  test('a shared one is forced open before any call went through it, in every tier, and is reported as an event', async () => {
    const paying = { circuit: { dependency: 'payments' }, effects: 'none' } as const;
    const { tool: look } = scripted('look', () => ({ output: null }), { ...paying, tier: 'read-only' });
    const { tool: pay } = scripted('pay', () => ({ output: null }), { ...paying, tier: 'workspace' });
    const { pawl, session, events } = await startFleet({ tools: [look, pay] });
    const hint = { circuitBreakerHint: 'dependency' } as const;
    const statuses = async () =>
      (await Promise.all([look, pay].map((tool) => session.call(tool, {}, hint)))).map(({ status }) => status);
    const key = 'dependency:payments';
    const forced = await pawl.circuits.set('force_open', { key }, 'down tonight');
    expect(forced.map(({ key: of, partition, circuit }) => [of, partition.tier, circuit.state])).toEqual(
      TIERS.map((tier) => [key, tier, 'FORCED_OPEN']),
    );
    expect(await statuses()).toEqual(['circuit_open', 'circuit_open']);
    expect(await pawl.circuits.set('force_open', { key })).toHaveLength(TIERS.length);
    await pawl.circuits.set('reset', { key });
    expect(await statuses()).toEqual(['success', 'success']);
    expect(
      (await pawl.circuits.set('force_open', { key: 'global@acme' })).map(({ partition }) => partition.tier),
    ).toEqual(TIERS);
    for (const unknown of ['tool:tools.nothing', 'dependency:'])
      await expect(pawl.circuits.set('force_open', { key: unknown })).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });

    const told = events
      .filter((event) => event.type === 'tool_call_circuit_state')
      .filter((event) => event.circuit === key);
    expect(told).toEqual([
      ...TIERS.map(() => ({
        type: 'tool_call_circuit_state',
        circuit: key,
        from: 'CLOSED',
        to: 'FORCED_OPEN',
        reason: 'down tonight',
      })),
      ...TIERS.map(() => ({ type: 'tool_call_circuit_state', circuit: key, from: 'FORCED_OPEN', to: 'CLOSED' })),
    ]);
  });

  test('a tool that is forced open takes no call of a tenant, and none that asks for a shared circuit, queued ones included', async () => {
    const note = scripted('note', () => ({ output: null }));
    const { pawl, session, startWorker } = await startFleet({ tools: [note.tool], workers: 0 });
    const acme = await pawl.openSession({ tenantId: 'acme' });
    const ask = (key: string) => [
      acme.call('note', {}, { idempotencyKey: key }),
      session.call('note', {}, { idempotencyKey: `${key}-global`, circuitBreakerHint: 'global' }),
    ];
    const queued = ask('before');
    await eventually(async () => (await pawl.calls.backlog()) === queued.length);
    await pawl.circuits.set('force_open', { tool: 'note' }, 'maintenance');
    expect((await Promise.all(ask('after'))).map(({ status, callId }) => [status, callId])).toEqual([
      ['circuit_open', undefined],
      ['circuit_open', undefined],
    ]);
    await startWorker();
    const refused = await Promise.all(queued);
    expect(refused.map(({ status, error }) => [status, error?.message])).toEqual([
      ['circuit_open', expect.stringContaining('maintenance')],
      ['circuit_open', expect.stringContaining('maintenance')],
    ]);
    expect(note.contexts).toHaveLength(0);
    await pawl.circuits.set('reset', { tool: 'note' });
    expect((await Promise.all(ask('again'))).map(({ status }) => status)).toEqual(['success', 'success']);
  });
});

describe('connections', () => {
  test('a closed client refuses, and closing twice is fine', async () => {
    const { session, pawl } = await startFleet({ tools: [echo], workers: 0 });
    let hasEnded = false;
    void pawl.close().then(() => {
      hasEnded = true;
    });
    await pawl.close();
    expect(hasEnded).toBe(true);
    await expect(session.call(echo, { text: 'x' })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    await expect(pawl.openSession()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  });

  test('a client and a worker end with the block that holds them (`await using`)', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const [client, ran] = [await fleet.openProducer(), await fleet.startWorker()];
    {
      await using pawl = client;
      await using _worker = ran;
      const session = await pawl.openSession();
      expect((await session.call(echo, { text: 'x' })).status).toBe('success');
    }
    await expect(client.openSession()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect((await fleet.pawl.catalogue()).workers).toEqual([]);
  });

  test('the catalogue of a session holds what it may call', async () => {
    const note = scripted('note', () => ({ output: null })).tool;
    const { session, pawl } = await startFleet({ tools: [echo, note], workers: 0 });
    const names = async (key?: string) => (await pawl.catalogue(key)).tools.map(({ name }) => name).sort();
    expect(await names()).toEqual(['echo', 'note']);
    expect(await names((await session.worker()).key)).toEqual(['echo']);
  });
});

test('an envelope is submitted with its parameters as they are then, whatever becomes of them meanwhile', async () => {
  const { tool, contexts } = scripted('keep', () => ({ output: 'kept' }));
  const ran: unknown[] = [];
  const fleet = await startFleet({
    tools: [
      {
        ...tool,
        run: (params, context) => {
          ran.push(params);
          return tool.run(params, context);
        },
      },
    ],
  });
  const envelope = fleet.session.envelope(tool, { nested: { list: [1] } });
  const handed = fleet.pawl.submit(envelope);
  (envelope.payload.params as { readonly nested: { readonly list: number[] } }).nested.list.push(2);
  expect(await pending(await handed).result).toMatchObject({ status: 'success' });
  expect(ran).toEqual([{ nested: { list: [1] } }]);
  expect(contexts).toHaveLength(1);
});
