import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { connect, defineTool, type StartWorkerOptions, startWorker } from '../../../src/index.ts';
import { isAtLeast } from '../../../src/shared/config/durability.ts';
import { type Server, serverVersion, startServer } from '../../chaos/server.ts';
import { eventually } from '../../helpers/signal.ts';

const hasWaitaof = isAtLeast(await serverVersion(), [7, 2]);

let effects = 0;
const pay = defineTool({
  name: 'pay',
  version: '1.0.0',
  description: 'Has an effect once.',
  tier: 'workspace',
  effects: 'once',
  input: z.strictObject({}),
  run: () => {
    effects += 1;
    return { output: effects };
  },
});
const look = defineTool({
  name: 'look',
  version: '1.0.0',
  description: 'Has no effect.',
  tier: 'read-only',
  input: z.strictObject({}),
  run: () => ({ output: null }),
});

/** A server of the test's own, so that it may be configured badly. */
async function serverWith(...options: readonly string[]): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-durability-'));
  const server = await startServer(folder, options);
  onTestFinished(async () => {
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });
  return server;
}

async function workerOn(server: Server, options: Partial<StartWorkerOptions> = {}) {
  const worker = await startWorker({ tools: [pay, look], redisUrl: server.url, logLevel: 'silent', ...options });
  onTestFinished(() => worker.close());
  return worker;
}

test('a worker with a tool that must not run twice does not start on a Redis that evicts (row 20)', async () => {
  const server = await serverWith('--maxmemory-policy', 'allkeys-lru');
  await expect(workerOn(server)).rejects.toMatchObject({
    code: 'CONFIGURATION',
    issues: [{ path: 'maxmemory-policy', message: expect.stringContaining('CONFIG SET maxmemory-policy noeviction') }],
  });
  await workerOn(server, { tools: [look] });
  await server.admin.config('SET', 'maxmemory-policy', 'noeviction');
  await workerOn(server);
});

test('a worker that is to bring begins to disk does not start on a Redis that does not', async () => {
  const server = await serverWith('--appendonly', 'no');
  const expected = (setting: string) => ({ code: 'CONFIGURATION', issues: [{ path: setting }] });
  await expect(workerOn(server, { durability: 'always' })).rejects.toMatchObject(expected('appendfsync'));
  const waitaof = hasWaitaof ? 'appendonly' : 'version';
  await expect(workerOn(server, { durability: 'waitaof' })).rejects.toMatchObject(expected(waitaof));
  await server.admin.config('SET', 'appendonly', 'yes');
  await server.admin.config('SET', 'appendfsync', 'always');
  await workerOn(server, { durability: 'always' });
});

test.skipIf(!hasWaitaof)(
  'with durability waitaof the effect of a once call starts only when its begin is on disk',
  async () => {
    // Nothing reaches the disk by itself.
    const server = await serverWith('--appendfsync', 'no');
    await workerOn(server, { durability: 'waitaof' });
    const pawl = await connect({ redisUrl: server.url, logLevel: 'silent' });
    onTestFinished(() => pawl.close());
    const session = await pawl.openSession({});
    const before = effects;
    const call = session.call(pay, {});
    // Others do not wait for the disk.
    expect((await session.call(look, {})).status).toBe('success');
    await eventually(async () => /cmd=waitaof/.test(String(await server.admin.client('LIST'))));
    expect(effects).toBe(before);
    await server.admin.config('SET', 'appendfsync', 'everysec');
    expect(await call).toMatchObject({ status: 'success', attempts: 1 });
    expect(effects).toBe(before + 1);
  },
);
