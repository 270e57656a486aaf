import { Queue, Worker } from 'bullmq';
import { expect, onTestFinished, test } from 'vitest';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { openBackend } from '../../../../src/shared/store/backend.ts';
import {
  closeConnection,
  connectVerified,
  isClustered,
  slotOf,
} from '../../../../src/shared/store/redis/connection.ts';
import { nodeOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { Subscription } from '../../../../src/shared/store/redis/subscription.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { freePort } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { startCluster, whyNoCluster } from '../../../helpers/cluster.ts';
import { signal } from '../../../helpers/signal.ts';

/** Three masters that speak TLS, with a certificate for `localhost` alone. */
async function startTlsCluster(announced: 'name' | 'address') {
  const certificates = makeCertificates('localhost');
  const ports: number[] = [];
  const names = ['--cluster-announce-hostname', 'localhost', '--cluster-preferred-endpoint-type', 'hostname'];
  const cluster = await startCluster({
    nodeOptions: async () => {
      const port = await freePort();
      ports.push(port);
      const options = [...certificates.serverOptions(port), '--tls-cluster', 'yes', '--tls-replication', 'yes'];
      return { port, options: announced === 'name' ? [...options, ...names] : options };
    },
  });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  return { port: ports[0] ?? 0, ports };
}

test.each(['name', 'address'] as const)(
  'a cluster whose certificates have names is used with TLS, its nodes announced by %s: commands, jobs and subscriptions',
  async (announced) => {
    const why = await whyNoCluster();
    if (why !== undefined) throw new Error(why);
    const { port, ports } = await startTlsCluster(announced);
    // The one node that was named says that it belongs to a cluster.
    const { url, redis } = await connectVerified(
      { url: `rediss://localhost:${port}`, name: 'test', mode: 'fail-fast' },
      10_000,
    );
    onTestFinished(() => closeConnection(redis));
    expect(isClustered(redis)).toBe(true);
    for (let number = 0; number < 20; number += 1) await redis.set(`key ${number}`, String(number));
    for (let number = 0; number < 20; number += 1) expect(await redis.get(`key ${number}`)).toBe(String(number));

    for (const [index, key] of ['{a}', '{b}', '{c}'].entries()) {
      const node = slotOf(redis, key)?.node;
      expect(node).toMatch(announced === 'name' ? /^localhost:/ : /^127\.0\.0\.1:/);
      const connection = nodeOptions({ url, name: `jobs ${index}`, mode: 'patient' }, () => node) as never;
      const done = signal<unknown>();
      const worker = new Worker(`jobs${index}`, async (job) => done.fire(job.data), { connection, prefix: key });
      const queue = new Queue(`jobs${index}`, { connection, prefix: key });
      worker.on('error', () => {});
      queue.on('error', () => {});
      await queue.add('job', { index });
      expect(await done.promise).toEqual({ index });
      await worker.close();
      await queue.close();
    }

    const heard = signal<string>();
    const subscribed = signal<void>();
    const subscription = Subscription.open({
      url,
      name: 'subscription',
      channels: () => ['channel'],
      node: () => slotOf(redis, '{b}')?.node,
      onMessage: (text) => heard.fire(text),
      onSubscribed: () => subscribed.fire(),
      onError: () => {},
    });
    onTestFinished(() => subscription.close());
    await subscribed.promise;
    await redis.publish('channel', 'hello');
    expect(await heard.promise).toBe('hello');

    const settings = resolveSettings({ options: { redisUrl: `rediss://localhost:${port}` } });
    const backend = await openBackend({ settings, name: 'test', mode: 'patient', log: silentLogger });
    expect(backend.clustered).toBe(true);
    await backend.close();

    // By an address that is not in the certificate, and without a name that is.
    const strange = `rediss+cluster://${ports.map((each) => `127.0.0.1:${each}`).join(',')}`;
    await expect(connectVerified({ url: strange, name: 'stranger', mode: 'fail-fast' }, 2_000)).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('Name a node in REDIS_URL as its certificate does'),
    });
  },
);
