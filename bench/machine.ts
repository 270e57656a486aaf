/** Where and with what a result was measured. */
import { createRequire } from 'node:module';
import { availableParallelism, cpus, totalmem } from 'node:os';
import { startServer } from './stores/redis.ts';

export interface Machine {
  readonly date: string;
  readonly cores: number;
  readonly processor: string;
  readonly platform: string;
  readonly memoryGiB: number;
  readonly node: string;
  readonly redis: string;
  readonly pawl: string;
  readonly bullmq: string;
  readonly ioredis: string;
}

export async function machine(): Promise<Machine> {
  const require = createRequire(import.meta.url);
  const version = (name: string) => (require(name) as { readonly version: string }).version;
  const server = await startServer();
  await server.stop();
  return {
    date: new Date().toISOString().slice(0, 10),
    cores: availableParallelism(),
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    platform: `${process.platform} ${process.arch}`,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.versions.node,
    redis: server.version,
    pawl: version('../package.json'),
    bullmq: version('bullmq/package.json'),
    ioredis: version('ioredis/package.json'),
  };
}

/** Whether figures of the two may stand side by side, whatever versions of software they have. */
export function isSameMachine(one: Machine, other: Machine): boolean {
  const alike: readonly (keyof Machine)[] = ['cores', 'processor', 'platform', 'memoryGiB'];
  return alike.every((what) => one[what] === other[what]);
}
