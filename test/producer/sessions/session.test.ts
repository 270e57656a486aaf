import { getEventListeners } from 'node:events';
import { describe, expect, test, vi } from 'vitest';
import type { CallOptions } from '../../../src/producer/calls/call-envelope.ts';
import type { Session } from '../../../src/producer/sessions/session.ts';
import { parseEnvelope } from '../../../src/shared/calls/envelope.ts';
import type { OpenSession } from '../../../src/shared/sessions/session.ts';
import { contentOf, keysOfCalls, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../../helpers/tools.ts';

describe('the envelope of a session’s call (R1 to R6)', () => {
  test('says that no tool came, such as a name that a module does not export', async () => {
    const { session } = await startFleet({ tools: [echo], workers: 0 });
    const { error } = await session.call(undefined as never, {} as never);
    const message = 'The tool must be what defineTool returns, or a name; got undefined.';
    expect(error).toMatchObject({ code: 'CONTRACT_INVALID', message, issues: [{ path: 'tool' }] });
  });

  test('follows the contract with nothing said, and carries all that is said', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], workers: 0 });
    expect(parseEnvelope(session.envelope('echo', { text: 'x' }))).toMatchObject({
      contractVersion: '1.1',
      toolName: 'echo',
      toolNamespace: 'tools',
      target: { sessionKey: session.key, actorId: 'ada' },
      payload: { version: '1.0', params: { text: 'x' } },
      // What the caller does not name bounds nothing: tool and operator decide.
      transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 100, maxElapsedMs: 86_400_000 } },
      control: {},
      trace: {},
    });
    const tenant = await pawl.openSession({ actorId: 'ada', agentId: 'agent', tenantId: 'acme' });
    const options: CallOptions = {
      idempotencyKey: 'k',
      deadlineAtMs: 5_000_000_000_000,
      timeoutMs: 70,
      dedupeMode: 'bestEffort',
      toolCallId: 'call_7',
      retryBudget: { maxAttempts: 2 },
      circuitBreakerHint: 'dependency',
      expectedRetrySafe: true,
      correlationId: 'c',
      turnId: '7',
      requestTags: ['importance:background', 'taint:mail'],
      safetyCritical: false,
      traceparent: '00-1',
      baggage: { user: 'ada' },
      namespace: 'other',
    };
    expect(parseEnvelope(tenant.envelope('echo', {}, options))).toMatchObject({
      toolCallId: 'call_7',
      toolNamespace: 'other',
      target: { agentId: 'agent', tenantId: 'acme', correlationId: 'c' },
      payload: { idempotencyKey: 'k', callHints: { timeoutMs: 70, expectedRetrySafe: true, safetyCritical: false } },
      transport: {
        dedupeMode: 'bestEffort',
        retryBudget: { maxAttempts: 2, maxElapsedMs: 86_400_000 },
        circuitBreakerHint: 'dependency',
      },
      control: {
        deadlineAtMs: 5_000_000_000_000,
        requestTags: ['turn:7', 'importance:background', 'taint:mail'],
      },
      trace: { traceparent: '00-1', baggage: { user: 'ada' } },
    });
  });

  test('what a call says of itself reaches policy, its tool and the queue', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: 'noted' }));
    const settings = { policy: { global: { taint: 'deny' as const } } };
    const { session } = await startFleet({ tools: [tool], settings });
    const denied = await session.call(tool, {}, { requestTags: ['taint:mail'] });
    expect(denied.error).toMatchObject({ code: 'PERMISSION_DENIED', message: expect.stringContaining('mail') });
    const said = { baggage: { user: 'ada' }, turnId: '7', safetyCritical: true };
    expect(contentOf(await session.call(tool, {}, said))).toBe('noted');
    expect(contexts[0]?.values.get('user')).toBe('ada');
    expect(contexts[0]?.turnId).toBe('7');
  });

  test('parameters are those that were given, whatever their caller makes of the same object for the next call', async () => {
    const { tool } = scripted('page', (_ctx, params) => ({ output: params }));
    const { session } = await startFleet({ tools: [tool] });
    const params = JSON.parse('{"page":0,"filter":{"tags":[{"name":0}],"__proto__":{"deep":0}},"at":null}');
    const given: string[] = [];
    const calls = [1, 2, 3].map((page) => {
      params.page = page;
      params.filter.tags[0].name = page;
      params.at = new Date(page);
      given.push(JSON.stringify(params));
      return session.call(tool, params);
    });
    expect((await Promise.all(calls)).map((result) => JSON.stringify(contentOf(result)))).toEqual(given);
  });

  test.each<[string, CallOptions]>([
    ['payload.idempotencyKey', { idempotencyKey: '' }],
    ['payload.idempotencyKey', { idempotencyKey: 'x'.repeat(1_025) }],
    ['requestId', { requestId: 'nonsense' }],
    ['toolCallId', { toolCallId: '' }],
    ['payload.callHints.timeoutMs', { timeoutMs: -1 }],
    ['transport.retryBudget.maxAttempts', { retryBudget: { maxAttempts: 0 } }],
    ['transport.dedupeMode', { dedupeMode: 'maybe' as never }],
    ['toolNamespace', { namespace: '' }],
    ['control.requestTags.0', { requestTags: ['x'.repeat(129)] }],
    ['trace.baggage.user', { baggage: { user: 7 as never } }],
    // A key under another name would be no key at all.
    ['options.idempotencykey', { idempotencykey: 'k' } as CallOptions],
  ])('TR-1: a wrong option is told as %s, and nothing is written', async (path, options) => {
    const { session, world } = await startFleet({ tools: [echo], workers: 0 });
    const { status, error } = await session.call('echo', { text: 'x' }, options);
    expect({ status, code: error?.code }).toEqual({ status: 'error', code: 'CONTRACT_INVALID' });
    expect(error?.issues?.map((issue) => issue.path)).toContain(path);
    expect(await keysOfCalls(world)).toEqual([]);
  });

  test('TR-1: what is wrong is also found behind a call of the same tool that was right', async () => {
    const { session } = await startFleet({ tools: [echo] });
    await session.call('echo', { text: 'x' }, { idempotencyKey: 'right' });
    for (const [path, options] of [
      ['payload.idempotencyKey', { idempotencyKey: '' }],
      ['payload.idempotencyKey', { idempotencyKey: 'é'.repeat(513) }],
      ['payload.idempotencyKey', { idempotencyKey: 7 as never }],
      ['requestId', { requestId: 'nonsense' }],
      ['toolNamespace', { namespace: '' }],
    ] as const) {
      const { error } = await session.call('echo', { text: 'x' }, options);
      expect([error?.code, error?.issues?.map((issue) => issue.path)]).toEqual(['CONTRACT_INVALID', [path]]);
    }
  });

  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  test.each<[string, unknown]>([
    ['a cycle', cycle],
    ['a BigInt', { text: 1n }],
    ['a number that JSON has not', { text: Number.NaN }],
    ['a list', ['x']],
    ['a text', 'x'],
    ['nothing', undefined],
    ['null', null],
    ['five megabytes', { text: 'x'.repeat(5_000_000) }],
  ])('parameters that are %s are a typed error', async (_what, params) => {
    const { session, world } = await startFleet({ tools: [echo], workers: 0 });
    const { error } = await session.call('echo', params as Record<string, unknown>);
    expect(['CONTRACT_INVALID', 'INVALID_PARAMS']).toContain(error?.code);
    expect(await keysOfCalls(world)).toEqual([]);
  });
});

describe('what a session hears', () => {
  test('queued, retrying, progress and settled, each with the call’s name', async () => {
    const { tool } = scripted('flaky', (ctx) => {
      ctx.progress({ progress: ctx.attempt, total: 2, message: 'half' });
      if (ctx.attempt === 1) throw httpError(503);
      return { output: 'up' };
    });
    const { session } = await startFleet({ tools: [tool] });
    const heard: [string, object][] = [];
    for (const name of ['queued', 'retrying', 'progress', 'settled'] as const)
      session.events.on(name, (event: object) => heard.push([name, event]));
    const { callId } = await session.call(tool, {});
    await eventually(() => heard.filter(([name]) => name === 'progress').length > 0);
    expect(heard.map(([name]) => name)).toEqual(expect.arrayContaining(['queued', 'retrying', 'progress', 'settled']));
    for (const [, event] of heard) expect(event).toMatchObject({ callId });
    expect(heard.find(([name]) => name === 'retrying')?.[1]).toMatchObject({
      attempt: 1,
      reasonCode: 'HTTP_503',
      delayMs: 0,
    });
  });

  test('progress, of whose messages the beginning is emitted and kept, however long they are', async () => {
    const { tool } = scripted('chatty', (ctx) => {
      ctx.progress({ progress: 1, message: 'x'.repeat(1_000_000) });
      return { output: null };
    });
    const { pawl, session } = await startFleet({ tools: [tool] });
    const told: (string | undefined)[] = [];
    session.events.on('progress', ({ message }) => told.push(message));
    const { callId = '' } = await session.call(tool, {});
    const shown = `${'x'.repeat(2_000)}… [998000 more characters]`;
    await eventually(() => told.length > 0);
    expect(told).toEqual([shown]);
    const kept = await pawl.backend.ledger.progress(callId);
    expect(kept.map(({ event }) => event.message)).toEqual([shown]);
  });

  test('circuit-open', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const heard: object[] = [];
    session.events.on('circuit-open', (event) => heard.push(event));
    await pawl.circuits.set('force_open', { tool: 'echo' });
    await session.call(echo, { text: 'x' });
    expect(heard).toMatchObject([{ toolName: 'echo', retryAfterMs: expect.any(Number) }]);
  });
});

describe('aborting', () => {
  test('before the submission answers the call, and submits nothing', async () => {
    const { session, world } = await startFleet({ tools: [echo], workers: 0 });
    const settled: unknown[] = [];
    session.events.on('settled', (result) => settled.push(result));
    const options = { signal: AbortSignal.abort(), requestId: '01890a5d-ac96-774b-bcce-b302099a8057' };
    const result = await session.call(echo, { text: 'x' }, options);
    expect(result).toMatchObject({
      requestId: options.requestId,
      toolName: 'echo',
      status: 'error',
      attempts: 0,
      error: { code: 'CANCELLED' },
    });
    expect(settled).toEqual([result]);
    expect(await keysOfCalls(world)).toEqual([]);
    const { kind } = await session.submit(echo, { text: 'x' }, { signal: AbortSignal.abort() });
    expect(kind).toBe('answered');
  });

  test('cancels the running call, and one that is aborted during its submission', async () => {
    const gate = gated();
    const { session } = await startFleet({ tools: [gate.tool] });
    const aborter = new AbortController();
    const running = session.call(gate.tool, {}, { signal: aborter.signal, idempotencyKey: 'one' });
    await gate.arrived();
    aborter.abort();
    expect(await running).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
    const later = new AbortController();
    const aborted = session.call(gate.tool, {}, { signal: later.signal, idempotencyKey: 'two' });
    later.abort();
    expect(await aborted).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
  });

  test('with what is no signal is refused, and hands nothing in; null is none', async () => {
    const { session, world } = await startFleet({ tools: [echo], workers: 0 });
    const call = (signal: unknown) => session.submit(echo, { text: 'x' }, { signal } as CallOptions);
    for (const signal of ['stop', 5_000, { aborted: false }])
      expect((await call(signal)).result).toMatchObject({
        error: { code: 'CONTRACT_INVALID', issues: [{ path: 'options.signal' }] },
      });
    expect(await keysOfCalls(world)).toEqual([]);
    expect((await call(null)).kind).toBe('pending');
  });

  test('a signal that outlives its calls does not collect them', async () => {
    const { session } = await startFleet({ tools: [echo] });
    const { signal } = new AbortController();
    for (let index = 0; index < 5; index += 1) await session.call(echo, { text: 'x' }, { signal, idempotencyKey: 'k' });
    await session.call('nonsense', {}, { signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

test('a call of no tool is refused as one that breaks the contract', async () => {
  const { session } = await startFleet({ tools: [echo], workers: 0 });
  for (const tool of [undefined, null, 5, {}] as unknown as string[])
    expect(await session.call(tool, {})).toMatchObject({ status: 'error', error: { code: 'CONTRACT_INVALID' } });
});

describe('the tree of sessions', () => {
  test('a branch is its parent’s equal, a worker only reads, and a worker opens nothing but workers', async () => {
    const note = scripted('note', () => ({ output: 'noted' })).tool;
    const { session } = await startFleet({ tools: [echo, note] });
    const branch = await session.branch();
    const worker = await session.worker();
    expect(branch.record).toMatchObject({ kind: 'branch', parent: session.key, actorId: 'ada' });
    expect(contentOf(await branch.call(note, {}))).toBe('noted');
    expect(contentOf(await worker.call(echo, { text: 'x' }))).toEqual({ text: 'x' });
    expect((await worker.call(note, {})).error?.code).toBe('PERMISSION_DENIED');
    await expect(worker.branch()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    expect((await worker.worker()).record.parent).toBe(worker.key);
  });

  test('a session below another is of its tenant, also when the tenant is left open', async () => {
    const { pawl } = await startFleet({ tools: [echo] });
    const { key: parent } = await pawl.openSession({ tenantId: 'one' });
    const open = (tenantId: string | undefined) =>
      pawl.openSession({ parent, kind: 'branch', tenantId } as OpenSession);
    expect((await open(undefined)).record.tenantId).toBe('one');
    await expect(open('other')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test('closing closes what is below, and cancels what runs there', async () => {
    const gate = gated();
    const { session, pawl } = await startFleet({ tools: [gate.tool] });
    const branch = await session.branch();
    const running = pending(await branch.submit(gate.tool, {}));
    await gate.arrived();
    await session.close();
    expect((await running.result).error?.code).toBe('CANCELLED');
    expect((await branch.call(gate.tool, {})).error?.code).toBe('SESSION_CLOSED');
    await expect(pawl.sessions.close('nobody')).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
  });

  test('closing leaves a call alone that all sessions share: who joined it gets its result', async () => {
    const gate = gated('page', { effects: 'none', tier: 'read-only' });
    const settings = { tools: { page: { scope: 'global' } } } as const;
    const { session, pawl } = await startFleet({ tools: [gate.tool], settings });
    const first = pending(await session.submit(gate.tool, {}, { idempotencyKey: 'the same page' }));
    const own = pending(await session.submit(gate.tool, {}, { idempotencyKey: 'own', dedupeMode: 'disabled' }));
    await gate.arrived();
    const other = await pawl.openSession({ actorId: 'bob' });
    const joined = pending(await other.submit(gate.tool, {}, { idempotencyKey: 'the same page' }));
    expect(joined.callId).toBe(first.callId);
    await session.close();
    expect((await own.result).error?.code).toBe('CANCELLED');
    gate.open();
    expect((await joined.result).status).toBe('success');
  });

  test('closing cancels a call, too, that is in flight for longer than outcomes are kept', async () => {
    const gate = gated();
    const { session, pawl } = await startFleet({
      tools: [gate.tool],
      settings: { ttl: { doneMs: 1, failedMs: 1, cancelledMs: 1 } },
    });
    const call = session.call(gate.tool, {});
    await gate.arrived();
    const { ledger, redis } = pawl.backend;
    const index = ledger.keys({ tier: 'workspace', shard: 0 }).sessionCalls(session.key);
    await eventually(async () => (await redis.exists(index)) === 0, { what: "the end of the session's index" });
    await session.close();
    expect((await call).error?.code).toBe('CANCELLED');
  });

  test('nothing is opened below a closed session, and what is opened there while it closes is closed with it', async () => {
    const { session, pawl, openProducer } = await startFleet({ tools: [echo] });
    const other = await openProducer();
    const elsewhere = async (key: string) => (await other.session(key)).branch();
    // In the middle of the closing, and of the opening.
    const early = vi.spyOn(pawl.backend.sessions, 'close');
    const opened = new Promise<Session>((resolve) => {
      early.mockImplementationOnce(async (key) => {
        resolve(await elsewhere(session.key));
        return pawl.backend.sessions.close(key);
      });
    });
    await session.close();
    expect((await (await opened).call(echo, { text: 'x' })).error?.code).toBe('SESSION_CLOSED');

    const parent = await pawl.openSession();
    const { sessions } = other.backend;
    const create = sessions.create.bind(sessions);
    const late = vi.spyOn(sessions, 'create').mockImplementationOnce(async (...args) => {
      await parent.close();
      return create(...args);
    });
    await expect(elsewhere(parent.key)).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
    const [created] = late.mock.calls;
    expect((await pawl.session(created?.[0].sessionKey ?? '')).record.state).toBe('closed');
    await expect(parent.branch()).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
  });
});
