/** A Redis Cluster of three nodes on the loopback, as one store. */
import { startCluster as startNodes } from '../../test/helpers/cluster.ts';
import { sum } from '../statistics.ts';
import type { Store } from './store.ts';

export interface Cluster extends Store {
  readonly nodes: number;
}

export async function startCluster(): Promise<Cluster> {
  const cluster = await startNodes({ appendfsync: 'everysec' });
  const info = async (section: string, name: string) => {
    const texts = await Promise.all(cluster.nodes.map(({ admin }) => admin.info(section)));
    return sum(texts.map((text) => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1])));
  };
  return {
    url: cluster.url,
    title: 'Redis Cluster',
    nodes: cluster.nodes.length,
    cpuMs: async () => 1_000 * ((await info('cpu', 'used_cpu_user')) + (await info('cpu', 'used_cpu_sys'))),
    fileBytes: () => info('persistence', 'aof_current_size'),
    tidy: async () => {},
    stop: async () => cluster[Symbol.asyncDispose](),
  };
}
