import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import express from 'express';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { oldestOfBusiestCaller } from '../../../src/producer/mcp/legacy-sessions.ts';
import { createMcpServer } from '../../../src/producer/mcp/server.ts';
import { sendWhenReady } from '../../../src/producer/mcp/web-response.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { openReceiver } from '../../workers/callbacks/receiver.ts';
import { rawGet, startRig, testTools } from '../http/rig.ts';
import { MODERN, MODERN_META, modern } from './mcp-client.ts';

describe('/mcp', () => {
  test('the same key is the same call, whether it comes in _meta, as a header or as an argument', async () => {
    const { tools, runs } = testTools();
    const own = defineTool({
      name: 'own_key',
      version: '1.0.0',
      description: 'Has a parameter of that name.',
      tier: 'read-only',
      input: z.object({ idempotency_key: z.string() }),
      run: (params) => ({ output: params }),
    });
    const ask = modern(await startRig({ tools: [...tools, own] }));
    const call = { name: 'echo', arguments: { text: 'x' } };
    const first = await ask('tools/call', { ...call, _meta: { 'pawl/idempotencyKey': 'k' } });
    const again = await ask('tools/call', call, { 'idempotency-key': '"k"' });
    expect(first.result._meta).toMatchObject({ 'pawl/fromCache': false });
    expect(again.result._meta).toMatchObject({
      'pawl/fromCache': true,
      'pawl/callId': first.result._meta['pawl/callId'],
    });
    const argument = { name: 'echo', arguments: { text: 'x', idempotency_key: 'k' } };
    for (const headers of [{}, { 'idempotency-key': 'k' }])
      expect((await ask('tools/call', argument, headers)).result).toMatchObject({
        structuredContent: { text: 'x' },
        _meta: { 'pawl/callId': first.result._meta['pawl/callId'] },
      });
    expect(runs()).toBe(1);
    for (const [key, headers] of [
      [7, {}],
      ['', {}],
      ['k', { 'idempotency-key': 'other' }],
    ] as const) {
      const call = { name: 'echo', arguments: { text: 'x', idempotency_key: key } };
      expect((await ask('tools/call', call, headers)).error.code).toBe(-32_602);
    }
    const kept = await ask('tools/call', { name: 'own_key', arguments: { idempotency_key: 'mine' } });
    expect(kept.result.structuredContent).toEqual({ idempotency_key: 'mine' });
    const other = await ask('tools/call', { name: 'echo', arguments: { text: 'y' } }, { 'idempotency-key': 'k' });
    expect(other.result).toMatchObject({ isError: true, _meta: { 'pawl/error': { code: 'IDEMPOTENCY_CONFLICT' } } });
  });

  test('reports that a call waits for an outside system, also when it is repeated, and does not cancel it', async () => {
    const tokens: string[] = [];
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Asks a bank for a payment.',
      tier: 'workspace',
      effects: 'once',
      input: z.object({}),
      run: (_params, ctx) => {
        tokens.push(ctx.completionToken());
        return ctx.pending({ expiresInMs: 3_600_000 });
      },
    });
    const rig = await startRig({ tools: [pay] });
    const ask = modern(rig);
    const noTasks = { 'io.modelcontextprotocol/clientCapabilities': {} };
    const call = () =>
      ask('tools/call', { name: 'pay', arguments: {}, _meta: { ...noTasks, 'pawl/idempotencyKey': 'k' } });
    for (const _time of ['first', 'again'])
      expect((await call()).result).toMatchObject({
        content: [{ type: 'text', text: expect.stringContaining('waits for an outside system') }],
        _meta: { 'pawl/phase': 'pending', 'pawl/pendingUntilMs': expect.any(Number) },
      });
    const task = await ask('tools/call', { name: 'pay', arguments: {}, _meta: { 'pawl/idempotencyKey': 'k' } });
    expect(task.result).toMatchObject({ resultType: 'task', status: 'working' });
    const state = async () => (await ask('tasks/get', { taskId: task.result.taskId })).result;
    expect(await state()).toMatchObject({ status: 'working', statusMessage: 'waits for an outside system' });
    await rig.pawl.complete(tokens[0] ?? '', { status: 'success', output: 'paid' });
    expect((await call()).result.content).toEqual([{ type: 'text', text: 'paid' }]);
    expect(await state()).toMatchObject({ status: 'completed' });
    expect(tokens).toHaveLength(1);
  });

  test('posts the end of a call to the URL that its request names; a URL that is none is -32602', async () => {
    const { tools } = testTools();
    const rig = await startRig({ tools, settings: { allowedHosts: ['127.0.0.1'] } });
    const ask = modern(rig);
    const receiver = await openReceiver();
    const call = (url: unknown) =>
      ask('tools/call', { name: 'echo', arguments: { text: 'x' }, _meta: { 'pawl/callbackUrl': url } });
    const { result } = await call(receiver.url);
    await eventually(() => receiver.received.length === 1);
    expect(JSON.parse(receiver.received[0]?.body ?? '').data.callId).toBe(result._meta['pawl/callId']);
    expect((await call('nowhere')).error).toMatchObject({
      code: -32_602,
      message: expect.stringContaining('pawl/callbackUrl'),
    });
  });

  test('starts a delayed call at its time, and reports it; the same key gives its result', async () => {
    const { tools, runs } = testTools();
    const rig = await startRig({ tools });
    const ask = modern(rig);
    const noTasks = { 'io.modelcontextprotocol/clientCapabilities': {} };
    const call = (meta: object) =>
      ask('tools/call', { name: 'echo', arguments: { text: 'x' }, _meta: { ...noTasks, ...meta } });
    const startAt = new Date(Date.now() + 3_600_000).toISOString();
    const { result } = await call({ 'pawl/startAt': startAt });
    expect(result._meta).toMatchObject({ 'pawl/phase': 'delayed', 'pawl/startAtMs': Date.parse(startAt) });
    const key = { 'pawl/idempotencyKey': 'later' };
    const soon = await call({ 'pawl/startAfterMs': 700, ...key });
    expect(soon.result).toMatchObject({
      content: [{ type: 'text', text: expect.stringContaining('has not run yet') }],
      _meta: { 'pawl/phase': 'delayed', 'pawl/startAtMs': expect.any(Number) },
    });
    expect(runs()).toBe(0);
    const { 'pawl/callId': callId } = soon.result._meta;
    expect((await rig.ask(`/v1/calls/${callId}?wait=10000`)).body).toMatchObject({ state: 'done' });
    expect((await call(key)).result).toMatchObject({
      structuredContent: { text: 'x' },
      _meta: { 'pawl/callId': callId },
    });
    expect(runs()).toBe(1);
    const task = await ask('tools/call', {
      name: 'echo',
      arguments: { text: 'task' },
      _meta: { 'pawl/startAfterMs': 600_000 },
    });
    expect(task.result).toMatchObject({ resultType: 'task', status: 'working' });
    const { calls } = (await rig.ask('/v1/calls')).body;
    for (const wrong of [
      { 'pawl/startAfterMs': 'soon' },
      { 'pawl/startAfterMs': -1 },
      { 'pawl/startAt': 'tomorrow' },
      { 'pawl/startAfterMs': 5, 'pawl/startAt': startAt },
    ]) {
      const { error } = await call(wrong);
      expect(error).toMatchObject({ code: -32_602, message: expect.stringContaining('_meta["pawl/start') });
    }
    expect((await call({ 'pawl/startAt': '2020-01-01T00:00:00Z' })).result).toMatchObject({ isError: true });
    expect((await rig.ask('/v1/calls')).body.calls).toHaveLength(calls.length);
  });

  test('a Host header that is none is the client’s affair', async () => {
    const apiTokens = [{ token: 'token-of-agent', role: 'agent' as const }];
    const { server, logged } = await startRig({ settings: { apiTokens } });
    for (const host of ['a b', '[::', ''])
      expect(await rawGet(`${server.url}/mcp`, { host, authorization: 'Bearer token-of-agent' }), host).toBe(405);
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('too many sessions end those of the caller with the most, the least recently used first', () => {
    const sessions = new Map(
      ['quiet', 'loud', 'loud', 'other', 'loud'].map((callerId, at) => [`s${at}`, { callerId }]),
    );
    expect(oldestOfBusiestCaller(sessions)).toBe('s1');
    sessions.delete('s1');
    expect(oldestOfBusiestCaller(sessions)).toBe('s2');
    expect(oldestOfBusiestCaller(new Map())).toBeUndefined();
  });

  test('a token limits what a client sees: tools by session, tasks by tenant, nothing for approvers', async () => {
    const { tools } = testTools();
    const apiTokens = [
      { token: 'token-of-acme', role: 'agent' as const, tenantId: 'acme' },
      { token: 'token-of-other', role: 'agent' as const, tenantId: 'other' },
      { token: 'an-approver', role: 'approver' as const },
    ];
    const rig = await startRig({ tools, settings: { apiTokens } });
    const ask = modern(rig);
    const acme = { authorization: 'Bearer token-of-acme' };
    const json = { kind: 'worker', sessionKey: 'reader' };
    await rig.ask('/v1/sessions', { method: 'POST', token: 'token-of-acme', json });
    const all = await ask('tools/list', {}, acme);
    expect(all.result.tools).toHaveLength(4);
    const reader = await ask('tools/list', { _meta: { 'pawl/session': 'reader' } }, acme);
    expect(reader.result.tools.map(({ name }: { name: string }) => name)).toEqual(['acme.far.echo', 'fail', 'hold']);
    const foreign = await ask('tools/list', {}, { authorization: 'Bearer token-of-other', 'pawl-session': 'reader' });
    expect(foreign.error.code).toBe(-32_602);
    const { taskId } = (await ask('tools/call', { name: 'hold', arguments: {} }, acme)).result;
    expect((await ask('tasks/get', { taskId }, { authorization: 'Bearer token-of-other' })).error.code).toBe(-32_602);
    expect((await ask('tools/list', {})).status).toBe(401);
    expect((await ask('tools/list', {}, { authorization: 'Bearer an-approver' })).status).toBe(403);
    await ask('tasks/cancel', { taskId }, acme);
  });

  test('an invalid message is refused by the protocol’s rules, without details of this server', async () => {
    const rig = await startRig();
    const post = (raw: string, headers: Record<string, string> = {}) =>
      rig.ask('/mcp', { method: 'POST', raw, headers });
    expect(await post('{')).toMatchObject({ status: 400, body: { error: { code: -32_700 } } });
    expect((await post('{}', { 'content-type': 'text/plain' })).status).toBe(415);
    expect((await post('[]')).status).toBe(400);
    expect((await post('{"jsonrpc":"2.0","id":1,"method":"ping"}', { 'mcp-session-id': 'gone' })).status).toBe(404);
    expect((await rig.ask('/mcp')).status).toBe(405);
  });
});

test('I17: the turn that a client names counts to its budget', async () => {
  const rig = await startRig(testTools());
  const json = { sessionKey: 'turns', budget: { perTurn: { calls: 1 } } };
  await rig.ask('/v1/sessions', { method: 'POST', json });
  const call = modern(rig);
  const echo = async (text: string, turn: string, headers: Record<string, string> = {}) => {
    const _meta = { 'pawl/session': 'turns', ...(turn === '' ? {} : { 'pawl/turn': turn }) };
    const { result, error } = await call('tools/call', { name: 'echo', arguments: { text }, _meta }, headers);
    return error?.code ?? result._meta['pawl/error']?.code ?? 'done';
  };
  expect(await echo('a', '1')).toBe('done');
  expect(await echo('b', '1')).toBe('BUDGET_EXHAUSTED');
  expect(await echo('c', '', { 'pawl-turn': '1' })).toBe('BUDGET_EXHAUSTED');
  expect(await echo('d', '2')).toBe('done');
  expect(await echo('e', 'x'.repeat(121))).toBe(-32_602);
});

test.each(['pawl/session', 'pawl/turn'])(
  'a value of %s that is no text is -32602; null and an empty text are none',
  async (name) => {
    const { tools, runs } = testTools();
    const call = modern(await startRig({ tools }));
    const send = (value: unknown) =>
      call('tools/call', { name: 'echo', arguments: { text: 'x' }, _meta: { [name]: value } });
    for (const value of [7, true, {}, ['x']])
      expect((await send(value)).error).toMatchObject({
        code: -32_602,
        message: expect.stringContaining(`_meta["${name}"]`),
      });
    expect(runs()).toBe(0);
    for (const value of [null, '']) expect((await send(value)).result.structuredContent).toMatchObject({ text: 'x' });
  },
);

test('a call continues the trace of its client from `_meta` or a header, and ignores an invalid one', async () => {
  const rig = await startRig(testTools());
  const call = modern(rig);
  const traceOf = async (text: string, traceparent?: string, headers: Record<string, string> = {}) => {
    const _meta = traceparent === undefined ? {} : { traceparent };
    const { result } = await call('tools/call', { name: 'echo', arguments: { text }, _meta }, headers);
    return (await rig.pawl.read(result._meta['pawl/callId']))?.request.envelope.trace.traceparent;
  };
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  expect(await traceOf('a', traceparent)).toBe(traceparent);
  expect(await traceOf('b', undefined, { traceparent })).toBe(traceparent);
  expect(await traceOf('c', 'anything', {})).toBeUndefined();
});

test('MCP clients are refused at a full backlog, as all others are', async () => {
  const { tools, started, release } = testTools();
  const rig = await startRig({ tools, settings: { http: { maxBacklog: 1 } } });
  const call = modern(rig);
  await rig.call({ tool: 'hold', session: 's' }, { wait: 0 });
  await started.promise;
  const echo = async () => (await call('tools/call', { name: 'echo', arguments: { text: 'x' } })).error;
  // The count before the first call still stands for half a second.
  expect(await eventually(echo)).toMatchObject({ code: -32_603, data: { code: 'RATE_LIMITED' } });
  release.fire();
});

test('one key is one call, whether it comes over HTTP or MCP, in a header or in the request', async () => {
  const rig = await startRig(testTools());
  const params = { text: 'x' };
  const call = modern(rig);
  const over = async (more: object, headers: Record<string, string>) => {
    const _meta = { 'pawl/session': 'both', ...more };
    const { result, error } = await call('tools/call', { name: 'echo', arguments: params, _meta }, headers);
    return error ?? result._meta['pawl/callId'];
  };
  for (const [key, header] of [
    ['plain', 'plain'],
    ['a"b', '"a\\"b"'],
  ] as const) {
    const { callId } = (await rig.call({ tool: 'echo', params, session: 'both', idempotencyKey: key })).body;
    expect(await over({ 'pawl/idempotencyKey': key }, {})).toBe(callId);
    expect(await over({}, { 'idempotency-key': header })).toBe(callId);
  }
  expect(await over({ 'pawl/idempotencyKey': 7 }, {})).toMatchObject({ code: -32_602 });
});

test('null means that a member of a message is absent, as many clients write it', async () => {
  const nothing = defineTool({
    ...{ name: 'nothing', version: '1.0.0', description: 'Takes nothing.', tier: 'read-only', input: z.object({}) },
    run: () => ({ output: 'nothing' }),
  });
  const { ask } = await startRig({ tools: [nothing] });
  const headers: Record<string, string> = { accept: 'application/json, text/event-stream' };
  const post = (message: object) => ask('/mcp', { method: 'POST', json: { jsonrpc: '2.0', ...message }, headers });
  const clientInfo = { name: 't', version: '1', title: null, icons: null };
  const capabilities = { roots: null, sampling: null, experimental: null };
  const params = { protocolVersion: '2025-06-18', capabilities, clientInfo, _meta: null };
  const greeting = await post({ id: 1, method: 'initialize', params });
  expect(greeting.text).toContain('"serverInfo"');
  headers['mcp-session-id'] = greeting.headers.get('mcp-session-id') ?? '';
  expect((await post({ id: null, method: 'notifications/initialized', params: null })).status).toBe(202);
  const list = await post({ id: 2, method: 'tools/list', params: { cursor: null, _meta: { progressToken: null } } });
  expect(list.text).toContain('"nothing"');
  const called = await post({ id: 3, method: 'tools/call', params: { name: 'nothing', arguments: null, task: null } });
  expect(called.text).toContain('"pawl/status":"success"');
});

test('methods that MCP does not have are refused with those that it has', async () => {
  const { ask } = await startRig(testTools());
  const refused = await ask('/mcp', { method: 'PUT', json: {} });
  expect(refused.status).toBe(405);
  expect(refused.headers.get('allow')).toBe('POST, GET, DELETE');
});

test.each([
  [
    '2025-11-25',
    'initialize',
    { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } },
  ],
  [MODERN, 'subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: MODERN_META }],
])('a client on standard streams, in the era %s, is notified when tools come or go', async (_era, method, params) => {
  const { pawl } = await startRig(testTools());
  const [input, output] = [new PassThrough(), new PassThrough()];
  const sent: string[] = [];
  output.on('data', (line) => void sent.push(String(line)));
  const create = () => createMcpServer({ pawl }, { id: 'stdio', role: 'admin' }, 'stdio-session');
  const connection = serveStdio(create, { transport: new StdioServerTransport(input, output) });
  onTestFinished(() => connection.close());
  input.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}\n`);
  await eventually(() => sent.length > 0, { what: 'an answer' });
  await pawl.registry.patch('echo', { enabled: false }, { by: 'test' });
  await eventually(() => sent.join('').includes('notifications/tools/list_changed'), { what: 'the news' });
});

test.each([
  ['one message', () => Response.json({ id: 1 }), 'event: message\ndata: {"id":1}\n\n'],
  [
    'a stream',
    () => new Response('data: {"id":2}\n\n', { headers: { 'content-type': 'text/event-stream' } }),
    'data: {"id":2}\n\n',
  ],
])(
  'an answer that takes long, %s, is not silent: nothing between the two gives it up',
  async (_what, answer, ending) => {
    const there = signal<Response>();
    const app = express();
    app.post('/', (_request, response) => sendWhenReady(response, there.promise, 1));
    const server = app.listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST' });
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    there.fire(answer());
    const text = await response.text();
    expect(text.replace(/^(?:: still here\n\n)+/, '')).toBe(ending);
    expect(text).not.toBe(ending);
  },
);

test('an answer that comes soon is sent as it is, its status included', async () => {
  const rig = await startRig(testTools());
  const { status, error } = await modern(rig)('resources/list', {});
  expect({ status, error }).toMatchObject({ status: 404, error: { code: -32_601 } });
});
