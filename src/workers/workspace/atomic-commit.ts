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
import type { CommittedChange, WorkspaceChange } from '../../shared/tools/capabilities.ts';
import { withFileLocks } from './file-lock.ts';
import {
  absentError,
  codeOf,
  confirmUnmoved,
  entryPath,
  type Folder,
  isFolderError,
  PathChangedError,
  pathChangedOn,
  quotePath,
  requireRegularFile,
  statEntry,
  withLocation,
} from './safe-path.ts';

const MAX_BEFORE_BYTES = 16 * 1024 * 1024;
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/** A change with the location of its file. */
interface LocatedChange {
  readonly root: string;
  readonly change: WorkspaceChange;
  readonly folder: Folder;
  readonly name: string;
}

/** A change that is ready to be put in place, and the way to undo it. */
interface StagedChange extends LocatedChange {
  readonly stats: Stats | undefined;
  readonly before: Uint8Array | undefined;
  readonly temporary: string | undefined;
  readonly backup: string;
}

/**
 * Throws `PRECONDITION_FAILED` when a file is not what its change expects, `NOT_FOUND` for the removal of an absent
 * file, `INVALID_PARAMS` for a content that is no text of UTF-8, and what `Workspace.read` throws for paths. Nothing has changed then.
 */
export async function commitWithin(
  root: string,
  changes: readonly WorkspaceChange[],
): Promise<readonly CommittedChange[]> {
  // UTF-8 has no half characters: Node would write others in their place.
  for (const change of changes)
    if (change.kind === 'write' && typeof change.content === 'string' && !change.content.isWellFormed())
      throw new PawlError(
        'INVALID_PARAMS',
        `The new content of ${quotePath(change.path)} holds half of a character (a surrogate without its pair); nothing was changed.`,
      );
  return locateAndCommit(root, changes, []);
}

/** Walks to every path in turn, so that all their folders are open while the changes are made. */
function locateAndCommit(
  root: string,
  rest: readonly WorkspaceChange[],
  located: readonly LocatedChange[],
): Promise<readonly CommittedChange[]> {
  const [change, ...further] = rest;
  if (change === undefined) return commit(located);
  return withLocation(
    root,
    change.path,
    // Removing a link removes the link itself; its target is another file.
    change.kind === 'write' ? 'make' : 'keep-link',
    async ({ folder, name, stats, namesFolder }) => {
      if (name === undefined || stats?.isDirectory() || namesFolder) throw isFolderError(change.path);
      if (located.some((other) => other.folder.path === folder.path && other.name === name))
        throw new PawlError('INVALID_PARAMS', `${quotePath(change.path)} is changed twice in one step.`);
      return locateAndCommit(root, further, [...located, { root, change, folder, name }]);
    },
  );
}

async function commit(located: readonly LocatedChange[]): Promise<readonly CommittedChange[]> {
  const paths = located.map(({ folder, name }) => join(folder.path, name));
  return withFileLocks(paths, async () => {
    const staged: StagedChange[] = [];
    const applied: StagedChange[] = [];
    try {
      for (const each of located) await stageChange(each, (item) => staged.push(item));
      for (const item of staged) await confirmUnmoved(item.folder);
      for (const item of staged) {
        await applyChange(item, staged.length > 1);
        applied.push(item);
      }
    } catch (error) {
      for (const item of applied.reverse()) await undoChange(item);
      throw error;
    } finally {
      for (const { temporary, backup } of staged)
        for (const leftover of [temporary, backup])
          if (leftover !== undefined) await unlink(leftover).catch(() => undefined);
    }
    return staged.map(({ change, stats, before }) => ({
      path: change.path,
      existed: stats !== undefined,
      ...(before !== undefined && { before }),
    }));
  });
}

async function stageChange(located: LocatedChange, add: (item: StagedChange) => void): Promise<void> {
  const { change, folder, name } = located;
  const stats = await statEntry(folder, name);
  if (stats !== undefined) {
    if (stats.isDirectory()) throw isFolderError(change.path);
    const isLink = stats.isSymbolicLink();
    if (isLink && change.kind === 'write') throw new PathChangedError();
    if (!isLink) {
      requireRegularFile(change.path, stats);
      await access(entryPath(folder, name), constants.W_OK);
    }
  } else if (change.kind === 'remove') throw absentError(change.path);
  const before = await checkExpected(located, stats);
  const temporaryName = () => entryPath(folder, `.pawl-${randomBytes(8).toString('hex')}.tmp`);
  const temporary = change.kind === 'write' ? temporaryName() : undefined;
  add({ ...located, stats, before, temporary, backup: temporaryName() });
  if (change.kind !== 'write' || temporary === undefined) return;
  const previous = stats ?? (await templateStats(located));
  const mode = modeFor(change.isExecutable, previous);
  // Another writer may have just removed the folder that it had made.
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode).catch(pathChangedOn('ENOENT'));
  try {
    if (previous !== undefined) await copyOwnership(handle, previous, mode);
    await handle.writeFile(change.content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** An executable file may be executed by everyone who may read it. */
function modeFor(isExecutable: boolean | undefined, previous: Stats | undefined): number {
  const mode = previous === undefined ? 0o666 : previous.mode & 0o777;
  if (isExecutable === undefined) return mode;
  return isExecutable ? mode | ((mode & 0o444) >> 2) : mode & ~0o111;
}

function templateStats({ root, change }: LocatedChange): Promise<Stats | undefined> | undefined {
  if (change.kind !== 'write' || change.like === undefined) return undefined;
  return withLocation(root, change.like, 'keep', async ({ stats }) => stats);
}

/** Returns the present bytes. Throws when the change expects other ones. */
async function checkExpected(
  { root, change, folder, name }: LocatedChange,
  stats: Stats | undefined,
): Promise<Uint8Array | undefined> {
  const { expected } = change;
  const changedError = (reason: string) =>
    new PawlError(
      'PRECONDITION_FAILED',
      `${quotePath(change.path)} ${reason}; nothing was changed. Read it again and repeat the change on its present content.`,
    );
  if (expected === 'absent' && stats !== undefined) throw changedError('exists already');
  if (expected !== undefined && expected !== 'absent' && stats === undefined) throw changedError('no longer exists');
  if (stats === undefined || (expected === undefined && (stats.isSymbolicLink() || stats.size > MAX_BEFORE_BYTES)))
    return undefined;
  // The caller has read the target of the link; the target stays.
  const bytes = stats.isSymbolicLink()
    ? await withLocation(root, change.path, 'keep', (target) => readBytes(target.folder, target.name ?? '.'))
    : await readBytes(folder, name);
  if (expected !== undefined && createHash('sha256').update(bytes).digest('hex') !== expected)
    throw changedError('has changed since it was read');
  return stats.isSymbolicLink() ? undefined : bytes;
}

async function readBytes(folder: Folder, name: string): Promise<Uint8Array> {
  const handle = await open(entryPath(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
    pathChangedOn('ELOOP', 'ENOENT'),
  );
  try {
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** The new file keeps the old one's owner, where the system allows it, and gets the requested permissions whatever the umask. */
async function copyOwnership(handle: FileHandle, previous: Stats, mode: number): Promise<void> {
  const newStats = await handle.stat();
  if (newStats.uid !== previous.uid || newStats.gid !== previous.gid)
    await handle.chown(previous.uid, previous.gid).catch(() => undefined);
  await handle.chmod(mode);
}

async function applyChange(
  { change, folder, name, stats, temporary, backup }: StagedChange,
  needsBackup: boolean,
): Promise<void> {
  const target = entryPath(folder, name);
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
  if (stats !== undefined && needsBackup) await link(target, backup);
  await rename(temporary, target);
}

async function undoChange({ folder, name, stats, backup }: StagedChange): Promise<void> {
  const target = entryPath(folder, name);
  if (stats === undefined) await unlink(target);
  else await rename(backup, target);
}
