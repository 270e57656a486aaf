import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { redisRefusalReason } from '../../../../src/producer/http/core/errors.ts';
import { PawlError } from '../../../../src/shared/errors/failure.ts';
import { isCluster, nodesOf } from '../../../../src/shared/store/redis/address.ts';
import { backendError } from '../../../../src/shared/store/redis/backend-error.ts';
import {
  awaitReady,
  closeConnection,
  connectVerified,
  openConnection,
} from '../../../../src/shared/store/redis/connection.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { luaConstants, Script } from '../../../../src/shared/store/redis/script.ts';
import { startWire } from '../../../helpers/proxy.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { createWorld } from '../../../helpers/world.ts';

const options = (url: string) => redisOptions({ url, name: 'n', mode: 'patient' });

/** Holds the event loop. */
function busy(forMs: number): void {
  const untilMs = performance.now() + forMs;
  while (performance.now() < untilMs);
}

describe('addresses of Redis', () => {
  test.each([
    ['redis://host', { host: 'host', port: 6379 }],
    ['redis://u:p%40ss@host:7000/3', { host: 'host', port: 7000, username: 'u', password: 'p@ss', db: 3 }],
    ['redis://u:70000@host:65535', { host: 'host', port: 65_535, password: '70000' }],
    ['rediss://host', { host: 'host', tls: {} }],
    ['unix:///run/redis.sock', { path: '/run/redis.sock' }],
    ['/run/redis.sock', { path: '/run/redis.sock' }],
    ['/run/redis.sock?db=2&password=p', { path: '/run/redis.sock', db: 2, password: 'p' }],
    ['redis://bücher.example', { host: 'xn--bcher-kva.example', port: 6379 }],
  ])('%s', (url, expected) => {
    expect(options(url)).toMatchObject(expected);
  });

  test.each(['http://u:hunter2@host', 'host:6379', 'hunter2', ''])(
    '%j is refused, and what could be a password is not shown',
    (url) => {
      expect(() => options(url)).toThrow(PawlError);
      expect(() => options(url)).toThrow('REDIS_URL must be redis://, rediss:// or unix:///path');
      expect(() => options(url)).not.toThrow('hunter2');
    },
  );

  test.each([
    ['redis://:hunter2@host/abc', 'The database in REDIS_URL must be a number'],
    ['redis://host/hunter2@host', 'The database in REDIS_URL must be a number'],
    ['redis://:hunter2%@host', 'The password in REDIS_URL has a % that encodes nothing'],
    ['redis://hunter2%zz@host', 'The user name in REDIS_URL has a % that encodes nothing'],
    ['redis://:hunter2@host:65536', 'The port in REDIS_URL must be between 1 and 65535.'],
    ['redis://host:0/1', 'The port in REDIS_URL must be between 1 and 65535.'],
    ['unix:///run/100%', 'The path in REDIS_URL has a % that encodes nothing'],
  ])('%s is refused in a sentence that does not show the password', (url, sentence) => {
    expect(() => options(url)).toThrow(expect.objectContaining({ code: 'CONFIGURATION' }));
    expect(() => options(url)).toThrow(sentence);
    expect(() => options(url)).not.toThrow('hunter2');
  });

  test('DESIGN, decision 12: workers wait for Redis with a capped delay, producers fail fast', () => {
    expect(options('redis://host').maxRetriesPerRequest).toBeNull();
    expect(options('redis://host').retryStrategy?.(10_000)).toBe(1_000);
    expect(redisOptions({ url: 'redis://host', name: 'n', mode: 'fail-fast' }).maxRetriesPerRequest).toBe(1);
  });
});

test.each([
  "READONLY You can't write against a read only replica. script: 84d7, on @user_script:235.",
  // Redis 6.2.
  "ERR Error running script (call to f_84d7): @user_script:235: @user_script: 235: -READONLY You can't write against a read only replica.",
])('a server that has become a replica is left for whoever is behind the address now: %s', (message) => {
  expect(options('redis://host').reconnectOnError?.(new Error(message))).toBe(true);
});

test('a database that the server does not have is refused, and the one that it has is used', async ({ skip }) => {
  const { redisUrl, prefix } = await createWorld();
  skip(isCluster(redisUrl), 'a cluster has one database');
  const wire = await startWire(redisUrl);
  const reached = (database: number) =>
    connectVerified({ url: `${wire.url}/${database}`, name: prefix, mode: 'fail-fast' }, 10_000);
  await expect(reached(99)).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: 'This Redis does not let Pawl use database 99, which REDIS_URL names: ERR DB index is out of range',
  });
  const { redis } = await reached(3);
  onTestFinished(() => redis.disconnect());
  expect(await redis.client('INFO')).toContain(' db=3 ');
});

test('a user that may use no channels, as Redis makes one by itself, is refused before anything is begun', async () => {
  const { redisUrl, prefix } = await createWorld();
  const user = await createUser(redisUrl, prefix, ['~*', '+@all', 'resetchannels']);
  await expect(connectVerified({ url: user.url, name: prefix, mode: 'fail-fast' }, 10_000)).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    message: expect.stringMatching(/NOPERM .*channel/),
  });
  await user.give(`&${prefix}*`);
  const { redis } = await connectVerified({ url: user.url, name: prefix, mode: 'fail-fast' }, 10_000);
  closeConnection(redis);
});

test('a user that may not ask INFO gets one typed error, and nothing is written beside it', async () => {
  const { redisUrl, prefix } = await createWorld();
  const { url } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', '-info']);
  const written = vi.spyOn(console, 'warn').mockReturnValue();
  onTestFinished(() => written.mockRestore());
  const redis = openConnection({ url, name: prefix, mode: 'fail-fast' });
  onTestFinished(() => closeConnection(redis));
  await awaitReady(redis, 10_000);
  await expect(connectVerified({ url, name: prefix, mode: 'fail-fast' }, 10_000)).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    message: expect.stringMatching(/NOPERM .*info/),
  });
  expect(written).not.toHaveBeenCalled();
});

test.each(['+OK', '$-1', ':1', '*0'])('a server that answers %s to everything is no Redis', async (answer) => {
  const server = createServer((socket) =>
    socket.on('data', (data) => socket.write(`${answer}\r\n`.repeat(String(data).match(/\*\d+\r\n/g)?.length ?? 1))),
  ).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await expect(
    connectVerified({ url: `redis://127.0.0.1:${port}`, name: 'n', mode: 'fail-fast' }, 10_000),
  ).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', message: expect.stringContaining('is no Redis') });
});

test('a transaction whose commands Redis refuses is refused as they are', async () => {
  const { redisUrl, prefix } = await createWorld();
  const { url } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', '-rpush']);
  const redis = openConnection({ url, name: prefix, mode: 'fail-fast' });
  onTestFinished(() => closeConnection(redis));
  const unavailable = { code: 'BACKEND_UNAVAILABLE' };
  await expect(redis.multi().rpush(prefix, 'x').exec()).rejects.toMatchObject(unavailable);
});

test('a script runs before what its connection says next, also on a server that does not know it', async () => {
  const { redisUrl, prefix } = await createWorld();
  const redis = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  await awaitReady(redis, 10_000);
  const key = `${prefix}:text`;
  const unknown = new Script(new URL('../../../../src/shared/store/blobs/store-chunk.lua', import.meta.url), [
    luaConstants({ MADE_FOR: prefix }),
  ]);
  for (const part of ['first', 'second']) {
    const kept = unknown.run(redis, [key], ['0', part, 60_000]);
    expect(await redis.hget(key, '0')).toBe(part);
    await kept;
  }
});

describe('Redis out of reach is one typed error', () => {
  test.each([
    'OOM command not allowed',
    'READONLY You can’t write',
    'LOADING Redis is loading',
    "NOPERM this user has no permissions to run the 'set' command",
    "ERR The user executing the script can't run this command or subcommand script: 84d7, on @user_script:297.",
    "ERR The user executing the script can't publish to the channel mentioned in the command script: 84d7, on @user_script:159.",
    "ERR ACL failure in script: User default has no permissions to run the 'incrby' command script: on @user_script:1130.",
    'ERR ACL failure in script: No permissions to access a key script: 84d7, on @user_script:12.',
    'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
    'BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
    'Connection is closed.',
    'Command timed out',
    'Unknown RESP type 60 "<". Please report this.',
    'connect ECONNREFUSED 127.0.0.1:1',
  ])('%s', (message) => {
    expect(backendError(new Error(message))).toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  });

  test('the error of a lost connection says so, and names no option of ioredis, nor a script', () => {
    const cause = new Error(
      'Reached the max retries per request limit (which is 1). Refer to "maxRetriesPerRequest" option for details.',
    );
    expect(backendError(cause)).toMatchObject({ message: 'Redis cannot be used: the connection was lost.', cause });
    // Valkey 9 names the line alone.
    for (const place of [`${'3d'.repeat(20)}, on @user_script:1053.`, 'on @user_script:1053.'])
      expect(backendError(new Error(`MISCONF No space left on device script: ${place}`))).toMatchObject({
        message: 'Redis cannot be used: MISCONF No space left on device.',
      });
  });

  test.each([
    "ERR ACL failure in script: User ada has no permissions to run the 'incrby' command script: on @user_script:1130.",
    "ERR The user executing the script can't run this command or subcommand script: 84d7, on @user_script:297.",
  ])('the refusal of a script names the lack of rights, as doctor and the HTTP API read it: %s', (message) => {
    expect(redisRefusalReason(backendError(new Error(message)))).toBe('the Redis user lacks rights');
  });

  test('the error of a cluster says what its nodes answered', () => {
    const failed = (message: string) =>
      Object.assign(new Error('Failed to refresh slots cache.'), {
        name: 'ClusterAllFailedError',
        lastNodeError: new Error(message),
      });
    const messages = [
      [
        'NOAUTH HELLO must be called with the client already authenticated',
        /NOAUTH: it asks for a password, and REDIS_URL/,
      ],
      ['WRONGPASS invalid username-password pair', /WRONGPASS invalid username-password pair/],
      ['NOPERM this user has no permissions to run the cluster|slots command', /NOPERM this user .*cluster/],
      ['ERR This instance has cluster support disabled', /nothing in REDIS_URL answers as a node of a Redis Cluster/],
    ] as const;
    for (const [reply, said] of messages)
      expect(backendError(failed(reply))).toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(said),
      });
    expect(
      backendError(new Error('Too many Cluster redirections. Last error: Error: Connection is closed.')),
    ).toMatchObject({
      message: 'Redis cannot be used: no node of the cluster took the command: Connection is closed.',
    });
  });

  test('the error of a connection that this process closed says so, and blames no Redis', async () => {
    const { redisUrl, prefix } = await createWorld();
    const client = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
    await awaitReady(client, 10_000);
    closeConnection(client);
    await expect(client.ping()).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: 'The connection to Redis was closed by this process.',
    });
  });

  test.each([
    'ERR max daily request limit exceeded. Limit: 10000, Usage: 10001.',
    'ERR DB capacity quota exceeded. Limit: 268435456 bytes',
    'DENIED by the policy of this proxy',
    'upstream failure',
  ])('so is the refusal of a service, and no other error with such words: %s', (message) => {
    const reply = Object.assign(new Error(message), { name: 'ReplyError' });
    expect(backendError(reply)).toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: `Redis cannot be used: ${message}`,
    });
    const other = new Error(message);
    expect(backendError(other)).toBe(other);
  });

  test('a value that another program wrote is refused with its key, and with what to do', async () => {
    const { redisUrl, prefix } = await createWorld();
    const client = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
    onTestFinished(() => closeConnection(client));
    const key = `${prefix}:counter`;
    await client.hset(key, 'calls', 'many');
    const lua = "return redis.call('HINCRBY', KEYS[2], 'calls', 1)";
    for (const [command, named] of [
      [() => client.hincrby(key, 'calls', 1), `the key ${key}: ERR hash value is not an integer`],
      [() => client.get(key), `the key ${key}: WRONGTYPE`],
      [() => client.eval(lua, 2, 'a', key), `one of the keys a…, ${key}…: ERR hash value is not an integer`],
    ] as const)
      await expect(command()).rejects.toMatchObject({
        code: 'CONFIGURATION',
        message: expect.stringMatching(new RegExp(`, at ${named}.*\\. Put back what was there, or delete the key\\.$`)),
      });
  });

  test('a defect of ours passes through', () => {
    const defect = new Error('ERR user_script:1: attempt to index a nil value');
    expect(backendError(defect)).toBe(defect);
  });

  test('a server that closes each connection is reported as such', async () => {
    const server = createServer((socket) => socket.end());
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    onTestFinished(() => void server.close());
    const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const client = openConnection({ url, name: 'n', mode: 'fail-fast' });
    onTestFinished(() => client.disconnect());
    await expect(awaitReady(client, 300)).rejects.toThrow('it closes each connection without an answer');
  });

  test('a cluster whose nodes cannot be reached by the names that they announce is reported with the reason', async () => {
    const node = 'node.invalid';
    const slots = `*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$${node.length}\r\n${node}\r\n:6379\r\n`;
    const reply = (command: string) => (/\bslots\b/i.test(command) ? slots : '+OK\r\n');
    const server = createServer((socket) => {
      socket.on('data', (data) =>
        socket.write(
          data
            .toString()
            .split(/\*\d+\r\n/)
            .slice(1)
            .map(reply)
            .join(''),
        ),
      );
    });
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    onTestFinished(() => void server.close());
    const url = `redis+cluster://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const client = openConnection({ url, name: 'n', mode: 'fail-fast' });
    onTestFinished(() => client.disconnect());
    await expect(awaitReady(client, 300)).rejects.toThrow(
      /at the address that it announces .*: getaddrinfo \w+ node\.invalid$/,
    );
  });

  test('no caller waits for it longer than its limit', async () => {
    const client = openConnection({ url: 'redis://127.0.0.1:1', name: 'n', mode: 'fail-fast' });
    try {
      await expect(awaitReady(client, 100)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    } finally {
      client.disconnect();
    }
  });

  test('the server’s own reason is given once', async ({ skip }) => {
    const { redisUrl, prefix } = await createWorld();
    skip(isCluster(redisUrl), 'a cluster’s nodes are asked one by one');
    const wire = await startWire(redisUrl);
    const url = wire.url.replace('//', '//nobody:wrong@');
    await expect(connectVerified({ url, name: prefix, mode: 'fail-fast' }, 1_000)).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringMatching(/^Redis cannot be used: WRONGPASS/),
    });
  });

  test('a process that was too busy to hear an answer still hears it', async () => {
    const { redisUrl, prefix } = await createWorld();
    const client = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast', socketTimeoutMs: 500 });
    onTestFinished(() => client.disconnect());
    const ready = awaitReady(client, 500);
    busy(1_000);
    await ready;
    const cut = vi.fn();
    client.on('close', cut);
    const asked = client.ping();
    // By then the command is on its way.
    await setImmediate();
    busy(1_000);
    expect(await asked).toBe('PONG');
    expect(cut).not.toHaveBeenCalled();
  });
});

test.each([
  ['redis://one:7000', false, ['redis://one:7000']],
  ['redis://:a,b@one:7000', false, ['redis://:a,b@one:7000']],
  ['unix:///tmp/a,b', false, ['unix:///tmp/a,b']],
  ['redis+cluster://u:p@one:7000', true, ['redis://u:p@one:7000']],
  ['redis://:a,b@one:7000,two:7001, three', true, ['redis://:a,b@one:7000', 'redis://two:7001', 'redis://three']],
  ['rediss://u:p@one,rediss://u:p@two', true, ['rediss://u:p@one', 'rediss://u:p@two']],
])('%s is a cluster: %s', (url, clustered, nodes) => {
  expect([isCluster(url), clustered ? nodesOf(url) : nodes]).toEqual([clustered, nodes]);
});

test('a connection that has ended can be closed again and again, and nothing is kept of that', async () => {
  const { redisUrl: url, prefix } = await createWorld();
  const client = openConnection({ url, name: `${prefix}:test`, mode: 'patient' });
  await awaitReady(client, 10_000);
  const ended = once(client, 'end');
  closeConnection(client);
  await ended;
  const { stream } = client as unknown as { readonly stream: Socket };
  const listeners = stream.listenerCount('close');
  for (let times = 0; times < 20; times += 1) closeConnection(client);
  expect(stream.listenerCount('close')).toBe(listeners);
});
