/**
 * Empty folders under names that a program must not use, while it runs: a sandbox can mount only over something that
 * exists. Programs that run at the same time share them. Each adds a file of its own, so that the last program, of any
 * worker, removes them. The next run removes what a killed worker left behind.
 */
import { randomBytes } from 'node:crypto';
import { opendirSync } from 'node:fs';
import { lstat, mkdir, open, readdir, rename, rmdir, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';

const MAX_TRIES = 20;
const MARK = /^\.pawl-(?<host>[^ ]+) (?<processId>\d+) [0-9a-f]+$/;
/** Whether a folder is a placeholder, by its first entry. An empty folder counts as one, because it may be in creation. */
export function isPlaceholder(path: string): boolean {
  try {
    const folder = opendirSync(path);
    try {
      const first = folder.readSync();
      return first === null || MARK.test(first.name);
    } finally {
      folder.closeSync();
    }
  } catch {
    // It is no folder, or cannot be read.
    return false;
  }
}

export interface Placeholders {
  readonly paths: readonly string[];
  remove(): Promise<void>;
}

/**
 * Creates the placeholders that this user can create. Where it may not write, its programs cannot either. Nothing
 * occupies the names of `renamedLater`; when the program has ended, whatever it made there is renamed.
 */
export async function makePlaceholders(
  absent: readonly string[],
  renamedLater: readonly string[],
): Promise<Placeholders> {
  const created = await Promise.all(absent.map(createPlaceholder));
  const placeholders = created.filter((each) => each !== undefined);
  return {
    paths: placeholders.map(({ path }) => path),
    remove: async () => {
      await Promise.all([...placeholders.map(removePlaceholder), ...renamedLater.map(renameAside)]);
    },
  };
}

interface Placeholder {
  readonly path: string;
  readonly mark: string;
}

async function createPlaceholder(path: string): Promise<Placeholder | undefined> {
  const host = encodeURIComponent(hostname());
  const mark = join(path, `.pawl-${host} ${process.pid} ${randomBytes(6).toString('hex')}`);
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    try {
      await mkdir(path).catch(ignore('EEXIST'));
      await removeStaleMarks(path, host);
      await (await open(mark, 'wx')).close();
      return { path, mark };
    } catch (error) {
      // Another run has just removed it, unless a folder above it is gone.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return undefined;
    }
  }
  return undefined;
}

/** Removes the marks of processes of this machine that have ended. */
async function removeStaleMarks(path: string, host: string): Promise<void> {
  for (const name of await readdir(path)) {
    const { host: owner, processId } = MARK.exec(name)?.groups ?? {};
    if (owner === host && !isAlive(Number(processId))) await unlink(join(path, name)).catch(ignore('ENOENT'));
  }
}

async function removePlaceholder({ path, mark }: Placeholder): Promise<void> {
  await unlink(mark).catch(ignore('ENOENT'));
  await rmdir(path).catch(ignore('ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR'));
}

async function renameAside(path: string): Promise<void> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats !== undefined)
    await rename(path, `${path}.aside-${randomBytes(4).toString('hex')}`).catch(ignore('ENOENT'));
}

function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function ignore(...codes: readonly string[]): (error: NodeJS.ErrnoException) => void {
  return (error) => {
    if (!codes.includes(error.code ?? '')) throw error;
  };
}
