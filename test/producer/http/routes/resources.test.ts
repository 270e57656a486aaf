import { performance } from 'node:perf_hooks';
import { describe, expect, test } from 'vitest';
import { eventually } from '../../../helpers/signal.ts';
import { startRig, testTools } from '../rig.ts';

describe('/v1/sessions', () => {
  test('opens, finds, lists and closes sessions, and cancels their calls and descendants', async () => {
    const { tools, started } = testTools();
    const { ask, call } = await startRig({ tools });
    const opened = await ask('/v1/sessions', {
      method: 'POST',
      json: { kind: 'main', actorId: 'ada', channel: { kind: 'operator' } },
    });
    expect(opened).toMatchObject({ status: 201, body: { kind: 'main', actorId: 'ada', state: 'open' } });
    const { sessionKey } = opened.body;
    expect(opened.headers.get('location')).toBe(`/v1/sessions/${sessionKey}`);
    const below = await ask('/v1/sessions', { method: 'POST', json: { kind: 'worker', parent: sessionKey } });
    expect(below).toMatchObject({ status: 201, body: { parent: sessionKey, actorId: 'ada' } });
    expect((await ask(`/v1/sessions/${sessionKey}`)).body).toEqual(opened.body);
    expect((await ask('/v1/sessions')).body.sessions).toHaveLength(2);
    const held = await call({ tool: 'hold', session: below.body.sessionKey }, { wait: 0 });
    await started.promise;
    expect(await ask(`/v1/sessions/${sessionKey}`, { method: 'DELETE' })).toMatchObject({ status: 204, text: '' });
    expect((await ask(`/v1/calls/${held.body.callId}`)).body.state).toBe('cancelled');
    await eventually(async () => (await ask(`/v1/sessions/${sessionKey}`)).body.state === 'closed');
  });

  test('an invalid session is 400 with the path, an unknown one 404', async () => {
    const { ask } = await startRig();
    const post = (json: unknown) => ask('/v1/sessions', { method: 'POST', json });
    expect(await post({ kind: 'boss' })).toMatchObject({
      status: 400,
      body: { error: { code: 'CONTRACT_INVALID', issues: [{ path: 'kind' }] } },
    });
    expect((await post({ kid: 'main' })).body.error.message).toContain('kid');
    expect((await post({ parent: 'nobody', kind: 'branch' })).body.error.code).toBe('UNKNOWN_SESSION');
    expect((await post({ sessionKey: 'one' })).status).toBe(201);
    expect((await post({ sessionKey: 'one' })).body.error.issues[0].path).toBe('sessionKey');
    for (const method of ['GET', 'DELETE'])
      expect(await ask('/v1/sessions/nobody', { method })).toMatchObject({
        status: 404,
        body: { error: { code: 'UNKNOWN_SESSION' } },
      });
  });
});

test('/v1/tools lists the tools of the fleet, and those that a session may use', async () => {
  const { ask } = await startRig(testTools());
  const { tools } = (await ask('/v1/tools')).body;
  expect(tools).toHaveLength(4);
  expect(tools.find(({ name }: { name: string }) => name === 'hold')).toEqual({
    name: 'hold',
    enabled: true,
    namespace: 'tools',
    version: '1.0.0',
    tier: 'read-only',
    effects: 'none',
    description: 'Waits until the test lets it go.',
    inputSchema: { type: 'object', properties: {}, additionalProperties: false },
    annotations: {},
    timeoutMs: 30_000,
    workers: 1,
  });
  await ask('/v1/sessions', { method: 'POST', json: { kind: 'worker', sessionKey: 'w' } });
  const allowed = (await ask('/v1/tools?session=w')).body.tools;
  expect(allowed.map(({ tier }: { tier: string }) => tier)).toEqual(['read-only', 'read-only', 'read-only']);
  expect((await ask('/v1/tools?session=nobody')).status).toBe(404);
});

test('/v1/tools?provider= gives the tools as that API takes them, with reports and names (A2, A22)', async () => {
  const { ask } = await startRig(testTools());
  await ask('/v1/sessions', { method: 'POST', json: { kind: 'worker', sessionKey: 'w' } });
  const { status, body } = await ask('/v1/tools?session=w&provider=anthropic');
  expect(status).toBe(200);
  const names = body.tools.map(({ name }: { name: string }) => name);
  expect(names).toEqual(expect.arrayContaining(['fail', 'hold']));
  expect(body.tools[0]).toMatchObject({ input_schema: { type: 'object' } });
  expect(body.names.hold).toEqual({ namespace: 'tools', name: 'hold' });
  expect(body.reports).toHaveLength(names.length);
  expect((await ask('/v1/tools?provider=openai&strict=false')).body.tools[0]).toMatchObject({ strict: false });
  expect(await ask('/v1/tools?provider=nobody')).toMatchObject({ status: 400 });
});

test('/v1/calls/{callId}/output returns the full output of a truncated result (A12)', async () => {
  const { ask, call } = await startRig({ ...testTools(), settings: { tools: { echo: { maxOutputBytes: 100 } } } });
  const text = 'long '.repeat(200);
  const { body } = await call({ tool: 'echo', params: { text }, session: 's' });
  expect(body.output.metadata.whole.href).toBe(`/v1/calls/${body.callId}/output`);
  expect(JSON.stringify(body.output.content).length).toBeLessThan(400);
  expect((await ask(body.output.metadata.whole.href)).body.content).toMatchObject({ text });
  expect((await ask(`/v1/calls/r0.${'x'.repeat(22)}/output`)).status).toBe(404);
});

describe('/debug/tool-reliability', () => {
  test('forces a circuit open and resets it (R25); an open circuit is a finished answer, in under 10 ms', async () => {
    const { ask, call } = await startRig(testTools());
    const act = (json: object) => ask('/debug/tool-reliability', { method: 'POST', json });
    const forced = await act({ action: 'force_open', tool: 'fail', reason: 'a drill' });
    expect(forced).toMatchObject({
      status: 200,
      body: { changed: [{ key: 'tool:tools.fail', state: 'FORCED_OPEN', reason: 'a drill', tier: 'read-only' }] },
    });
    const refused = await eventually(async () => {
      const answer = await call({ tool: 'fail', params: {}, session: 's' });
      return answer.body.status === 'circuit_open' ? answer : undefined;
    });
    expect(refused).toMatchObject({
      status: 200,
      body: {
        error: { code: 'CIRCUIT_OPEN', breakerState: 'FORCED_OPEN', message: 'fail takes no calls for now (a drill).' },
      },
    });
    const times: number[] = [];
    for (let index = 0; index < 200; index += 1) {
      const from = performance.now();
      await call({ tool: 'fail', params: {}, session: 's' });
      times.push(performance.now() - from);
    }
    times.sort((a, b) => a - b);
    console.log(
      `refusal of an open circuit over HTTP: median ${times[100]?.toFixed(2)} ms, p99 ${times[197]?.toFixed(2)} ms`,
    );
    // The quickest: the machine may stand still in between.
    expect(times[0]).toBeLessThan(10);

    const shown = (await ask('/debug/tool-reliability')).body;
    expect(shown.circuits).toMatchObject([{ key: 'tool:tools.fail', state: 'FORCED_OPEN', failures: 0 }]);
    expect(shown.ledger).toMatchObject({ inflight: 0, tiers: { workspace: { inflight: 0 } } });
    expect(shown.switches).toMatchObject({
      enabled: true,
      configured: true,
      operator: { tools: {} },
      openMode: 'on',
      deriveKeys: 'on',
      derivedReplay: 'same-request',
      disabledTools: [],
    });
    expect(shown.switches.tools).toContainEqual({
      tool: 'tools.fail',
      enabled: true,
      dedupe: 'on',
      retry: 'on',
      circuits: 'on',
    });
    expect(shown.circuits).toMatchObject([{ enforcement: 'enforced' }]);
    expect((await act({ action: 'reset', key: 'tool:tools.fail' })).body.changed).toMatchObject([{ state: 'CLOSED' }]);
    await eventually(async () => (await call({ tool: 'fail', session: 's' })).body.status === 'error');
  });

  test('a circuit of one tenant is forced open for that tenant', async () => {
    const { ask } = await startRig(testTools());
    const forced = await ask('/debug/tool-reliability', {
      method: 'POST',
      json: { action: 'force_open', tool: 'acme.far.echo', context: 'acme' },
    });
    expect(forced.body.circuits).toMatchObject([{ key: 'tool:acme.far.echo@acme', state: 'FORCED_OPEN' }]);
  });

  test('flush removes and counts finished calls of a session, a tool or all, and never calls in flight (R25, R34)', async () => {
    const { ask, call } = await startRig(testTools());
    const act = async (json: object) => (await ask('/debug/tool-reliability', { method: 'POST', json })).body;
    const echo = async (session: string, key: string) =>
      (await call({ tool: 'echo', params: { text: key }, session, idempotencyKey: key })).body.fromCache;
    for (const session of ['s', 't']) for (const key of ['one', 'two']) await echo(session, key);
    await call({ tool: 'fail', session: 's' });
    const held = await call({ tool: 'hold', session: 's' }, { wait: 0 });
    expect(held.status).toBe(202);

    expect(await act({ action: 'flush', session: 't' })).toMatchObject({ flushed: 2, inflight: 0 });
    expect(await echo('t', 'one')).toBe(false);
    expect(await echo('s', 'one')).toBe(true);
    expect(await act({ action: 'flush', tool: 'echo' })).toMatchObject({ flushed: 3, inflight: 0 });
    expect(await echo('s', 'one')).toBe(false);
    expect(await act({ action: 'flush' })).toMatchObject({
      flushed: 2,
      inflight: 1,
      ledger: { inflight: 1, calls: 1 },
    });
    expect((await ask(`/v1/calls/${held.body.callId}`)).body.state).toBe('inflight');
  });

  test('disable and enable: for a tool, or for all (R33); every response has the new state', async () => {
    const { ask } = await startRig(testTools());
    const act = async (json: object) => (await ask('/debug/tool-reliability', { method: 'POST', json })).body.switches;
    const disabled = await act({ action: 'disable', tool: 'fail', reason: 'a drill' });
    expect(disabled).toMatchObject({
      enabled: true,
      operator: { tools: { 'tools.fail': { enabled: false, reason: 'a drill' } } },
    });
    expect(disabled.tools).toContainEqual({
      tool: 'tools.fail',
      enabled: false,
      dedupe: 'off',
      retry: 'off',
      circuits: 'off',
    });
    expect(await act({ action: 'disable' })).toMatchObject({ enabled: false, operator: { tools: {} } });
    expect((await act({ action: 'enable' })).tools.every(({ enabled }: { enabled: boolean }) => enabled)).toBe(true);
  });

  test('an impossible or unknown request is 400 or 404, with the possible ones', async () => {
    const { ask, call } = await startRig(testTools());
    const act = (json: object) => ask('/debug/tool-reliability', { method: 'POST', json });
    for (const action of ['explode', 7, undefined])
      expect(await act({ action, tool: 'fail' }), String(action)).toMatchObject({
        status: 400,
        body: { error: { message: expect.stringContaining('force_open, reset'), issues: [{ path: 'action' }] } },
      });
    expect((await act({ action: 'force_open' })).body.error.issues[0].path).toBe('tool');
    expect((await act({ action: 'disable', key: 'tool:x' })).body.error.issues[0].path).toBe('key');
    expect((await act({ action: 'reset', session: 's' })).body.error.issues[0].path).toBe('session');
    const { callId } = (await call({ tool: 'echo', params: { text: 'one' }, session: 's' })).body;
    expect((await act({ action: 'reset', callId })).body.error.issues[0].path).toBe('callId');
    expect((await act({ action: 'flush', callId, session: 's' })).body.error.issues[0].path).toBe('callId');
    expect((await act({ action: 'flush', callId })).body).toMatchObject({ flushed: 1 });
    expect((await act({ action: 'flush', callId })).status).toBe(404);
    for (const action of ['force_open', 'disable', 'flush'])
      expect((await act({ action, tool: 'nothing' })).status, action).toBe(404);
    expect((await act({ action: 'force_open', tool: 'nothing', context: 'acme' })).status).toBe(404);
  });
});
