/**
 * Empty folders under names that a program must not use, while it runs: a sandbox can mount only over something that
 * exists. Programs that run at the same time share them. Each adds a file of its own, so that the last program, of any
 * worker, removes them. The next run removes what a killed worker left behind.
 */
import { randomBytes } from 'node:crypto';
import { constants, opendirSync, statSync } from 'node:fs';
import { link, mkdir, open, readdir, readlink, rename, rmdir, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { isAlive } from '../../shared/util/is-alive.ts';

const MAX_TRIES = 20;
const MARK = /^\.pawl-(?<host>[^ ]+) (?<processId>\d+) [0-9a-f]+$/;

/** For so long after its last change, an empty folder may be a placeholder in creation or in removal. An older one is the owner's. */
const UNSETTLED_MS = 60_000;

/** Whether a folder is a placeholder: it holds nothing but marks. */
export function isPlaceholder(path: string): boolean {
  const content = contentOf(path);
  if (content !== 'nothing') return content === 'marks';
  const changedAtMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return Date.now() - changedAtMs < UNSETTLED_MS;
}

/** Whether a folder is a placeholder in use. */
export function isMarked(path: string): boolean {
  return contentOf(path) === 'marks';
}

/** `files` also for what is no folder, or cannot be read. */
function contentOf(path: string): 'nothing' | 'marks' | 'files' {
  try {
    const folder = opendirSync(path);
    try {
      let content: 'nothing' | 'marks' = 'nothing';
      for (let entry = folder.readSync(); entry !== null; entry = folder.readSync()) {
        if (!MARK.test(entry.name)) return 'files';
        content = 'marks';
      }
      return content;
    } finally {
      folder.closeSync();
    }
  } catch {
    return 'files';
  }
}

interface Placeholders {
  readonly paths: readonly string[];
  remove(): Promise<void>;
}

/** Creates the placeholders that this user can create. Where it may not write, its programs cannot either. */
export async function makePlaceholders(absent: readonly string[]): Promise<Placeholders> {
  const marks = new Map<string, string>();
  const firstMarks: FirstMarks = new Map();
  await inFolders(absent, async (entry, path) => {
    const mark = await createPlaceholder(entry, firstMarks);
    if (mark !== undefined) marks.set(path, mark);
  });
  const paths = [...marks.keys()];
  return {
    paths,
    remove: () => inFolders(paths, (entry, path) => removePlaceholder(entry, marks.get(path) ?? '')),
  };
}

/** Renames files and folders, one after the other, so that no program finds them. Returns those that were there. */
export async function moveAside(paths: readonly string[]): Promise<readonly MovedFile[]> {
  const moved: MovedFile[] = [];
  for (const each of paths)
    await inFolders([each], async (entry, path) => {
      const suffix = `.aside-${randomBytes(4).toString('hex')}`;
      const newPath = await rename(entry, `${entry}${suffix}`).then(
        () => `${path}${suffix}`,
        (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? undefined : path),
      );
      if (newPath !== undefined) moved.push({ path, newPath });
    });
  return moved;
}

export interface MovedFile {
  readonly path: string;
  /** The same path where it cannot be renamed. */
  readonly newPath: string;
}

/**
 * Passes each path to `use` with a name that leads to it through its open folder. A path whose folder is gone, or was
 * replaced by a link to another one, is left out: this process may write where the programs of the workspace may not.
 */
async function inFolders(paths: readonly string[], use: (entry: string, path: string) => Promise<void>): Promise<void> {
  const inFolder = async ([folder, below]: readonly [string, readonly string[]]): Promise<void> => {
    const handle = await open(folder, constants.O_DIRECTORY | constants.O_NOFOLLOW).catch(() => undefined);
    if (handle === undefined) return;
    try {
      const opened = `/proc/self/fd/${handle.fd}`;
      if ((await readlink(opened)) !== folder) return;
      await Promise.all(below.map((path) => use(join(opened, basename(path)), path)));
    } finally {
      await handle.close();
    }
  };
  await Promise.all([...Map.groupBy(paths, (path) => dirname(path))].map(inFolder));
}

/** The first mark below each opened folder; the other marks there are links to it, which need no files of their own. */
type FirstMarks = Map<string, Promise<string>>;

/** Returns the name of the mark, or undefined where this user cannot create the folder. */
async function createPlaceholder(path: string, firstMarks: FirstMarks): Promise<string | undefined> {
  const host = encodeURIComponent(hostname());
  const mark = `.pawl-${host} ${process.pid} ${randomBytes(6).toString('hex')}`;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    try {
      await mkdir(path).catch(ignore('EEXIST'));
      await removeStaleMarks(path, host);
      await createMark(join(path, mark), dirname(path), firstMarks);
      return mark;
    } catch (error) {
      // Another run has just removed it, unless a folder above it is gone.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return undefined;
    }
  }
  return undefined;
}

async function createMark(path: string, folder: string, firstMarks: FirstMarks): Promise<void> {
  const first = firstMarks.get(folder);
  if (first === undefined) {
    const created = createFile(path);
    firstMarks.set(folder, created);
    // A first mark that could not be created leaves the others to be files.
    await created;
    return;
  }
  await first.then((existing) => link(existing, path)).catch(() => createFile(path));
}

async function createFile(path: string): Promise<string> {
  await (await open(path, 'wx')).close();
  return path;
}

/** Removes the marks of processes of this machine that have ended. */
async function removeStaleMarks(path: string, host: string): Promise<void> {
  for (const name of await readdir(path)) {
    const { host: owner, processId } = MARK.exec(name)?.groups ?? {};
    if (owner === host && !isAlive(Number(processId))) await unlink(join(path, name)).catch(ignore('ENOENT'));
  }
}

async function removePlaceholder(path: string, mark: string): Promise<void> {
  await unlink(join(path, mark)).catch(ignore('ENOENT'));
  await rmdir(path).catch(ignore('ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR'));
}

function ignore(...codes: readonly string[]): (error: NodeJS.ErrnoException) => void {
  return (error) => {
    if (!codes.includes(error.code ?? '')) throw error;
  };
}
