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
import type { Server } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { startCluster, whyNoCluster } from '../../../helpers/cluster.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { eventually, signal } from '../../../helpers/signal.ts';

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
  return { port: ports[0] ?? 0, ports, cluster };
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

test('the error of a start names the master that does not answer, and why; one whose slots have no master says so', async () => {
  const why = await whyNoCluster();
  if (why !== undefined) throw new Error(why);
  const { port, cluster } = await startTlsCluster('name');
  const [first, second] = cluster.nodes;
  if (first === undefined || second === undefined) throw new Error('a cluster without nodes');
  const [firstSlot, lastSlot] = [5_461, 10_921] as const;
  const start = async () => {
    const url = `rediss://localhost:${port}`;
    const { redis } = await connectVerified({ url, name: 'test', mode: 'fail-fast' }, 1_000);
    closeConnection(redis);
  };
  const announce = async (name: string, seen = name) => {
    await second.admin.config('SET', 'cluster-announce-hostname', name);
    const knows = async ({ admin }: Server) => {
      const slots = (await admin.call('CLUSTER', 'SLOTS')) as [start: number, end: number, master: [name: string]][];
      return slots.find(([start]) => start === firstSlot)?.[2][0] === seen;
    };
    const known = async () => (await Promise.all(cluster.nodes.map(knows))).every(Boolean);
    await eventually(known, { what: 'a name that all nodes know' });
  };
  for (const [name, seen, reason] of [
    ['nowhere.invalid', 'nowhere.invalid', /: nowhere\.invalid:\d+: getaddrinfo \w+ nowhere\.invalid$/],
    // It is no IP address, but the network resolves it.
    [
      '127.1',
      '127.1',
      /: 127\.1:\d+: Hostname\/IP does not match .*Host: 127\.1\. is not in the cert's altnames: DNS:localhost/,
    ],
    ['', '?', /: the one at port \d+ announces no name \(cluster-announce-hostname\)$/],
  ] as const) {
    await announce(name, seen);
    const refusal = await start().catch((error: Error) => error);
    expect(refusal).toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringMatching(/^Redis cannot be used: a master of the cluster does not answer/),
    });
    expect(refusal).toMatchObject({ message: expect.stringMatching(reason) });
  }
  // A node that is named again is used again.
  await announce('localhost');
  await start();

  const url = `rediss://localhost:${port}`;
  const prefer = (type: string) =>
    Promise.all(cluster.nodes.map(({ admin }) => admin.config('SET', 'cluster-preferred-endpoint-type', type)));
  await prefer('unknown-endpoint');
  await expect(start()).rejects.toThrow('the nodes of the cluster announce no addresses');
  await prefer('hostname');

  const { redis } = await connectVerified({ url, name: 'test', mode: 'fail-fast' }, 10_000);
  onTestFinished(() => closeConnection(redis));
  const isOwned = (slot = 0) => slot >= firstSlot && slot <= lastSlot;
  const key = [...'abcdefghijklmnop'].find((name) => isOwned(slotOf(redis, name)?.slot)) ?? '';
  await second.kill();
  await expect(redis.get(key)).rejects.toThrow(
    /^Redis cannot be used: no node of the cluster took the command: localhost:\d+: connect ECONNREFUSED/,
  );
  await second.start();

  // A node learns of the slots again from one that has not dropped them yet.
  const isDown = async () => {
    for (const { admin } of cluster.nodes)
      await admin.call('CLUSTER', 'DELSLOTSRANGE', firstSlot, lastSlot).catch(() => undefined);
    return /cluster_state:fail/.test(String(await first.admin.call('CLUSTER', 'INFO')));
  };
  await eventually(isDown, { what: 'a cluster that is down' });
  await expect(start()).rejects.toThrow(
    'Redis cannot be used: the cluster is down (cluster_state:fail), as 5461 of its 16384 slots have no master that answers',
  );
});
