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
  ['may do everything, and is on', 'on nopass ~* &* +@all', true],
  ['may do everything, and is off', 'off resetpass ~* &* +@all', true],
  ['may do nothing, and is off', 'off reset', false],
  ['may not write', 'on nopass ~* &* +@all -@write', false],
  ['may write to other keys', 'on nopass resetkeys ~cache:* &* +@all', false],
])(
  'a server whose default user %s (%s) is said to load what scripts wrote if it does',
  async (_case, rules, mayWrite) => {
    const folder = await newFolder();
    const server = await startServer(folder, ['--appendfsync', 'always', '--enable-debug-command', 'yes']);
    onTestFinished(() => server[Symbol.asyncDispose]());
    const redis = new Redis(`redis://operator:word@127.0.0.1:${server.port}`, { lazyConnect: true });
    onTestFinished(() => redis.disconnect());
    await server.admin.call('ACL', 'SETUSER', 'operator', 'on', '>word', '~*', '&*', '+@all');
    await server.admin.call('ACL', 'SETUSER', 'default', ...rules.split(' '));
    await redis.connect();
    await redis.eval("redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[2], '1')", 2, 'pawl:one', 'pawl:other');
    await redis.call('DEBUG', 'LOADAOF');
    const isLoaded = (await redis.exists('pawl:one', 'pawl:other')) === 2;
    expect(await inspectServer(redis, 'pawl')).toMatchObject({ persistence: isLoaded ? 'always' : 'unloadable' });
    if (mayWrite) expect(isLoaded).toBe(true);
  },
);

test.each([
  ['redis_version:8.5.9', 'unloadable'],
  ['redis_version:8.6.0', 'everysec'],
  ['redis_version:7.2.4\r\nvalkey_version:8.6.0', 'unloadable'],
  ['redis_version:7.2.4\r\nvalkey_version:9.1.1', 'unloadable'],
  ['redis_version:7.2.4\r\nvalkey_version:9.1.2', 'everysec'],
  ['redis_version:7.2.4\r\nvalkey_version:9.2.0', 'everysec'],
  ['redis_version:7.2.4\r\nvalkey_version:10.0.0', 'everysec'],
])('%j with a default user without rights has persistence %s', async (versions, persistence) => {
  const server = {
    info: async () => `# Server\r\n${versions}\r\naof_enabled:1\r\n`,
    config: async () => ['appendfsync', 'everysec'],
    call: async () => "User default has no permissions to run the 'set' command",
  };
  expect(await inspectServer(server as never, 'pawl')).toMatchObject({ persistence });
});
