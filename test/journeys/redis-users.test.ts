/** Redis with users, as the composed stack has it: what it forgets when it is started again. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { connect, defineTool, startWorker } from '../../src/index.ts';
import { inspectServer } from '../../src/shared/store/inspect-server.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { startServer } from '../chaos/server.ts';

const run = promisify(execFile);
const SECRETS = fileURLToPath(new URL('../../docker/secrets.mjs', import.meta.url));

const count = defineTool({
  name: 'count',
  version: '1.0.0',
  description: 'Counts its runs.',
  tier: 'read-only',
  input: z.object({}),
  run: async () => ({ output: { runs: ++runs } }),
});
let runs = 0;

async function newFolder(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-users-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test('the composed stack’s Redis, whose default user is off, starts again with every call', async () => {
  const folder = await newFolder();
  await run(process.execPath, [SECRETS, folder]);
  const aclFile = join(folder, 'redis', 'users.acl');
  // The servers that tests run on may be older than the command.
  writeFileSync(aclFile, readFileSync(aclFile, 'utf8').replaceAll(' +waitaof', ''));
  const server = await startServer(join(folder, 'data'), [...['--aclfile', aclFile], ...['--appendfsync', 'always']]);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const urlOf = (file: string) =>
    readFileSync(join(folder, file), 'utf8').replace('redis:6379', `127.0.0.1:${server.port}`);
  const worker = await startWorker({
    redisUrl: urlOf('worker-read-only/redis-url'),
    tiers: ['read-only'],
    tools: [count],
    log: silentLogger,
  });
  onTestFinished(() => worker.close());
  const pawl = await connect({ redisUrl: urlOf('api/redis-url'), log: silentLogger });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession({ sessionKey: 'kept' });
  const call = () => session.call(count, {}, { idempotencyKey: 'first' });
  expect(await call()).toMatchObject({ status: 'success', fromCache: false, output: { content: { runs: 1 } } });
  await server.kill();
  await server.start();
  expect(await call()).toMatchObject({ status: 'success', fromCache: true, output: { content: { runs: 1 } } });
});

test.each([
  ['may do everything, and is on', 'on nopass ~* &* +@all', 'always'],
  ['may do everything, and is off', 'off resetpass ~* &* +@all', 'always'],
  ['may do nothing, and is off', 'off reset', 'unloadable'],
  ['may not write', 'on nopass ~* &* +@all -@write', 'unloadable'],
  ['may write to other keys', 'on nopass resetkeys ~cache:* &* +@all', 'unloadable'],
])('a server whose default user %s (%s) has persistence %s', async (_case, rules, persistence) => {
  const folder = await newFolder();
  const server = await startServer(folder, ['--appendfsync', 'always']);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const redis = new Redis(`redis://operator:word@127.0.0.1:${server.port}`, { lazyConnect: true });
  onTestFinished(() => redis.disconnect());
  await server.admin.call('ACL', 'SETUSER', 'operator', 'on', '>word', '~*', '&*', '+@all');
  await server.admin.call('ACL', 'SETUSER', 'default', ...rules.split(' '));
  await redis.connect();
  expect(await inspectServer(redis, 'pawl')).toMatchObject({ persistence });
});
