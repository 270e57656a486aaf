import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { connect, startWorker } from '../../../../src/index.ts';
import type { SettingsInput } from '../../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { openBackend } from '../../../../src/shared/store/backend.ts';
import { ClockFollower } from '../../../../src/shared/store/clock-follower.ts';
import {
  connectVerified,
  openConnection,
  type Redis,
  serverTimeMs,
} from '../../../../src/shared/store/redis/connection.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { checkRights } from '../../../../src/shared/store/redis/start-check.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { type Server, startServer } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { startPawl, startProgram } from '../../../helpers/process.ts';
import { startWire } from '../../../helpers/proxy.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { echo } from '../../../helpers/tools.ts';
import { createWorld } from '../../../helpers/world.ts';

const BULLMQ_SCRIPTS = fileURLToPath(new URL('../../../../node_modules/bullmq/dist/esm/scripts/', import.meta.url));
const OTHERWISE = new Set(
  'PUBLISH SUBSCRIBE UNSUBSCRIBE EVAL EVALSHA MULTI BLPOP BZPOPMIN INFO CONFIG PING SELECT CALL DISCONNECT'.split(' '),
);
const STORE = fileURLToPath(new URL('../../../../src/shared/store/', import.meta.url));

async function startOn(
  redisUrl: string,
  prefix = 'pawl',
  mode: 'fail-fast' | 'patient' = 'patient',
  options: Partial<SettingsInput> = {},
): Promise<void> {
  const settings = resolveSettings({ options: { redisUrl, prefix, ...options } });
  const backend = await openBackend({ settings, name: 'test', mode, log: silentLogger });
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

/** The address of a server that answers each command as the test says. */
async function answering(answerTo: (command: string) => string): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const commands = bytes.toString().matchAll(/\*\d+\r\n\$\d+\r\n(\w+)\r\n/g);
      for (const [, command = ''] of commands) socket.write(answerTo(command.toLowerCase()));
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The limit of a start is 300 ms. */
function hurryStart(): void {
  const start = globalThis.setTimeout;
  const hurry = (run: () => void, ms?: number) => start(run, ms === 15_000 ? 300 : ms);
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(hurry as typeof setTimeout);
  onTestFinished(() => void vi.restoreAllMocks());
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

  test.each(['multi', 'exec', 'xrevrange', 'ping'])(
    'of a producer without %s is refused at the start, too',
    async (command) => {
      const { redisUrl, prefix } = await createWorld();
      const { url } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', `-${command}`]);
      await expect(startOn(url, prefix, 'fail-fast')).rejects.toMatchObject({
        message: expect.stringContaining(`+${command}`),
      });
    },
  );

  test('without waitaof is refused where a tool’s calls wait for the disk', async ({ skip }) => {
    const { redisUrl, prefix } = await createWorld();
    const rules = ['~*', '&*', '+@all', '-waitaof'];
    const user = await createUser(redisUrl, prefix, rules).catch(() => skip('this Redis has no WAITAOF'));
    await startOn(user.url, prefix);
    for (const options of [{ durability: 'waitaof' }, { tools: { pay: { durability: 'waitaof' } } }] as const)
      await expect(startOn(user.url, prefix, 'patient', options)).rejects.toMatchObject({
        message: expect.stringMatching(/ACL SETUSER \S+ \+waitaof$/),
      });
  });

  test('without the channels or the keys is refused with their patterns', async () => {
    const { redisUrl, prefix } = await createWorld();
    const { url, give } = await createUser(redisUrl, prefix, ['~*', 'resetchannels', '+@all']);
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`&${prefix}:*`) });
    await give(`&${prefix}:*`, 'resetkeys', '~other:*');
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`~${prefix}:*`) });
  });

  test.each([
    ['reads alone', ['-@all', '+@read', '+@connection']],
    ['what is fast', ['+@all', '-@slow']],
    ['what is slow', ['+@all', '-@fast']],
  ])('of %s can do all that a call needs once it has the rules that the start names', async (_kind, rules) => {
    const { redisUrl, prefix } = await createWorld();
    const { url, give } = await createUser(redisUrl, prefix, ['~*', '&*', ...rules]);
    for (let refused = true; refused; ) {
      refused = false;
      await startOn(url, prefix).catch(async (error: Error) => {
        refused = true;
        const rule = /ACL SETUSER \S+ (.+)$/.exec(error.message)?.[1];
        if (rule === undefined) throw error;
        await give(...rule.split(' '));
      });
    }
    const worker = await startWorker({ tools: [echo], redisUrl: url, prefix, log: silentLogger });
    const pawl = await connect({ redisUrl: url, prefix, log: silentLogger });
    onTestFinished(async () => {
      await pawl.close();
      await worker.close();
    });
    const session = await pawl.openSession({ actorId: 'ada' });
    expect(await session.call(echo, { text: 'said' }, { timeoutMs: 20_000 })).toMatchObject({ status: 'success' });
  });

  test('is tried with every command that a script, BullMQ or the code uses', () => {
    const used = new Set<string>();
    const find = (folder: string, file: RegExp, command: RegExp): void => {
      const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => file.test(name));
      expect(files.length).toBeGreaterThan(8);
      for (const name of files)
        for (const [, first = ''] of readFileSync(join(folder, name), 'utf8').matchAll(command))
          for (const [word] of first.matchAll(/[A-Za-z]{3,}/g)) used.add(word.toUpperCase());
    };
    find(STORE, /(?<!try-commands)\.lua$/, /redis\.p?call\((?:\w+ and )?('\w+'(?: or '\w+')?)/g);
    find(
      BULLMQ_SCRIPTS,
      /^(?:add(?:Standard|Delayed|Prioritized)Job|moveTo(?:Active|Delayed|Finished)|moveStalledJobsToWait|extendLocks?|retryJob|promote|changeDelay|removeJob|getCounts|getRanges|getStateV2)-\d+\.js$/,
      /call\(["'](\w+)["']/g,
    );
    find(STORE, /\.ts$/, /\bredis\.([a-z]+)(?:Buffer)?\(/g);
    const tried = readFileSync(join(STORE, 'redis/try-commands.lua'), 'utf8');
    // They are tried on their own, are methods of the client, or may be missing.
    for (const name of OTHERWISE) used.delete(name);
    expect([...used].filter((name) => !tried.includes(`{'${name}'`))).toEqual([]);
  });
});

describe('an answer that Pawl does not know', () => {
  test.each(['PUBLISH', 'SUBSCRIBE', 'EVALSHA', 'TIME', 'HGETALL', 'BLPOP'])(
    'of a server without %s ends the start in one sentence that names it',
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

  test('of something else ends it in one sentence with the reason', async () => {
    const startWith = async (answer: string, reason: RegExp) => {
      const server = createServer((socket) => {
        socket.on('error', () => {});
        socket.on('data', () => socket.write(answer));
      });
      await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
      onTestFinished(() => void server.close());
      const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
      await expect(startOn(url, 'pawl', 'fail-fast'), answer).rejects.toMatchObject({
        name: 'PawlError',
        code: expect.stringMatching(/BACKEND_UNAVAILABLE|CONFIGURATION/),
        message: expect.stringMatching(reason),
      });
      if (answer.startsWith('-')) await expectSentence(url, 7, reason);
    };
    // Each waits as long as a start does for an answer that it knows.
    await Promise.all([
      startWith(
        '-ERR max daily request limit exceeded. Limit: 10000, Usage: 10001.\r\n',
        /max daily request limit exceeded/,
      ),
      startWith('-DENIED this proxy takes no such thing\r\n', /DENIED this proxy takes no such thing/),
      startWith('HTTP/1.1 400 Bad Request\r\n\r\n', /does not speak the protocol of Redis/),
      startWith('+surprise\r\n', /Redis cannot be used/),
    ]);
  });

  test.each(['publish', 'time', 'eval', 'hgetall'])(
    'is that of a proxy that goes silent at %s: a worker does not wait for it without end',
    async (command) => {
      const { redisUrl } = await createWorld();
      const wire = await startWire(redisUrl);
      wire.deafenWhenSaid(`\n${command}\r`);
      hurryStart();
      await expect(startOn(wire.url)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining('no answer within'),
      });
    },
  );

  test.each([[null], ['OK'], [[]], [[null, null]], [[{}, 1]], [['x', '1']]])(
    'of a proxy that answers TIME with %j ends it in one sentence',
    async (answer) => {
      const proxy = { time: async () => answer, on: () => {} } as unknown as Redis;
      const refusal = {
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining(`it answered TIME with ${JSON.stringify(answer)}`),
      };
      await expect(serverTimeMs(proxy)).rejects.toMatchObject(refusal);
      const follower = new ClockFollower(proxy);
      onTestFinished(() => follower.close());
      await expect(follower.read()).rejects.toMatchObject(refusal);
    },
  );

  test.each(['OK', null, 1])('of a proxy that answers a script with %j ends it in one sentence', async (answer) => {
    const proxy = { on: () => {}, options: {}, eval: async () => answer } as unknown as Redis;
    await expect(checkRights(proxy, 'pawl', { blocks: false, waits: false })).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining(`it answered EVAL with ${JSON.stringify(answer)}`),
    });
  });
});

describe('what stands behind an address', () => {
  test('is said of a Sentinel, and the server that it watches is reached by its name', async () => {
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

  test('is said of a Sentinel of Valkey, which names its mode otherwise', async () => {
    const info =
      '# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:sentinel\r\n';
    const url = await answering((command) => (command === 'info' ? `$${info.length}\r\n${info}\r\n` : '+OK\r\n'));
    await expect(startOn(url)).rejects.toMatchObject({
      code: 'CONFIGURATION',
      message: expect.stringContaining('redis+sentinel://'),
    });
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

  test('is said of one that takes the first connections of a worker and no more', async () => {
    const { url, admin } = await serverWith('--maxclients', '3');
    await admin.ping();
    hurryStart();
    await expect(startWorker({ tools: [echo], redisUrl: url, log: silentLogger })).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('maxclients'),
    });
  });

  test('is said of a cluster that announces no address of its nodes', async () => {
    const bus = ['--cluster-enabled', 'yes', '--cluster-port', String(await freePort())];
    const { port, admin } = await serverWith(...bus, '--cluster-config-file', 'nodes.conf');
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    const options = { url: `redis+cluster://127.0.0.1:${port}`, name: 'n', mode: 'fail-fast' } as const;
    await expect(connectVerified(options, 500)).rejects.toThrow('the nodes of the cluster announce no addresses');
  });

  test('is said of a server in protected mode, which refuses what comes from another address', async ({ skip }) => {
    const address = Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .find(({ internal, family }) => !internal && family === 'IPv4')?.address;
    if (address === undefined) return skip('this machine has no other address');
    const { port, admin } = await serverWith('--protected-mode', 'yes');
    await admin.config('SET', 'bind', `127.0.0.1 ${address}`);
    const refused = startOn(`redis://${address}:${port}`, 'pawl', 'fail-fast');
    await expect(refused).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringMatching(/protected mode.*requirepass/),
    });
  });

  test('is said of a server that asks for a client certificate, or whose authority is not known, and how to name them', async () => {
    const { serverOptions, authorityPart, clientParts } = makeCertificates('localhost', { trusted: false });
    const port = await freePort();
    await serverWith(...serverOptions(port), '--tls-auth-clients', 'yes');
    const url = `rediss://localhost:${port}`;
    const { clientParts: strange, authorityPart: otherAuthority } = makeCertificates('localhost', { trusted: false });
    const refusals = [
      [url, '?ca=/path'],
      [`${url}?${otherAuthority}`, 'ca in REDIS_URL names the file of another authority'],
      [`${url}?${authorityPart}`, 'asks for a client certificate'],
      [`${url}?${authorityPart}&${strange}`, 'refuses the client certificate'],
    ] as const;
    const refuse = ([each, why]: (typeof refusals)[number]) =>
      expect(startOn(each, 'pawl', 'fail-fast'), each).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(new RegExp(`^[^\\n]*${why.replace('?', '\\?')}[^\\n]*$`)),
      });
    await Promise.all(refusals.map(refuse));
    await startOn(`${url}?${authorityPart}&${clientParts}`);
    await startOn(`redis://localhost:${port}?${clientParts}&${authorityPart}`);
    const wrong = [
      [`?${authorityPart}&tls=false`, 'asks for TLS'],
      [`?${authorityPart}&${authorityPart}`, 'names its tls twice'],
      [`?${clientParts.split('&')[0]}`, 'cert and key'],
      ['?ca=/nowhere', 'cannot be read (ENOENT)'],
    ] as const;
    for (const [parts, why] of wrong)
      await expect(startOn(url + parts), parts).rejects.toMatchObject({
        code: 'CONFIGURATION',
        message: expect.stringContaining(why),
      });
  });

  test('is said of a server without TLS, and of one with TLS alone', async () => {
    const { url } = await serverWith();
    const { port } = await startTlsServer();
    const refuse = (wrong: string, scheme: string) =>
      expect(startOn(wrong, 'pawl', 'fail-fast'), wrong).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining(`use ${scheme}://`),
      });
    await Promise.all([
      refuse(url.replace('redis:', 'rediss:'), 'redis'),
      refuse(`redis://localhost:${port}`, 'rediss'),
    ]);
    await startOn(`rediss://localhost:${port}`);
  });
});

test('a second error of a socket ends no process, with TLS and by way of a Sentinel as well', async () => {
  const watched = await serverWith();
  const urls = [
    watched.url,
    `rediss://localhost:${(await startTlsServer()).port}`,
    `redis+sentinel://127.0.0.1:${await startSentinel(temporaryFolder(), watched.port)}/watched`,
  ];
  for (const url of urls) {
    const redis = openConnection({ url, name: 'n', mode: 'fail-fast' });
    onTestFinished(() => void redis.disconnect());
    redis.on('error', () => {});
    await redis.ping();
    const { stream } = redis as unknown as { readonly stream: Socket };
    for (const number of [1, 2, 3]) stream.emit('error', new Error(`alert ${number}`));
    stream.destroy();
    expect(await redis.ping(), url).toBe('PONG');
  }
});
