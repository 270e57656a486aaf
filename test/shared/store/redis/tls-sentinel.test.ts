/** A master behind a Sentinel, both with TLS, certificates for names alone, and passwords of their own. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished, test } from 'vitest';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { openBackend } from '../../../../src/shared/store/backend.ts';
import { closeConnection, connectVerified, openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { type Server, startServer } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { startProgram } from '../../../helpers/process.ts';
import { eventually } from '../../../helpers/signal.ts';

async function startWatched(announced: 'name' | 'address') {
  const folder = temporaryFolder();
  const certificates = makeCertificates('localhost');
  const host = announced === 'name' ? 'localhost' : '127.0.0.1';
  const start = async (name: string, options: readonly string[]): Promise<Server & { readonly tlsPort: number }> => {
    const tlsPort = await freePort();
    const tls = [...certificates.serverOptions(tlsPort), '--tls-replication', 'yes'];
    const server = await startServer(join(folder, name), [...tls, '--replica-announce-ip', host, ...options]);
    onTestFinished(() => server[Symbol.asyncDispose]());
    await server.admin.call('ACL', 'SETUSER', 'pawl', 'on', '>word', '~*', '&*', '+@all');
    return Object.assign(server, { tlsPort });
  };
  const master = await start('master', ['--repl-diskless-sync-delay', '0']);
  const replica = await start('replica', ['--replicaof', host, String(master.tlsPort)]);
  const linked = async () => /master_link_status:up/.test(await replica.admin.info('replication'));
  await eventually(linked, { what: 'a replica' });
  const port = await freePort();
  const file = join(folder, 'sentinel.conf');
  const options = [...certificates.serverOptions(port), '--tls-replication', 'yes', '--port', '0'];
  const lines = [
    ...options.join(' ').split(/ ?--/).filter(Boolean),
    `dir ${folder}`,
    'requirepass other-word',
    ...(announced === 'name' ? ['sentinel resolve-hostnames yes', 'sentinel announce-hostnames yes'] : []),
    `sentinel monitor watched ${host} ${master.tlsPort} 1`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const binary = await findRedisBinary();
  if (binary.kind !== 'executable') throw new Error('needs a redis-server program');
  const sentinel = startProgram(binary.command, [file, '--sentinel']);
  await sentinel.line(/\+slave slave/);
  return { port, master, replica };
}

test.each(['name', 'address'] as const)(
  'a master that a Sentinel announces by its %s is used with TLS, and so is its successor',
  { timeout: 90_000 },
  async (announced) => {
    const { port, replica } = await startWatched(announced);
    const url = `rediss+sentinel://pawl:word@localhost:${port}/watched?sentinelPassword=other-word`;
    const settings = resolveSettings({ options: { redisUrl: url } });
    const backend = await openBackend({ settings, name: 'test', mode: 'patient', log: silentLogger });
    await backend.close();

    const { redis } = await connectVerified({ url, name: 'test', mode: 'patient' }, 10_000);
    onTestFinished(() => closeConnection(redis));
    await redis.set('before', '1');
    const isReplicated = async () => (await replica.admin.exists('before')) === 1;
    await eventually(isReplicated, { what: 'a write at the replica' });
    const sentinel = openConnection({
      url: `rediss://:other-word@localhost:${port}`,
      name: 'sentinel',
      mode: 'fail-fast',
    });
    onTestFinished(() => closeConnection(sentinel));
    const asked = async () => (await sentinel.call('SENTINEL', 'FAILOVER', 'watched').catch(() => '')) === 'OK';
    await eventually(asked, { what: 'a failover', deadlineMs: 30_000 });
    const isPromoted = async () => /role:master/.test(await replica.admin.info('replication'));
    await eventually(isPromoted, { what: 'a new master', deadlineMs: 30_000 });
    const isThere = async () => (await redis.set('after', '1')) === 'OK' && (await replica.admin.exists('after')) === 1;
    await eventually(isThere, { what: 'a write to the new master', deadlineMs: 30_000 });
  },
);
