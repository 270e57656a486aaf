/**
 * Locks a file for one writer at a time, over all processes of this machine.
 *
 * The lock is an abstract Unix socket whose name is the file's. The kernel gives a name to one listener only, and
 * releases it when that process ends for any reason, so no lock is ever left behind. Without abstract sockets (macOS)
 * the lock holds within this process only.
 */
import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { ToolError } from '../../shared/errors/failure.ts';

/** A lock is held for the few milliseconds of a comparison and a rename. */
const LOCK_TIMEOUT_MS = 10_000;
const hasAbstractSockets = process.platform === 'linux';

const locksByPath = new Map<string, Promise<void>>();

/** Holds the locks of all `paths` (real, absolute) while `use` runs. Throws a retriable error when a lock stays taken. */
export async function withFileLocks<Value>(paths: readonly string[], use: () => Promise<Value>): Promise<Value> {
  const releases: (() => Promise<void>)[] = [];
  try {
    // The fixed order prevents a deadlock between two writers of the same files.
    for (const path of [...paths].sort()) releases.push(await lock(path));
    return await use();
  } finally {
    for (const release of releases.reverse()) await release();
  }
}

async function lock(path: string): Promise<() => Promise<void>> {
  if (!hasAbstractSockets) return lockInProcess(path);
  const name = `\0pawl-file-${createHash('sha256').update(path).digest('hex').slice(0, 40)}`;
  const deadlineMs = performance.now() + LOCK_TIMEOUT_MS;
  for (;;) {
    const server = await listen(name);
    if (server !== undefined) return () => new Promise((resolve) => server.close(() => resolve()));
    if (performance.now() > deadlineMs)
      throw new ToolError(`${path} is constantly being written by others; nothing was changed.`, {
        retriable: true,
        nothingHappened: true,
      });
    await sleep(1 + Math.random() * 9);
  }
}

/** Undefined when another writer holds the name. */
function listen(name: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(undefined) : reject(error),
    );
    server.listen({ path: name, exclusive: true }, () => resolve(server));
  });
}

async function lockInProcess(path: string): Promise<() => Promise<void>> {
  const previous = locksByPath.get(path);
  const own = Promise.withResolvers<void>();
  locksByPath.set(path, own.promise);
  await previous;
  return async () => {
    if (locksByPath.get(path) === own.promise) locksByPath.delete(path);
    own.resolve();
  };
}
