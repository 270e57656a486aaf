/** A bunqueue server of the benchmark's own, on Bun, with one SQLite file in a folder that is removed afterwards. */
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';
import { startKept } from './kept-process.ts';
import { processIoBytes, processTreeCpuMs, type Store } from './store.ts';

const POLL_MS = 50;
/** As long as the other sides keep theirs. */
const KEPT_MS = 5_000;

export const BUNQUEUE_DURABILITY =
  'as by default: its log is not synced, jobs are written up to 10 ms later, and a crash of the machine may lose more than a second (to its advantage)';

/** Bun's own program; npm's scripts, which would link it, do not run. */
export function bunOf(folder: string): string {
  const require = createRequire(join(folder, 'package.json'));
  return join(dirname(require.resolve(`@oven/bun-${process.platform}-${process.arch}/package.json`)), 'bin', 'bun');
}

/** Requests that a client may send in a minute. The default, 10,000, protects a server from abuse, and would end the load. */
const UNLIMITED = '1000000000';

/** @param folder where its packages are installed */
export async function startBunqueue(folder: string): Promise<Store> {
  const require = createRequire(join(folder, 'package.json'));
  const manifest = require.resolve('bunqueue/package.json');
  const { version } = require(manifest) as { readonly version: string };
  const dir = await mkdtemp(join(tmpdir(), 'pawl-bunqueue-'));
  const [tcp, http] = [await freePort(), await freePort()];
  const server = await startKept(
    [
      ...[bunOf(folder), join(dirname(manifest), 'dist', 'cli', 'index.js'), 'start', '--host', '127.0.0.1'],
      ...['--tcp-port', String(tcp), '--http-port', String(http), '--data-path', join(dir, 'queue.db')],
      ...['--completed-retention-ms', String(KEPT_MS)],
    ],
    { stopSignal: 'TERM', logFile: join(dir, 'log'), env: { LOG_LEVEL: 'error', RATE_LIMIT_MAX_REQUESTS: UNLIMITED } },
  );
  await until(
    async () => (await fetch(`http://127.0.0.1:${http}/health`).catch(() => undefined))?.ok === true,
    POLL_MS,
  );
  return {
    url: JSON.stringify({ host: '127.0.0.1', port: tcp }),
    title: `bunqueue ${version}`,
    cpuMs: () => processTreeCpuMs(server.pid),
    fileBytes: () => processIoBytes(server.pid),
    tidy: async () => {},
    stop: async () => {
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
