/** A real failover by Redis Sentinel: the connections leave a master that was replaced while it lives. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { awaitReady, closeConnection, openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { type Server, startServer } from '../../../chaos/server.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { startProgram } from '../../../helpers/process.ts';
import { eventually } from '../../../helpers/signal.ts';

/** Sentinel leaves a master that it replaced alone for longer than this, and the master takes writes as long. */
const SOON_MS = 6_000;

async function startWatched(): Promise<{ readonly url: string; readonly master: Server; readonly replica: Server }> {
  const folder = temporaryFolder();
  const master = await startServer(join(folder, 'master'), ['--repl-diskless-sync-delay', '0']);
  onTestFinished(() => master[Symbol.asyncDispose]());
  const replica = await startServer(join(folder, 'replica'), ['--replicaof', '127.0.0.1', String(master.port)]);
  onTestFinished(() => replica[Symbol.asyncDispose]());
  const linked = async () => /master_link_status:up/.test(await replica.admin.info('replication'));
  await eventually(linked, { what: 'a replica' });
  const port = await freePort();
  const file = join(folder, 'sentinel.conf');
  writeFileSync(
    file,
    `port ${port}\nbind 127.0.0.1\ndir ${folder}\nsentinel monitor watched 127.0.0.1 ${master.port} 1\n`,
  );
  const binary = await findRedisBinary();
  if (binary.kind !== 'executable') throw new Error('needs a redis-server program');
  const sentinel = startProgram(binary.command, [file, '--sentinel']);
  await sentinel.line(/\+slave slave/);
  return { url: `redis+sentinel://127.0.0.1:${port}/watched`, master, replica };
}

test('a master that Sentinel replaces while it lives gets no more writes, and a Sentinel that is away is no news', async () => {
  const { url: aliveUrl, master, replica } = await startWatched();
  const url = aliveUrl.replace('/watched', ',127.0.0.1:1/watched');
  // ioredis writes there what nothing listens to.
  const written = vi.spyOn(console, 'error');
  onTestFinished(() => written.mockRestore());
  const [client, closing] = [1, 2].map((number) => openConnection({ url, name: `c${number}`, mode: 'patient' }));
  if (client === undefined || closing === undefined) throw new Error('no connections');
  onTestFinished(() => closeConnection(client));
  // One that is closed before it is made leaves nothing open.
  closeConnection(closing);
  await awaitReady(client, 10_000);
  await client.set('before', '1');
  const sentinelUrl = aliveUrl.replace('redis+sentinel', 'redis').replace('/watched', '');
  const sentinel = openConnection({ url: sentinelUrl, name: 's', mode: 'fail-fast' });
  onTestFinished(() => closeConnection(sentinel));
  // Sentinel refuses until it knows that the replica follows.
  const asked = async () => (await sentinel.call('SENTINEL', 'FAILOVER', 'watched').catch(() => '')) === 'OK';
  await eventually(asked, { what: 'a failover', deadlineMs: 30_000 });
  const isPromoted = async () => /role:master/.test(await replica.admin.info('replication'));
  await eventually(isPromoted, { what: 'a new master', deadlineMs: 30_000 });
  const promotedAtMs = performance.now();
  const isThere = async () => (await client.set('after', '1')) === 'OK' && (await replica.admin.exists('after')) === 1;
  await eventually(isThere, { what: 'a write to the new master', deadlineMs: SOON_MS });
  expect(performance.now() - promotedAtMs).toBeLessThan(SOON_MS);
  expect(await master.admin.exists('before')).toBe(1);
  expect(written).not.toHaveBeenCalled();
});
