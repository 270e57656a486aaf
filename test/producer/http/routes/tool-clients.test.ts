import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { startHttpServer } from '../../../../src/producer/http/server.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { startProgram } from '../../../helpers/process.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type AskOptions, startRig, startTestWorker } from '../rig.ts';

const TOKENS = [
  { token: 'the-agent-1', role: 'agent' as const },
  { token: 'the-operator-1', role: 'operator' as const },
  { token: 'the-operator-of-acme', role: 'operator' as const, tenantId: 'acme' },
  { token: 'the-admin-1', role: 'admin' as const },
];

const spec = {
  kind: 'dynamic',
  version: '1.0.0',
  description: 'Asks the person at the editor.',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } } },
};

async function startDynamicRig() {
  const rig = await startRig({ settings: { apiTokens: TOKENS } });
  await startTestWorker(rig.settings, [], silentLogger, ['system']);
  const put = await rig.ask('/v1/tools/editor.ask', { method: 'PUT', json: spec, token: 'the-admin-1' });
  expect(put.status).toBe(201);
  const post = (path: string, json: unknown, options: AskOptions = {}) =>
    rig.ask(path, { method: 'POST', json, token: 'the-operator-1', ...options });
  const submit = (key: string) =>
    rig.call(
      { tool: 'ask', namespace: 'editor', params: { text: key }, session: 's', idempotencyKey: key },
      { token: 'the-agent-1', wait: 0 },
    );
  const result = (callId: string) => rig.ask(`/v1/calls/${callId}?wait=20000`, { token: 'the-agent-1' });
  return { ...rig, post, submit, result };
}

test('over HTTP a client serves a tool: next call, heartbeat, progress, result (C21)', async () => {
  const { ask, post, submit, result } = await startDynamicRig();
  const joined = await post('/v1/tool-clients', { tools: ['editor.ask'], leaseMs: 60_000 });
  expect(joined).toMatchObject({ status: 201, body: { tools: ['editor.ask'], leaseMs: 60_000 } });
  const at = `/v1/tool-clients/${joined.body.clientId}`;
  const next = post(`${at}/next?wait=20000`, { running: [] });
  const { callId } = (await submit('one')).body;
  const { call, cancelled } = (await next).body;
  expect(cancelled).toEqual([]);
  expect(call).toMatchObject({ callId, tool: 'editor.ask', arguments: { text: 'one' }, attempt: 1, sessionKey: 's' });
  expect((await post(`${at}/heartbeat`, { running: [callId] })).body).toEqual({ cancelled: [], leaseMs: 60_000 });
  const { fence } = call;
  const progress = await post(`${at}/calls/${callId}/progress`, { fence, progress: 1, total: 2 });
  expect(progress.body).toEqual({ wanted: true });
  const contentItems = [
    { type: 'inputText', text: 'yes' },
    { type: 'inputImage', imageUrl: 'data:image/png;base64,aGk=' },
  ];
  for (const wrong of [{}, { fence }, { fence, output: 1, error: { message: 'x' } }, { fence, contentItems: ['x'] }])
    expect((await post(`${at}/calls/${callId}/result`, wrong)).status, JSON.stringify(wrong)).toBe(400);
  const answer = { fence, contentItems, success: false };
  expect((await post(`${at}/calls/${callId}/result`, answer)).status).toBe(204);
  expect((await result(callId)).body.result).toMatchObject({
    status: 'success',
    output: {
      content: 'yes',
      metadata: { success: false, content: [{ type: 'image', mimeType: 'image/png', data: 'aGk=' }] },
    },
  });

  const second = (await submit('two')).body.callId;
  expect((await post(`${at}/next?wait=20000`, { running: [] })).body.call.callId).toBe(second);
  expect((await ask(at, { method: 'DELETE', token: 'the-operator-1' })).status).toBe(204);
  expect((await result(second)).body.result.error.code).toBe('OUTCOME_UNKNOWN');
  const late = await post(`${at}/calls/${second}/result`, { fence: 1, output: 'late' });
  expect(late).toMatchObject({ status: 409, body: { error: { code: 'LEASE_LOST' } } });
  expect((await post(`${at}/next?wait=0`, { running: [] })).status).toBe(404);
  expect((await result((await submit('three')).body.callId)).body.result.error.code).toBe('CLIENT_GONE');
});

test('only a token that may settle calls of all tenants may serve a tool (C21)', async () => {
  const { post } = await startDynamicRig();
  for (const token of ['the-agent-1', 'the-operator-of-acme'])
    expect((await post('/v1/tool-clients', { tools: ['editor.ask'] }, { token })).status).toBe(403);
  expect((await post('/v1/tool-clients', { tools: ['editor.ask'] })).status).toBe(201);
  expect((await post('/v1/tool-clients', { tools: ['editor.nothing'] })).status).toBe(404);
  expect((await post('/v1/tool-clients', { tools: ['editor.ask'], leaseMs: 1 })).body.error.issues[0].path).toBe(
    'leaseMs',
  );
});

test('a server that restarts loses no call and no client: clients poll again', async () => {
  const { pawl, server, settings, post, submit, result } = await startDynamicRig();
  const { clientId } = (await post('/v1/tool-clients', { tools: ['editor.ask'], leaseMs: 600_000 })).body;
  const at = `/v1/tool-clients/${clientId}`;
  const { callId } = (await submit('one')).body;
  const { call } = (await post(`${at}/next?wait=20000`, { running: [] })).body;
  const waiting = post(`${at}/next?wait=300000`, { running: [callId] });
  await post(`${at}/heartbeat`, { running: [callId] });
  server.drain();
  expect((await waiting).body).toEqual({ cancelled: [], leaseMs: 600_000 });
  await server.close();
  const again = await startHttpServer({ pawl, settings, log: silentLogger, port: Number(new URL(server.url).port) });
  onTestFinished(() => again.close());
  // Its connections died with the server: it asks again, as a client does that remembers nothing.
  const given = await eventually(async () => (await post(`${at}/next?wait=20000`, { running: [] })).body.call);
  expect(given).toEqual(call);
  await post(`${at}/calls/${callId}/result`, { fence: call.fence, output: 'kept' });
  expect((await result(callId)).body.result.output.content).toBe('kept');
});

const hasPython = spawnSync('python3', ['--version']).status === 0;

/** In front of a server, and refuses every other request, as one whose Redis is away. */
async function startReluctant(url: string): Promise<string> {
  let asked = 0;
  const server = createServer(async (request, response) => {
    asked += 1;
    const body = Buffer.concat(await request.toArray());
    if (asked % 2 === 1) return void response.writeHead(503, { 'retry-after': '0' }).end('{}');
    const { method = 'GET', url: path = '', headers } = request;
    const { authorization = '' } = headers;
    const sent = body.length === 0 ? {} : { body };
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: { authorization, 'content-type': 'application/json' },
      ...sent,
    });
    response.writeHead(answer.status).end(await answer.text());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test.skipIf(!hasPython)(
  'a Python program of a few lines is a tool, also while the server refuses for a moment',
  async () => {
    const { server, call } = await startDynamicRig();
    const example = fileURLToPath(new URL('../../../../examples/dynamic_tool.py', import.meta.url));
    const program = startProgram('python3', [example, '1'], {
      env: { PAWL_URL: await startReluctant(server.url), PAWL_TOKEN: 'the-admin-1' },
    });
    await program.line('serving');
    const asked = { tool: 'count_words', params: { text: 'one two three' }, session: 's' };
    await eventually(async () => {
      const { status } = await call(asked, { token: 'the-agent-1', wait: 0 });
      return status !== 404;
    });
    expect((await call(asked, { token: 'the-agent-1' })).body.output.content).toEqual({ words: 3 });
    expect(await program.ended).toMatchObject({ code: 0 });
    expect((await call({ ...asked, params: { text: 'x' } }, { token: 'the-agent-1' })).body.error.code).toBe(
      'CLIENT_GONE',
    );
  },
);
