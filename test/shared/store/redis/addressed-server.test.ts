/** Starts on servers that are of another kind than their address says, or that refuse the connection. */
import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startWorker } from '../../../../src/index.ts';
import { connectVerified, openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { echo } from '../../../helpers/tools.ts';
import {
  answering,
  expectSentence,
  hurryStart,
  serverWith,
  startOn,
  startSentinel,
  startTlsServer,
} from './start-rig.ts';

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
