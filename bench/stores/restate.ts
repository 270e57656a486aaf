/** A Restate server of the benchmark's own, from its npm package, with its data in a folder that is removed afterwards. */
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { until } from '../until.ts';
import { freePort } from './free-port.ts';
import { startKept } from './kept-process.ts';
import { type Durability, processIoBytes, processTreeCpuMs, type Store } from './store.ts';

const POLL_MS = 50;

export const RESTATE_DURABILITY: Readonly<Record<Durability, string>> = {
  'each second':
    'its log without `fsync`, for it has nothing between: a crash of the machine may lose more than a second (to its advantage)',
  'each write': 'its log with `fsync`, as by default',
};

export interface RestateUrls {
  /** Where calls go in. */
  readonly ingress: string;
  /** Where services are made known. */
  readonly admin: string;
}

/**
 * @param folder where its packages are installed
 * @param partitions of its log; undefined leaves Restate's default
 */
export async function startRestate(
  folder: string,
  durability: Durability,
  partitions: number | undefined,
): Promise<Store> {
  const require = createRequire(join(folder, 'package.json'));
  const platform = `@restatedev/restate-server-${process.platform}-${process.arch}`;
  const manifest = require.resolve(`${platform}/package.json`, {
    paths: [dirname(require.resolve('@restatedev/restate-server/package.json'))],
  });
  const { version } = require('@restatedev/restate-server/package.json') as { readonly version: string };
  const dir = await mkdtemp(join(tmpdir(), 'pawl-restate-'));
  const [ingress, admin, fabric] = [await freePort(), await freePort(), await freePort()];
  const server = await startKept([join(dirname(manifest), 'bin', 'restate-server'), '--base-dir', join(dir, 'data')], {
    stopSignal: 'TERM',
    logFile: join(dir, 'log'),
    env: {
      RESTATE_LISTEN_MODE: 'tcp',
      RESTATE_BIND_IP: '127.0.0.1',
      RESTATE_BIND_PORT: String(fabric),
      RESTATE_INGRESS__BIND_PORT: String(ingress),
      RESTATE_ADMIN__BIND_PORT: String(admin),
      RESTATE_DISABLE_TELEMETRY: 'true',
      RESTATE_LOG_FILTER: 'warn',
      ...(partitions === undefined ? {} : { RESTATE_DEFAULT_NUM_PARTITIONS: String(partitions) }),
      RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC: String(durability === 'each second'),
    },
  });
  const urls: RestateUrls = { ingress: `http://127.0.0.1:${ingress}`, admin: `http://127.0.0.1:${admin}` };
  const healthy = async (url: string) => (await fetch(url).catch(() => undefined))?.ok === true;
  await until(
    async () => (await healthy(`${urls.admin}/health`)) && (await healthy(`${urls.ingress}/restate/health`)),
    POLL_MS,
  );
  return {
    url: JSON.stringify(urls),
    title: `Restate ${version}`,
    cpuMs: () => processTreeCpuMs(server.pid),
    fileBytes: () => processIoBytes(server.pid),
    tidy: async () => {},
    stop: async () => {
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
