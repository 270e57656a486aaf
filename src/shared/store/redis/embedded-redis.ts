/**
 * A private Redis for a machine that has none configured: a real server as a child process, shared by every process that uses the same data
 * folder.
 *
 * There is one server per data folder. The first process starts it and writes an endpoint file; later ones attach. The server lives as long
 * as any of them, however they end, and no longer: a small `sh` supervisor holds the read end of a FIFO whose write end every user keeps
 * open (`redis-keeper.sh`). Supervisor and server have a process group of their own, so that Ctrl-C in a terminal reaches their users
 * first. Nothing listens on the network: clients use a Unix socket in a folder that only this user can enter. Other users of the data
 * folder may not see that folder; for them the supervisor renews the file `alive` in the data folder.
 *
 * Without FIFOs (Windows), the server listens on a loopback port with a password and ends with the process that started it.
 */
import { spawn } from 'node:child_process';
import { closeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type DataFolder,
  type EmbeddedRedisOptions,
  type Endpoint,
  failure,
  idOf,
  openDataFolder,
  readEndpoint,
  writePrivateFile,
} from './embedded/data-folder.ts';
import { configure, makeRunDir } from './embedded/server-config.ts';
import { awaitAnswer, POLL_MS, readState, START_TIMEOUT_MS } from './embedded/server-state.ts';
import { takeLock } from './embedded/start-lock.ts';
import { endPrevious, isAccepted, openForWriting, startSupervisor } from './embedded/supervisor.ts';
import { findRedisBinary, helperOptions, type RedisBinary } from './redis-binary.ts';

export interface EmbeddedRedis {
  /** `unix:///…/redis.sock`, or `redis://:password@127.0.0.1:port` with Docker and on Windows; `new Redis(url)` takes both. */
  readonly url: string;
  /** Drops this process's reference; the server ends with its last user. Safe to call twice. */
  stop(): Promise<void>;
}

/**
 * Attaches to the data folder's server, and starts it first where there is none.
 *
 * @throws NoRedisServerError, EmbeddedRedisError, DataFolderInUseError
 */
export async function startEmbeddedRedis(options: EmbeddedRedisOptions): Promise<EmbeddedRedis> {
  const folder = await openDataFolder(options.dataDir);
  const attached = await attach(folder, options);
  if (attached !== undefined) return attached;
  // Done before taking the lock: a download may take longer than the lock should be held.
  const binary = await findRedisBinary(options);
  const deadlineMs = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadlineMs) {
    const lock = await takeLock(folder);
    if (lock !== undefined) {
      try {
        return (await attach(folder, options)) ?? (await start(folder, binary, options, deadlineMs));
      } finally {
        await lock.release();
      }
    }
    await sleep(POLL_MS * 4);
    const attachedLater = await attach(folder, options);
    if (attachedLater !== undefined) return attachedLater;
  }
  throw await failure(
    folder,
    `another process is starting the embedded Redis and did not finish in ${START_TIMEOUT_MS} ms`,
  );
}

/** Undefined when no server runs, or the running one is ending. */
async function attach(folder: DataFolder, options: EmbeddedRedisOptions): Promise<EmbeddedRedis | undefined> {
  const endpoint = await readEndpoint(folder);
  if (endpoint === undefined) return undefined;
  if (process.platform === 'win32')
    return (await readState(endpoint.url)) === 'ready' ? { url: endpoint.url, stop: async () => {} } : undefined;
  const reference = openForWriting(endpoint.runDir);
  if (reference === undefined) return undefined;
  if (!(await isAccepted(endpoint.runDir, reference))) {
    closeSync(reference);
    return undefined;
  }
  await awaitAnswer(folder, endpoint, options, Date.now() + START_TIMEOUT_MS).catch((error: unknown) => {
    closeSync(reference);
    throw error;
  });
  return embeddedRedis(endpoint, reference);
}

async function start(
  folder: DataFolder,
  binary: RedisBinary,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<EmbeddedRedis> {
  options.log?.(`starting an embedded Redis (${describeBinary(binary)}) with its data in ${folder.home}`);
  if (process.platform === 'win32') return startOwned(folder, binary, options, deadlineMs);
  await endPrevious(folder, options, deadlineMs);
  const runDir = await makeRunDir(folder);
  const { url, command } = await configure(folder, binary, runDir);
  const endpoint: Endpoint = { url, runDir, home: folder.home, homeId: await idOf(folder.home) };
  const { reference, supervisor } = await startSupervisor(folder, endpoint, command, options.environment);
  try {
    // Written before the server answers: another process can attach, and waits while the server loads its data.
    await writePrivateFile(folder.endpointFile, `${JSON.stringify(endpoint)}\n`);
    await awaitAnswer(folder, endpoint, options, deadlineMs);
    supervisor.unref();
    return embeddedRedis(endpoint, reference);
  } catch (error) {
    closeSync(reference);
    throw error;
  }
}

function embeddedRedis({ url }: Endpoint, reference: number): EmbeddedRedis {
  let openReference: number | undefined = reference;
  return {
    url,
    stop: async () => {
      if (openReference !== undefined) closeSync(openReference);
      openReference = undefined;
    },
  };
}

async function startOwned(
  folder: DataFolder,
  binary: RedisBinary,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<EmbeddedRedis> {
  const { url, command } = await configure(folder, binary, folder.home);
  const [program = '', ...args] = command;
  const server = spawn(program, args, { ...helperOptions(options.environment), stdio: 'ignore', windowsHide: true });
  const end = () => void server.kill();
  process.once('exit', end);
  const endpoint: Endpoint = { url, runDir: folder.home };
  await awaitAnswer(folder, endpoint, options, deadlineMs);
  await writePrivateFile(folder.endpointFile, `${JSON.stringify(endpoint)}\n`);
  server.unref();
  const stop = async () => {
    process.off('exit', end);
    end();
  };
  return { url, stop };
}

function describeBinary(binary: RedisBinary): string {
  return binary.kind === 'docker' ? `${binary.image} in Docker` : `${binary.version} from ${binary.origin}`;
}
