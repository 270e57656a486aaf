/**
 * Changes several files, all or none. The changes are compared, staged and renamed into place; a failure undoes the
 * renames.
 *
 * The expectation of each change is checked while the locks of all its files are held. Of two editors of one file the
 * second gets an error, and nothing is lost. Only a kill -9 between two renames can leave a part of the changes.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { access, type FileHandle, link, open, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CommittedChange, WorkspaceChange } from '../../shared/tools/tool.ts';
import { withFileLocks } from './file-lock.ts';
import {
  absent,
  ChangedMeanwhile,
  changedIf,
  codeOf,
  confirmUnmoved,
  entry,
  type Folder,
  isFolder,
  lookUp,
  quotePath,
  refuseSpecial,
  withLocation,
} from './safe-path.ts';

const MAX_BEFORE_BYTES = 16 * 1024 * 1024;
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/** A change with the location of its file. */
interface Placed {
  readonly root: string;
  readonly change: WorkspaceChange;
  readonly folder: Folder;
  readonly name: string;
}

/** A change that is ready to be put in place, and the way to undo it. */
interface Staged extends Placed {
  readonly stats: Stats | undefined;
  readonly before: Uint8Array | undefined;
  readonly temporary: string | undefined;
  readonly backup: string;
}

/**
 * Throws `PRECONDITION_FAILED` when a file is not what its change expects, `NOT_FOUND` for the removal of an absent
 * file, and what `Workspace.read` throws for paths. Nothing has changed then.
 */
export async function commitWithin(
  root: string,
  changes: readonly WorkspaceChange[],
): Promise<readonly CommittedChange[]> {
  return place(root, changes, []);
}

/** Walks to every path in turn, so that all their folders are open while the changes are made. */
function place(
  root: string,
  rest: readonly WorkspaceChange[],
  placed: readonly Placed[],
): Promise<readonly CommittedChange[]> {
  const [change, ...further] = rest;
  if (change === undefined) return commit(placed);
  return withLocation(
    root,
    change.path,
    // Removing a link removes the link itself; its target is another file.
    change.kind === 'write' ? 'make' : 'keep-link',
    async ({ folder, name, stats, namesFolder }) => {
      if (name === undefined || stats?.isDirectory() || namesFolder) throw isFolder(change.path);
      if (placed.some((other) => other.folder.path === folder.path && other.name === name))
        throw new PawlError('INVALID_PARAMS', `${quotePath(change.path)} is changed twice in one step.`);
      return place(root, further, [...placed, { root, change, folder, name }]);
    },
  );
}

async function commit(placed: readonly Placed[]): Promise<readonly CommittedChange[]> {
  const paths = placed.map(({ folder, name }) => join(folder.path, name));
  return withFileLocks(paths, async () => {
    const staged: Staged[] = [];
    const done: Staged[] = [];
    try {
      for (const each of placed) await stage(each, (item) => staged.push(item));
      for (const item of staged) await confirmUnmoved(item.folder);
      for (const item of staged) {
        await putInPlace(item, staged.length > 1);
        done.push(item);
      }
    } catch (error) {
      for (const item of done.reverse()) await takeBack(item);
      throw error;
    } finally {
      for (const { temporary, backup } of staged)
        for (const left of [temporary, backup]) if (left !== undefined) await unlink(left).catch(() => undefined);
    }
    return staged.map(({ change, stats, before }) => ({
      path: change.path,
      existed: stats !== undefined,
      ...(before === undefined ? {} : { before }),
    }));
  });
}

async function stage(placed: Placed, add: (item: Staged) => void): Promise<void> {
  const { change, folder, name } = placed;
  const stats = await lookUp(folder, name);
  if (stats !== undefined) {
    if (stats.isDirectory()) throw isFolder(change.path);
    const isLink = stats.isSymbolicLink();
    if (isLink && change.kind === 'write') throw new ChangedMeanwhile();
    if (!isLink) {
      refuseSpecial(change.path, stats);
      await access(entry(folder, name), constants.W_OK);
    }
  } else if (change.kind === 'remove') throw absent(change.path);
  const before = await compare(placed, stats);
  const aside = () => entry(folder, `.pawl-${randomBytes(8).toString('hex')}.tmp`);
  const temporary = change.kind === 'write' ? aside() : undefined;
  add({ ...placed, stats, before, temporary, backup: aside() });
  if (change.kind !== 'write' || temporary === undefined) return;
  const old = stats ?? (await modelOf(placed));
  const mode = modeFor(change.isExecutable, old);
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  try {
    if (old !== undefined) await takeOver(handle, old, mode);
    await handle.writeFile(change.content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** An executable file may be executed by everyone who may read it. */
function modeFor(isExecutable: boolean | undefined, old: Stats | undefined): number {
  const mode = old === undefined ? 0o666 : old.mode & 0o777;
  if (isExecutable === undefined) return mode;
  return isExecutable ? mode | ((mode & 0o444) >> 2) : mode & ~0o111;
}

function modelOf({ root, change }: Placed): Promise<Stats | undefined> | undefined {
  if (change.kind !== 'write' || change.like === undefined) return undefined;
  return withLocation(root, change.like, 'keep', async ({ stats }) => stats);
}

/** Returns the present bytes. Throws when the change expects other ones. */
async function compare(
  { root, change, folder, name }: Placed,
  stats: Stats | undefined,
): Promise<Uint8Array | undefined> {
  const { expected } = change;
  const changed = (what: string) =>
    new PawlError(
      'PRECONDITION_FAILED',
      `${quotePath(change.path)} ${what}; nothing was changed. Read it again and repeat the change on what it holds now.`,
    );
  if (expected === 'absent' && stats !== undefined) throw changed('exists already');
  if (expected !== undefined && expected !== 'absent' && stats === undefined) throw changed('is gone');
  if (stats === undefined || (expected === undefined && (stats.isSymbolicLink() || stats.size > MAX_BEFORE_BYTES)))
    return undefined;
  // The caller has read the target of the link; the target stays.
  const bytes = stats.isSymbolicLink()
    ? await withLocation(root, change.path, 'keep', (target) => readBytes(target.folder, target.name ?? '.'))
    : await readBytes(folder, name);
  if (expected !== undefined && createHash('sha256').update(bytes).digest('hex') !== expected)
    throw changed('has changed since it was read');
  return stats.isSymbolicLink() ? undefined : bytes;
}

async function readBytes(folder: Folder, name: string): Promise<Uint8Array> {
  const handle = await open(entry(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
    changedIf('ELOOP', 'ENOENT'),
  );
  try {
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** The new file keeps the old one's owner, where the system allows it, and gets the requested permissions whatever the umask. */
async function takeOver(handle: FileHandle, old: Stats, mode: number): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== old.uid || own.gid !== old.gid) await handle.chown(old.uid, old.gid).catch(() => undefined);
  await handle.chmod(mode);
}

async function putInPlace(
  { change, folder, name, stats, temporary, backup }: Staged,
  canFailLater: boolean,
): Promise<void> {
  const target = entry(folder, name);
  if (temporary === undefined) return rename(target, backup);
  if (stats === undefined && change.expected === 'absent') {
    // A hard link is made only where nothing exists, so that writers without the lock cannot be overwritten either.
    await link(temporary, target).catch((error: unknown) => {
      throw codeOf(error) === 'EEXIST'
        ? new PawlError('PRECONDITION_FAILED', `${quotePath(change.path)} exists already; nothing was changed.`)
        : error;
    });
    return;
  }
  if (stats !== undefined && canFailLater) await link(target, backup);
  await rename(temporary, target);
}

async function takeBack({ folder, name, stats, backup }: Staged): Promise<void> {
  const target = entry(folder, name);
  if (stats === undefined) await unlink(target);
  else await rename(backup, target);
}
