/** @module-tag slow */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { expect, onTestFinished, test } from 'vitest';
import { temporaryFolder } from '../helpers/context.ts';
import { startPawl } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { createWorld } from '../helpers/world.ts';

const TOOLS = fileURLToPath(new URL('./fixtures/slow-tool.ts', import.meta.url));
const LAUNCHER = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
const REVISION = '2026-07-28';

async function ask(url: string, method: string, params: Record<string, unknown>) {
  const response = await fetch(`${url}/mcp`, {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-protocol-version': REVISION,
      'mcp-method': method,
      'mcp-name': String(params['name'] ?? params['taskId']),
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method,
      params: {
        ...params,
        _meta: {
          'io.modelcontextprotocol/protocolVersion': REVISION,
          'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } },
        },
      },
    }),
  });
  const { result } = (await response.json()) as { readonly result: Readonly<Record<string, unknown>> };
  return result;
}

test('a task outlives the server that made it and the worker that ran it, both killed', async () => {
  const world = await createWorld();
  const env = {
    REDIS_URL: world.redisUrl,
    PAWL_PREFIX: world.prefix,
    PAWL_LOCK_DURATION_MS: '5000',
    PAWL_STALLED_INTERVAL_MS: '500',
  };
  const cwd = temporaryFolder();
  const startServer = async () => {
    const server = startPawl(['serve', '--port', '0', '--json'], { env, cwd });
    return { server, url: (JSON.parse(await server.line('"ready"')) as { url: string }).url };
  };
  const startWorker = async () => {
    const worker = startPawl(['worker', '--tiers', 'read-only', '--tools', TOOLS, '--json'], { env, cwd });
    await worker.line('"ready"');
    return worker;
  };
  const [first, worker] = await Promise.all([startServer(), startWorker()]);
  const file = join(cwd, 'go-on');
  const task = await ask(first.url, 'tools/call', { name: 'slow', arguments: { file } });
  expect(task).toMatchObject({ resultType: 'task', status: 'working' });
  await worker.line('slow has begun');
  await Promise.all([first.server.kill(), worker.kill()]);
  const [second, other] = await Promise.all([startServer(), startWorker()]);
  const { taskId } = task;
  expect(await ask(second.url, 'tasks/get', { taskId })).toMatchObject({ taskId, status: 'working' });
  await other.line('slow has begun');
  writeFileSync(file, '');
  const done = await eventually(async () => {
    const now = await ask(second.url, 'tasks/get', { taskId });
    return now['status'] === 'completed' && now;
  });
  expect(done).toMatchObject({ result: { structuredContent: { attempt: expect.any(Number) } } });
});

test('pawl mcp serves a client on standard input and output, with workers of its own', async () => {
  const world = await createWorld();
  const cwd = temporaryFolder();
  writeFileSync(join(cwd, 'there'), '');
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [LAUNCHER, 'mcp', '--workers', '1', '--tools', TOOLS],
    cwd,
    env: { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix, PATH: process.env['PATH'] ?? '', LOG_LEVEL: 'error' },
    stderr: 'ignore',
  });
  const client = new Client({ name: 'test', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
  await client.connect(transport);
  onTestFinished(() => client.close());
  expect(client.getNegotiatedProtocolVersion()).toBe(REVISION);
  expect((await client.listTools()).tools.map(({ name }) => name)).toContain('slow');
  const answer = await client.callTool({ name: 'slow', arguments: { file: join(cwd, 'there') } });
  expect(answer.structuredContent).toEqual({ attempt: 1 });
  await client.close();
  await eventually(async () => (await world.connections()).length === 0, { what: 'the end of all processes' });
});
