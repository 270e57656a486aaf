import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { openBackend } from '../../../../src/shared/store/backend.ts';
import { connectVerified } from '../../../../src/shared/store/redis/connection.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { freePort, type Server, startServer } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { startPawl, startProgram } from '../../../helpers/process.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { createWorld } from '../../../helpers/world.ts';

const STORE = fileURLToPath(new URL('../../../../src/shared/store/', import.meta.url));

async function startOn(redisUrl: string, prefix = 'pawl', mode: 'fail-fast' | 'patient' = 'patient'): Promise<void> {
  const settings = resolveSettings({ options: { redisUrl, prefix } });
  const backend = await openBackend({ settings, name: 'test', mode, log: () => {} });
  await backend.close();
}

async function serverWith(...options: readonly string[]): Promise<Server> {
  const server = await startServer(temporaryFolder(), options);
  onTestFinished(() => server[Symbol.asyncDispose]());
  return server;
}

async function startTlsServer(): Promise<{ readonly port: number }> {
  const port = await freePort();
  await serverWith(...makeCertificates('localhost').serverOptions(port));
  return { port };
}

/** Watches a server under the name `watched`; answers its own port. */
async function startSentinel(folder: string, watchedPort: number): Promise<number> {
  const port = await freePort();
  const file = join(folder, 'sentinel.conf');
  writeFileSync(
    file,
    `port ${port}\nbind 127.0.0.1\ndir ${folder}\nsentinel monitor watched 127.0.0.1 ${watchedPort} 1\n`,
  );
  const binary = await findRedisBinary();
  if (binary.kind !== 'executable') throw new Error('needs a redis-server program');
  const sentinel = startProgram(binary.command, [file, '--sentinel']);
  await sentinel.line('monitor master watched');
  return port;
}

/** A command that needs Redis ends with one sentence. */
async function expectSentence(redisUrl: string, code: number, sentence: RegExp): Promise<void> {
  const process = startPawl(['calls'], { cwd: temporaryFolder(), env: { REDIS_URL: redisUrl } });
  expect(await process.ended, process.stderr()).toMatchObject({ code });
  expect(process.stderr()).toMatch(sentence);
  expect(process.stderr().trim().split('\n')).toHaveLength(1);
}

describe('a Redis user', () => {
  test.each(['subscribe', 'publish', 'eval', 'evalsha', 'hset', 'zadd', 'xadd', 'blpop', 'bzpopmin', 'time', 'info'])(
    'without %s is refused at the start, with the rule that it lacks',
    async (command) => {
      const { redisUrl, prefix } = await createWorld();
      const { url, give } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', `-${command}`]);
      await expect(startOn(url, prefix)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(new RegExp(`ACL SETUSER \\S+ .*\\+${command}\\b`)),
      });
      await give(`+${command}`);
      await startOn(url, prefix);
    },
  );

  test('without the channels or the keys is refused with their patterns', async () => {
    const { redisUrl, prefix } = await createWorld();
    const { url, give } = await createUser(redisUrl, prefix, ['~*', 'resetchannels', '+@all']);
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`&${prefix}:*`) });
    await give(`&${prefix}:*`, 'resetkeys', '~other:*');
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`~${prefix}:*`) });
  });

  test('is tried with every command that a script uses', () => {
    const used = new Set<string>();
    const scripts = readdirSync(STORE, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.lua'));
    expect(scripts.length).toBeGreaterThan(50);
    for (const file of scripts.filter((name) => !name.endsWith('try-commands.lua')))
      for (const [, name = ''] of readFileSync(join(STORE, file), 'utf8').matchAll(/redis\.p?call\('([A-Za-z]+)'/g))
        used.add(name.toUpperCase());
    const tried = readFileSync(join(STORE, 'redis/try-commands.lua'), 'utf8');
    // It has no key, and is tried on its own.
    used.delete('PUBLISH');
    expect([...used].filter((name) => !tried.includes(`{'${name}'`))).toEqual([]);
  });
});

describe('an answer that Pawl does not know', () => {
  test.each(['PUBLISH', 'SUBSCRIBE', 'EVALSHA', 'TIME', 'HGETALL', 'BLPOP'])(
    'of a server without %s ends the start in one sentence that names it',
    { timeout: 30_000 },
    async (command) => {
      const { url } = await serverWith('--rename-command', command, '');
      await expect(startOn(url)).rejects.toMatchObject({
        name: 'PawlError',
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(new RegExp(command, 'i')),
      });
      if (command === 'SUBSCRIBE') await expectSentence(url, 7, new RegExp(command, 'i'));
    },
  );

  test.each([
    '-ERR max daily request limit exceeded. Limit: 10000, Usage: 10001.\r\n',
    '-DENIED this proxy takes no such thing\r\n',
    'HTTP/1.1 400 Bad Request\r\n\r\n',
    '+surprise\r\n',
  ])('of something else ends it in one sentence: %j', { timeout: 30_000 }, async (answer) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', () => socket.write(answer));
    });
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    onTestFinished(() => void server.close());
    const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await expect(startOn(url, 'pawl', 'fail-fast')).rejects.toMatchObject({
      name: 'PawlError',
      code: expect.stringMatching(/BACKEND_UNAVAILABLE|CONFIGURATION/),
    });
    if (answer.startsWith('-')) await expectSentence(url, 7, /Redis/);
  });
});

describe('what stands behind an address', () => {
  test('is said of a Sentinel, and the server that it watches is reached by its name', {
    timeout: 30_000,
  }, async () => {
    const watched = await serverWith();
    const folder = temporaryFolder();
    const sentinel = await startSentinel(folder, watched.port);
    await expect(startOn(`redis://127.0.0.1:${sentinel}`)).rejects.toMatchObject({
      code: 'CONFIGURATION',
      message: expect.stringContaining('redis+sentinel://'),
    });
    await expectSentence(`redis://127.0.0.1:${sentinel}`, 2, /Sentinel/);
    const url = `redis+sentinel://127.0.0.1:${sentinel}/watched`;
    await startOn(url);
    const { redis } = await connectVerified({ url, name: 'test', mode: 'fail-fast' }, 10_000);
    await redis.set('through', 'the sentinel');
    redis.disconnect();
    expect(await watched.admin.get('through')).toBe('the sentinel');
  });

  test('is said of addresses of the wrong kind, and of servers that ask for a password', async () => {
    const { port } = await serverWith();
    const locked = await serverWith();
    await locked.admin.config('SET', 'requirepass', 'secret');
    const sentinel = await startSentinel(temporaryFolder(), port);
    const answers = [
      [`redis+cluster://127.0.0.1:${port}`, 'as a node of a Redis Cluster'],
      [`redis+cluster://127.0.0.1:${sentinel}`, 'as a node of a Redis Cluster'],
      ['redis://127.0.0.1:1,127.0.0.1:2', 'ECONNREFUSED 127.0.0.1:1'],
      [`redis+sentinel://127.0.0.1:${sentinel}/other`, 'names the server: ERR No such master'],
      [`redis+sentinel://127.0.0.1:${port}/watched`, 'names the server: ERR unknown command'],
      ['redis+sentinel://127.0.0.1:1/watched', 'ECONNREFUSED 127.0.0.1:1'],
      [`redis://127.0.0.1:${locked.port}`, 'asks for a password'],
    ] as const;
    const refuse = ([url, why]: (typeof answers)[number]) =>
      expect(startOn(url, 'pawl', 'fail-fast'), url).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining(why),
      });
    await Promise.all(answers.map(refuse));
  });

  test('is said of a server that has as many clients as it may', async () => {
    const { url, admin } = await serverWith('--maxclients', '1');
    await admin.ping();
    await expect(startOn(url, 'pawl', 'fail-fast')).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('maxclients'),
    });
  });

  test('is said of a server without TLS, and of one with TLS alone', async () => {
    const { url } = await serverWith();
    const secure = url.replace('redis:', 'rediss:');
    const refusal = (scheme: string) => ({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining(`use ${scheme}://`),
    });
    await expect(startOn(secure, 'pawl', 'fail-fast')).rejects.toMatchObject(refusal('redis'));
    const { port } = await startTlsServer();
    await expect(startOn(`redis://localhost:${port}`, 'pawl', 'fail-fast')).rejects.toMatchObject(refusal('rediss'));
    await startOn(`rediss://localhost:${port}`);
  });
});
