/** A real Redis Cluster of three masters on the loopback. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Server, serverVersion, startServer } from '../chaos/server.ts';
import { freePort } from './free-port.ts';
import { eventually } from './signal.ts';

const SLOTS = 16_384;
const MASTERS = 3;

export interface TestCluster extends AsyncDisposable {
  /** Of one node: whoever connects finds the others. */
  readonly url: string;
  readonly nodes: readonly Server[];
  /** The names of all keys, of all nodes. */
  keys(): Promise<readonly string[]>;
  /** Has a further node take the place of this one, as in a failover, and lets this one follow it. */
  takeOver(from: Server): Promise<void>;
}

/** Why no cluster can be started here; undefined where one can. */
export async function whyNoCluster(): Promise<string | undefined> {
  const version = await serverVersion().catch((error: Error) => error.message);
  return Number.parseInt(version, 10) >= 7
    ? undefined
    : `a cluster needs a redis-server program of version 7: ${version}`;
}

export interface ClusterOptions {
  /** Default `always`: what a node acknowledged is in its file when it is killed, however busy the disk is. */
  readonly appendfsync?: 'always' | 'everysec';
  /** What each node is started with beside, and the port at which the others find it. */
  readonly nodeOptions?: () => Promise<{ readonly port: number; readonly options: readonly string[] }>;
}

export async function startCluster({ appendfsync = 'always', nodeOptions }: ClusterOptions = {}): Promise<TestCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-cluster-'));
  const nodes: Server[] = [];
  /** The first one makes the others known to each other. */
  const start = async (): Promise<Server> => {
    const busPort = String(await freePort());
    const cluster = ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf', '--cluster-port', busPort];
    const options = [...cluster, '--repl-diskless-sync-delay', '0', '--appendfsync', appendfsync];
    const own = await nodeOptions?.();
    const server = await startServer(join(folder, String(nodes.length)), [...options, ...(own?.options ?? [])]);
    await nodes[0]?.admin.call('CLUSTER', 'MEET', '127.0.0.1', own?.port ?? server.port, busPort);
    nodes.push(server);
    return server;
  };
  const settled = () =>
    eventually(async () => (await Promise.all(nodes.map((node) => isSettled(node, nodes.length)))).every(Boolean), {
      what: `a cluster of ${nodes.length} nodes`,
    });
  for (let number = 0; number < MASTERS; number += 1) {
    const { admin } = await start();
    const from = Math.floor((number * SLOTS) / MASTERS);
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', from, Math.floor(((number + 1) * SLOTS) / MASTERS) - 1);
  }
  await settled();
  return {
    url: nodes[0]?.url ?? '',
    nodes,
    // A replica has those of its master.
    keys: async () => [...new Set((await Promise.all(nodes.map(({ admin }) => admin.keys('*')))).flat())],
    takeOver: async (from) => {
      const { admin } = await start();
      await settled();
      const master = String(await from.admin.call('CLUSTER', 'MYID'));
      await admin.call('CLUSTER', 'REPLICATE', master);
      const follows = async () => /master_link_status:up/.test(await admin.info('replication'));
      await eventually(follows, { what: 'a replica' });
      // Who shall vote for it must know it as one.
      const replicasAt = async (node: Server) => (await node.admin.call('CLUSTER', 'REPLICAS', master)) as string[];
      const isKnown = async () => (await Promise.all(nodes.map(replicasAt))).every(({ length }) => length === 1);
      await eventually(isKnown, { what: 'a replica that all nodes know' });
      // One that the nodes do not agree on in time is asked for again.
      const isOver = async () => /role:slave/.test(await from.admin.info('replication'));
      const agree = { deadlineMs: 6_000, what: 'the new master' };
      while (!(await isOver())) {
        await admin.call('CLUSTER', 'FAILOVER');
        await eventually(isOver, agree).catch(() => {});
      }
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function isSettled({ admin }: Server, nodes: number): Promise<boolean> {
  const info = String(await admin.call('CLUSTER', 'INFO'));
  return /cluster_state:ok/.test(info) && info.includes(`cluster_known_nodes:${nodes}`);
}
