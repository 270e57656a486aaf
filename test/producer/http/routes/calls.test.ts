import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Hook } from '../../../../src/shared/calls/define-hook.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { uuidv7 } from '../../../../src/shared/util/time.ts';
import { startScript } from '../../../helpers/process.ts';
import { eventually, within } from '../../../helpers/signal.ts';
import { startRig, startTestWorker, testTools } from '../rig.ts';

const envelope = (toolName: string, params: object, more: { sessionKey?: string; idempotencyKey?: string } = {}) => ({
  contractVersion: '1.1',
  requestId: uuidv7(),
  toolName,
  toolNamespace: 'tools',
  target: { sessionKey: more.sessionKey ?? 's', actorId: 'ada' },
  payload: {
    version: '1.0',
    params,
    ...(more.idempotencyKey === undefined ? {} : { idempotencyKey: more.idempotencyKey }),
  },
  transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 4, maxElapsedMs: 30_000 } },
  control: {},
  trace: {},
});

describe('POST /v1/calls', () => {
  test('answers 403 where a hook that guards the call fails', async () => {
    const guard: Hook = { name: 'guard', beforeCall: () => Promise.reject(new Error('broken')) };
    const { call, logged } = await startRig({ ...testTools(), hooks: [guard] });
    const { status, body } = await call({ tool: 'echo', session: 's', params: { text: 'x' } });
    expect({ status, code: body.error.code }).toEqual({ status: 403, code: 'HOOK_FAILED' });
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('answers 200 with the result envelope, for an envelope and for the short form', async () => {
    const { call } = await startRig(testTools());
    const long = envelope('echo', { text: 'one' });
    const first = await call(long);
    expect(first).toMatchObject({
      status: 200,
      body: {
        requestId: long.requestId,
        status: 'success',
        fromCache: false,
        toolName: 'echo',
        attempts: 1,
        output: { content: { text: 'one', run: 1 } },
      },
    });
    expect(first.body.callId).toMatch(/^w0\./);
    const short = await call({ tool: 'echo', params: { text: 'two' }, session: 'never-opened' });
    expect(short).toMatchObject({ status: 200, body: { output: { content: { text: 'two' } } } });
    const named = await call({ tool: 'acme.far.echo', params: { text: 'x' }, session: 's' });
    expect(named.body.output.content).toBe('far x');
    const spaced = await call({ tool: 'echo', namespace: 'acme.far', params: { text: 'y' }, session: 's' });
    expect(spaced.body.output.content).toBe('far y');
    const failed = await call({ tool: 'fail', params: {}, session: 's' });
    expect(failed).toMatchObject({ status: 200, body: { status: 'error', error: { code: 'NOT_FOUND' } } });
  });

  test('explains what is wrong with an invalid session key', async () => {
    const { call } = await startRig(testTools());
    const refused = await call({ tool: 'echo', params: { text: 'one' }, session: 'half a character \ud800' });
    expect(refused).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
  });

  test('replays a finished call to a caller that uses its key again (TR-3)', async () => {
    const { tools, runs } = testTools();
    const { call } = await startRig({ tools });
    const body = { tool: 'echo', params: { text: 'once' }, session: 's', idempotencyKey: 'k' };
    const first = await call(body);
    const again = await call(body);
    expect(again).toMatchObject({ status: 200, body: { fromCache: true, cache: { matchedOn: 'completed' } } });
    expect(again.body.callId).toBe(first.body.callId);
    expect(again.body.output).toEqual(first.body.output);
    expect(runs()).toBe(1);
  });

  test('refuses a key that was used with other parameters with 422 IDEMPOTENCY_CONFLICT (TR-4)', async () => {
    const { call } = await startRig(testTools());
    const body = { tool: 'echo', session: 's', idempotencyKey: 'k' };
    const first = await call({ ...body, params: { text: 'one' } });
    const other = await call({ ...body, params: { text: 'two' } });
    expect(other).toMatchObject({
      status: 422,
      body: { error: { code: 'IDEMPOTENCY_CONFLICT', callId: first.body.callId } },
    });
  });

  test('answers 202 when the wait runs out, at once for 0, and the call is found by its ID', async () => {
    const { tools, release, started } = testTools();
    const { call, ask } = await startRig({ tools });
    const early = await call({ tool: 'hold', session: 's', idempotencyKey: 'k' }, { wait: 0 });
    expect(early.status).toBe(202);
    expect(early.body).toMatchObject({ state: 'inflight', requestId: expect.any(String) });
    expect(['queued', 'running']).toContain(early.body.phase);
    expect(early.headers.get('location')).toBe(`/v1/calls/${early.body.callId}`);
    await within(started.promise, 30_000, 'the tool');
    const attached = await call({ tool: 'hold', session: 's', idempotencyKey: 'k' }, { wait: 50 });
    expect(attached).toMatchObject({ status: 202, body: { callId: early.body.callId, phase: 'running' } });
    release.fire();
    const done = await eventually(async () => {
      const { status, body } = await ask(`/v1/calls/${early.body.callId}`);
      expect(status).toBe(200);
      return body.state === 'done' ? body : undefined;
    });
    expect(done).toMatchObject({
      callId: early.body.callId,
      tool: 'hold',
      session: 's',
      attempts: [{ attempt: 1, status: 'success' }],
      createdAtMs: expect.any(Number),
      result: { status: 'success', output: { content: 'held' }, callId: early.body.callId },
    });
    expect(done.phase).toBe('done');
  });

  test('refuses a best-effort caller with 409 IN_FLIGHT while the call runs', async () => {
    const { tools, release } = testTools();
    const { call } = await startRig({ tools });
    const body = { tool: 'hold', session: 's', idempotencyKey: 'k' };
    const first = await call(body, { wait: 0 });
    const second = await call({ ...body, dedupeMode: 'bestEffort' });
    expect(second).toMatchObject({ status: 409, body: { error: { code: 'IN_FLIGHT', callId: first.body.callId } } });
    release.fire();
    expect((await call(body)).body.output.content).toBe('held');
  });

  test('a client that goes away ends its waiting, not the call', async () => {
    const { tools, release, started } = testTools();
    const { call, pawl } = await startRig({ tools });
    const gone = new AbortController();
    const body = { tool: 'hold', session: 's', idempotencyKey: 'k' };
    const waiting = call(body, { signal: gone.signal });
    await within(started.promise, 30_000, 'the tool');
    gone.abort();
    await expect(waiting).rejects.toThrow();
    const [record] = await pawl.calls.list();
    expect(record?.state).toBe('inflight');
    release.fire();
    expect((await call(body)).body).toMatchObject({ status: 'success', output: { content: 'held' } });
  });

  test('refuses an invalid call with 400 CONTRACT_INVALID and the path of each fault (TR-1)', async () => {
    const { call, pawl } = await startRig(testTools());
    const bad = envelope('echo', { text: 'x' });
    const faults = async (body: unknown) => {
      const answer = await call(body);
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
      return answer.body.error.issues.map(({ path }: { path: string }) => path);
    };
    expect(await faults({ ...bad, requestId: '4', target: { actorId: 'a' } })).toEqual([
      'requestId',
      'target.sessionKey',
    ]);
    expect(await faults({ ...bad, contractVersion: '1.0' })).toEqual(['contractVersion']);
    expect(await faults({ ...bad, payload: { ...bad.payload, idempotencyKey: '' } })).toEqual([
      'payload.idempotencyKey',
    ]);
    expect(await faults({})).toEqual(['tool', 'session']);
    expect(await faults({ tool: 'echo', session: 's', params: { text: 'x' }, idempotencyKey: '' })).toEqual([
      'idempotencyKey',
    ]);
    expect(await faults([])).toEqual(['']);
    expect(await pawl.calls.list()).toEqual([]);
  });

  test('accepts null for an optional field, as models send it, as if it were absent', async () => {
    const seen: unknown[] = [];
    const look = defineTool({
      name: 'look',
      version: '1.0.0',
      description: 'Reads a part.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.object({ path: z.string(), offset: z.number().optional(), mark: z.string().nullable().optional() }),
      run(params) {
        seen.push(params);
        return { output: params };
      },
    });
    const { ask, call } = await startRig({ tools: [look] });
    const { body: shown } = await ask('/v1/tools?provider=openai');
    expect(shown.tools[0].parameters.required).toEqual(['path', 'offset', 'mark']);
    const given = { path: 'a', offset: null, mark: null };
    const short = await call({ tool: 'look', params: given, session: 's', idempotencyKey: 'k' });
    expect(short).toMatchObject({ status: 200, body: { output: { content: { path: 'a', mark: null } } } });
    const without = await call({ tool: 'look', params: { path: 'a', mark: null }, session: 's', idempotencyKey: 'k' });
    expect(without).toMatchObject({ status: 200, body: { callId: short.body.callId, fromCache: true } });
    const other = await call({ tool: 'look', params: { path: 'a', offset: null }, session: 's', idempotencyKey: 'k' });
    expect(other.status).toBe(422);
    expect((await call(envelope('look', given))).status).toBe(200);
    expect(seen).toEqual([
      { path: 'a', mark: null },
      { path: 'a', mark: null },
    ]);
    const wrong = await call({ tool: 'look', params: { path: null, offset: null }, session: 's' });
    expect(wrong).toMatchObject({ status: 400, body: { error: { code: 'INVALID_PARAMS' } } });
    expect(wrong.body.error.issues.map(({ path }: { path: string }) => path)).toEqual(['path', 'offset']);
  });

  test('refuses parameters with 400 INVALID_PARAMS, an unknown tool with 404 and the nearest names', async () => {
    const { call } = await startRig(testTools());
    const params = await call({ tool: 'echo', params: { txt: 'x' }, session: 's' });
    expect(params).toMatchObject({ status: 400, body: { error: { code: 'INVALID_PARAMS' } } });
    expect(params.body.error.issues.map(({ path }: { path: string }) => path)).toContain('text');
    const unknown = await call({ tool: 'ecko', params: {}, session: 's' });
    expect(unknown).toMatchObject({ status: 404, body: { error: { code: 'UNKNOWN_TOOL' } } });
    expect(unknown.body.error.suggestions).toContain('echo');
  });

  test('refuses a closed session with 409, and a tool that the session may not use with 403', async () => {
    const { call, ask } = await startRig(testTools());
    const worker = await ask('/v1/sessions', { method: 'POST', json: { kind: 'worker' } });
    const session = worker.body.sessionKey;
    const denied = await call({ tool: 'echo', params: { text: 'x' }, session });
    expect(denied).toMatchObject({ status: 403, body: { error: { code: 'PERMISSION_DENIED' } } });
    expect((await ask(`/v1/sessions/${session}`, { method: 'DELETE' })).status).toBe(204);
    const closed = await eventually(async () => {
      const answer = await call({ tool: 'fail', params: {}, session });
      return answer.status === 409 ? answer : undefined;
    });
    expect(closed.body.error.code).toBe('SESSION_CLOSED');
  });

  test.each(['-1', 'soon', '1.5', '', '1&wait=2'])('refuses wait=%s with 400 and the path', async (wait) => {
    const { call } = await startRig();
    const answer = await call({ tool: 'echo', params: {}, session: 's' }, { wait });
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
    expect(answer.body.error.issues[0].path).toBe('wait');
  });
});

describe('the other routes of a call', () => {
  test('DELETE of a running or a finished call answers with its settlement', async () => {
    const { tools, started } = testTools();
    const { call, ask } = await startRig({ tools });
    const { body } = await call({ tool: 'hold', session: 's' }, { wait: 0 });
    await within(started.promise, 30_000, 'the tool');
    const cancelled = await ask(`/v1/calls/${body.callId}`, { method: 'DELETE' });
    expect(cancelled).toMatchObject({
      status: 200,
      body: { settlement: 'cancelled', result: { status: 'error', error: { code: 'CANCELLED' } } },
    });
    const late = await ask(`/v1/calls/${body.callId}`, { method: 'DELETE' });
    expect(late).toMatchObject({ status: 200, body: { settlement: 'too-late' } });
    expect((await ask(`/v1/calls/${body.callId}`)).body).toMatchObject({
      state: 'cancelled',
      settlement: 'cancelled',
    });
  });

  test('GET lists calls, the newest first, by session and up to a limit, without their results', async () => {
    const { call, ask } = await startRig(testTools());
    for (const [session, text] of [
      ['a', '1'],
      ['b', '2'],
      ['a', '3'],
    ])
      await call({ tool: 'echo', params: { text }, session });
    const all = await ask('/v1/calls');
    expect(all.status).toBe(200);
    expect(all.body.calls.map(({ session }: { session: string }) => session)).toEqual(['a', 'b', 'a']);
    expect(all.body.calls[0]).toMatchObject({ tool: 'echo', state: 'done', status: 'success', attempts: [{}] });
    expect(all.body.calls[0].result).toBeUndefined();
    expect((await ask('/v1/calls?session=a')).body.calls).toHaveLength(2);
    expect((await ask('/v1/calls?limit=1')).body.calls).toHaveLength(1);
    expect((await ask('/v1/calls?session=nobody')).status).toBe(404);
    expect((await ask('/v1/calls?limit=many')).status).toBe(400);
    expect((await ask('/v1/calls?limmit=1')).body.error.message).toContain('limmit');
  });

  test('a call that is not there is 404 UNKNOWN_CALL in every method', async () => {
    const { ask } = await startRig();
    const absent = `r0.${'x'.repeat(22)}`;
    for (const callId of [absent, 'nonsense', '%00', '..%2F..', 'e'.repeat(4_000)]) {
      for (const [method, path, json] of [
        ['GET', `/v1/calls/${callId}`, undefined],
        ['DELETE', `/v1/calls/${callId}`, undefined],
        ['POST', `/v1/calls/${callId}/resolution`, { as: 'failed' }],
      ] as const)
        expect(await ask(path, { method, json })).toMatchObject({
          status: 404,
          body: { error: { code: 'UNKNOWN_CALL' } },
        });
    }
  });

  test('a resolution of a call whose outcome is known is 409 CALL_NOT_RESOLVABLE; a malformed one is 400', async () => {
    const { call, ask } = await startRig(testTools());
    const { body } = await call({ tool: 'echo', params: { text: 'x' }, session: 's' });
    const path = `/v1/calls/${body.callId}/resolution`;
    expect(await ask(path, { method: 'POST', json: { as: 'succeeded', output: 1 } })).toMatchObject({
      status: 409,
      body: { error: { code: 'CALL_NOT_RESOLVABLE' } },
    });
    expect(await ask(path, { method: 'POST', json: { as: 'maybe' } })).toMatchObject({
      status: 400,
      body: { error: { code: 'CONTRACT_INVALID', issues: [{ path: 'as' }] } },
    });
  });

  test('a resolution settles a call whose worker was killed in the middle of it', async () => {
    const short = { lockDurationMs: 500, stalledIntervalMs: 200 };
    const { call, ask, world, settings } = await startRig({ settings: short });
    const worker = startScript(new URL('../fixtures/dying-worker.ts', import.meta.url), [], {
      env: {
        REDIS_URL: world.redisUrl,
        PAWL_PREFIX: world.prefix,
        // Long enough for the call to begin on a machine that is busy; else it is lost before its tool runs.
        PAWL_LOCK_DURATION_MS: '3000',
        PAWL_STALLED_INTERVAL_MS: '200',
      },
    });
    await worker.line('ready');
    const { body } = await eventually(async () => {
      const answer = await call({ tool: 'pay', session: 's', idempotencyKey: 'k' }, { wait: 0 });
      return answer.status === 202 ? answer : undefined;
    });
    await worker.line('running');
    await worker.kill();
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Pays, once.',
      tier: 'workspace',
      effects: 'once',
      input: z.object({}),
      run: () => ({ output: 'paid twice' }),
    });
    await startTestWorker(settings, [pay], silentLogger);
    const path = `/v1/calls/${body.callId}`;
    const unknown = await eventually(async () => {
      const answer = await ask(path);
      return answer.body.state === 'failed' ? answer.body : undefined;
    });
    expect(unknown).toMatchObject({ errorCode: 'OUTCOME_UNKNOWN', result: { error: { code: 'OUTCOME_UNKNOWN' } } });
    const resolved = await ask(`${path}/resolution`, {
      method: 'POST',
      json: { as: 'succeeded', output: { receipt: 7 } },
    });
    expect(resolved).toMatchObject({
      status: 200,
      body: { state: 'done', result: { status: 'success', output: { content: { receipt: 7 } } } },
    });
    const again = await call({ tool: 'pay', session: 's', idempotencyKey: 'k' });
    expect(again.body).toMatchObject({ fromCache: true, output: { content: { receipt: 7 } } });
  });
});

test('POST /v1/calls/{callId}/compensation undoes a call once, for callers that may see it (I18)', async () => {
  const undone: string[] = [];
  const add = defineTool({
    name: 'add',
    version: '1.0.0',
    description: 'Adds a line.',
    tier: 'workspace',
    input: z.object({ line: z.string() }),
    run: ({ line }) => ({ output: { line } }),
    compensate: async (_params, { output }) => void undone.push(output.line),
  });
  const { ask, call } = await startRig({ tools: [add] });
  const { body: added } = await call({ tool: 'add', params: { line: 'a' }, session: 's' });
  const compensate = (callId: string) => ask(`/v1/calls/${callId}/compensation`, { method: 'POST' });
  for (let times = 0; times < 2; times += 1)
    expect(await compensate(added.callId)).toMatchObject({
      status: 200,
      body: { status: 'success', output: { content: { compensated: added.callId } }, fromCache: times === 1 },
    });
  expect(undone).toEqual(['a']);
  expect((await compensate('w0.unknown')).status).toBe(404);
  const { body: wrong } = await call({ tool: 'add', params: {}, session: 's' });
  expect(wrong.error.code).toBe('INVALID_PARAMS');
  const { callId } = (await compensate(added.callId)).body;
  expect(await compensate(callId)).toMatchObject({ status: 409, body: { error: { code: 'CALL_NOT_COMPENSABLE' } } });
});

test('dedupeMode disabled for a tool that changes something is 400 DEDUPE_REQUIRED, in both forms of a call', async () => {
  const { call, pawl } = await startRig(testTools());
  const session = await pawl.openSession();
  const refused = {
    status: 400,
    body: { error: { code: 'DEDUPE_REQUIRED', issues: [{ path: 'transport.dedupeMode' }] } },
  };
  const short = { tool: 'echo', params: { text: 'x' }, session: session.key, dedupeMode: 'disabled' };
  expect(await call(short)).toMatchObject(refused);
  expect(await call(session.envelope('echo', { text: 'x' }, { dedupeMode: 'disabled' }))).toMatchObject(refused);
  expect(await call({ ...short, namespace: 'acme.far' })).toMatchObject({ status: 200, body: { status: 'success' } });
});
