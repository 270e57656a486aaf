/** A real Redis Cluster of three masters on the loopback. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, type Server, serverVersion, startServer } from '../chaos/server.ts';
import { eventually } from './signal.ts';

const SLOTS = 16_384;
const NODES = 3;

export interface TestCluster extends AsyncDisposable {
  /** Of one node: whoever connects finds the others. */
  readonly url: string;
  readonly nodes: readonly Server[];
  /** The names of all keys, of all nodes. */
  keys(): Promise<readonly string[]>;
  /** The names that connections carry, of all nodes. */
  connections(): Promise<readonly string[]>;
}

/** Why no cluster can be started here; undefined where one can. */
export async function whyNoCluster(): Promise<string | undefined> {
  const version = await serverVersion().catch((error: Error) => error.message);
  return Number.parseInt(version, 10) >= 7
    ? undefined
    : `a cluster needs a redis-server program of version 7: ${version}`;
}

export async function startCluster(): Promise<TestCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-cluster-'));
  const start = async (_: unknown, number: number) => {
    const busPort = await freePort();
    const options = [
      '--cluster-enabled',
      'yes',
      '--cluster-config-file',
      'nodes.conf',
      '--cluster-port',
      String(busPort),
    ];
    const server = await startServer(join(folder, String(number)), options);
    const from = Math.floor((number * SLOTS) / NODES);
    await server.admin.call('CLUSTER', 'ADDSLOTSRANGE', from, Math.floor(((number + 1) * SLOTS) / NODES) - 1);
    return { server, busPort };
  };
  const started = await Promise.all(Array.from({ length: NODES }, start));
  const nodes = started.map(({ server }) => server);
  const [first] = nodes as [Server];
  for (const { server, busPort } of started.slice(1))
    await first.admin.call('CLUSTER', 'MEET', '127.0.0.1', server.port, busPort);
  await eventually(async () => (await Promise.all(nodes.map(knowsAll))).every(Boolean), { what: 'a cluster of three' });
  const ofAll = async (read: (node: Server) => Promise<readonly string[]>) =>
    (await Promise.all(nodes.map(read))).flat();
  return {
    url: first.url,
    nodes,
    keys: () => ofAll(({ admin }) => admin.keys('*')),
    connections: () =>
      ofAll(async ({ admin }) =>
        [...String(await admin.client('LIST')).matchAll(/ name=(\S+)/g)].map(([, name = '']) => name),
      ),
    [Symbol.asyncDispose]: async () => {
      await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function knowsAll({ admin }: Server): Promise<boolean> {
  const info = String(await admin.call('CLUSTER', 'INFO'));
  return /cluster_state:ok/.test(info) && info.includes(`cluster_known_nodes:${NODES}`);
}
