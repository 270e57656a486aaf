/**
 * Empty folders under names that a program must not use, for as long as it runs: only where something stands can a sandbox mount
 * something over it. Programs that run at the same time share them; each leaves a file of its own in them, so that the last one, of
 * whatever worker, takes them away. What a killed worker left is taken away by the next run.
 */
import { randomBytes } from 'node:crypto';
import { opendirSync } from 'node:fs';
import { lstat, mkdir, open, readdir, rename, rmdir, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join } from 'node:path';

const MAX_TRIES = 20;
const MARK = /^\.pawl-(?<host>[^ ]+) (?<processId>\d+) [0-9a-f]+$/;
/** Git fails where one of these is a folder: what a program makes there is moved aside when it has ended. */
const NO_FOLDERS = new Set(['commondir', 'config.worktree', 'gitdir']);

/** Whether a folder is one, by its first entry. An empty one is taken for one: it may just be being made. */
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
    // No folder, or none that can be read.
    return false;
  }
}

export interface Placeholders {
  /** Those that stand. */
  readonly paths: readonly string[];
  remove(): Promise<void>;
}

/** What cannot be made, by a user who may not write there, no program of that user can make either. */
export async function makePlaceholders(absent: readonly string[]): Promise<Placeholders> {
  const watched = absent.filter((path) => NO_FOLDERS.has(basename(path)));
  const made = await Promise.all(absent.filter((path) => !watched.includes(path)).map(make));
  const held = made.filter((each) => each !== undefined);
  return {
    paths: held.map(({ path }) => path),
    remove: async () => {
      await Promise.all([...held.map(release), ...watched.map(moveAside)]);
    },
  };
}

interface Held {
  readonly path: string;
  readonly mark: string;
}

async function make(path: string): Promise<Held | undefined> {
  const host = encodeURIComponent(hostname());
  const mark = join(path, `.pawl-${host} ${process.pid} ${randomBytes(6).toString('hex')}`);
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    try {
      await mkdir(path).catch(ignore('EEXIST'));
      await sweep(path, host);
      await (await open(mark, 'wx')).close();
      return { path, mark };
    } catch (error) {
      // Another run has just taken it away, unless the way to it is gone.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return undefined;
    }
  }
  return undefined;
}

/** Marks of processes of this machine that are gone. */
async function sweep(path: string, host: string): Promise<void> {
  for (const name of await readdir(path)) {
    const { host: owner, processId } = MARK.exec(name)?.groups ?? {};
    if (owner === host && !isAlive(Number(processId))) await unlink(join(path, name)).catch(ignore('ENOENT'));
  }
}

async function release({ path, mark }: Held): Promise<void> {
  await unlink(mark).catch(ignore('ENOENT'));
  await rmdir(path).catch(ignore('ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR'));
}

async function moveAside(path: string): Promise<void> {
  const stands = await lstat(path).catch(() => undefined);
  if (stands !== undefined)
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
