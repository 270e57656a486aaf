/** A Redis of the benchmark's own: the product's embedded server, in a folder that is removed afterwards. */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startEmbeddedRedis } from '../../src/shared/store/redis/embedded-redis.ts';
import type { Durability, Store } from './store.ts';

const POLL_MS = 20;
const END_TIMEOUT_MS = 10_000;

export interface BenchServer extends Store {
  readonly version: string;
  usedMemoryBytes(): Promise<number>;
  /** Commands that it has run since it started. */
  commands(): Promise<number>;
  /** How often it has read from a socket: a pipeline is one or a few. */
  reads(): Promise<number>;
}

export const REDIS_DURABILITY: Readonly<Record<Durability, string>> = {
  'each second': '`appendfsync everysec`',
  'each write': '`appendfsync always`',
};

export async function startServer(durability: Durability = 'each second'): Promise<BenchServer> {
  const dataDir = await mkdtemp(join(tmpdir(), 'pawl-bench-'));
  const embedded = await startEmbeddedRedis({ dataDir, log: (line) => console.error(line) });
  const redis = new Redis(embedded.url);
  await redis.config('SET', 'auto-aof-rewrite-percentage', '0');
  await redis.config('SET', 'appendfsync', durability === 'each write' ? 'always' : 'everysec');
  const infoText = async (section: string, name: string): Promise<string> => {
    const text = await redis.info(section);
    const value = new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1];
    if (value === undefined) throw new Error(`INFO ${section} has no ${name}`);
    return value;
  };
  const info = async (section: string, name: string) => Number(await infoText(section, name));
  const version = await infoText('server', 'redis_version');
  return {
    url: embedded.url,
    title: `Redis ${version}`,
    version,
    cpuMs: async () => 1_000 * ((await info('cpu', 'used_cpu_user')) + (await info('cpu', 'used_cpu_sys'))),
    usedMemoryBytes: () => info('memory', 'used_memory'),
    commands: () => info('stats', 'total_commands_processed'),
    reads: () => info('stats', 'total_reads_processed'),
    fileBytes: () => info('persistence', 'aof_current_size'),
    // Rewrites the append-only file.
    tidy: async () => {
      await redis.bgrewriteaof();
      while (
        (await info('persistence', 'aof_rewrite_in_progress')) === 1 ||
        (await info('persistence', 'aof_rewrite_scheduled')) === 1
      )
        await sleep(POLL_MS);
    },
    stop: async () => {
      redis.disconnect();
      await embedded.stop();
      // The keeper removes the endpoint file when the server has ended and writes no more.
      const deadlineMs = performance.now() + END_TIMEOUT_MS;
      while (existsSync(join(dataDir, 'redis', 'endpoint.json')) && performance.now() < deadlineMs)
        await sleep(POLL_MS);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
