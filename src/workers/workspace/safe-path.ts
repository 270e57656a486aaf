/**
 * Resolves a path to a file below one root, and never to a file outside of it.
 *
 * Node has no `openat2(RESOLVE_BENEATH)`, so this module walks a path itself: one folder at a time, each opened with
 * O_NOFOLLOW, each next name looked up *through the descriptor of the folder before it* (`/proc/self/fd/N/name`). No
 * path is ever resolved twice, so an attacker who swaps a folder for a symbolic link cannot redirect the walk. The
 * module reads and follows symbolic links itself: those inside the root work, and the others are refused before
 * anything outside is touched, even by an open. `..` returns to a folder that is still open.
 *
 * Where there is no /proc (macOS) names are looked up by path and checked again after each open. That refuses every
 * path that leaves the root, but only narrows the race with an attacker who swaps folders (measured: 5 of 11,000
 * writes).
 */
import { constants, existsSync, type Stats } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readlink, realpath, rmdir } from 'node:fs/promises';
import { basename, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { types } from 'node:util';
import { PawlError } from '../../shared/errors/failure.ts';
import { liesIn, staysInside } from '../../shared/util/file-path.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { isProtected, refuseReadOnly } from './protected-paths.ts';
import { checkRoot } from './workspace-roots.ts';

const MAX_LINKS = 40;
/** The deepest nesting of folders, as for searches: all of them are open on the way, and each is compared with the protected paths. */
export const MAX_DEPTH = 256;
const MAX_WALKS = 16;
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
export const hasDescriptorPaths = existsSync('/proc/self/fd');

/** An open folder, and its path when it was opened. */
export interface Folder {
  readonly handle: FileHandle;
  readonly path: string;
}

/** The end of a path: a name, present or not, in an open folder. It is a symbolic link only with `keep-link`. */
export interface Location {
  readonly realRoot: string;
  readonly folder: Folder;
  /** Undefined when the path ends at `folder` itself. */
  readonly name: string | undefined;
  readonly stats: Stats | undefined;
  /** The path was written with a slash at its end. */
  readonly namesFolder: boolean;
}

/** A file or folder was replaced between two checks. The walk starts again, a limited number of times. */
export class PathChangedError extends Error {}

/** `make` creates missing folders on the way. `keep-link` returns a link at the end of the path instead of its target. */
type WalkMode = 'keep' | 'make' | 'keep-link';

/** Walks to `path`, passes the location to `use`, closes what it opened, and translates system errors into Pawl's. */
export async function withLocation<Value>(
  root: string,
  path: string,
  mode: WalkMode,
  use: (location: Location) => Promise<Value>,
): Promise<Value> {
  if (path.includes('\0')) throw new PawlError('INVALID_PARAMS', 'A path cannot contain a NUL character.');
  if (!path.isWellFormed())
    throw new PawlError('INVALID_PARAMS', `${quotePath(path)} holds half of a character, which no file name can hold.`);
  for (let walks = 1; ; walks += 1) {
    const folders: Folder[] = [];
    const made: MadeFolder[] = [];
    try {
      return await use(await walk(root, path, mode, { folders, made }));
    } catch (error) {
      await removeMade(made);
      if (!(error instanceof PathChangedError)) throw translate(error, path);
      if (walks === MAX_WALKS)
        throw new PawlError(
          'PERMISSION_DENIED',
          `${quotePath(path)} keeps changing while it is being opened; nothing was touched.`,
        );
    } finally {
      await Promise.all(folders.map((folder) => folder.handle.close()));
    }
  }
}

/** A folder that a walk made, by its name in the folder above. */
interface MadeFolder {
  readonly parent: Folder;
  readonly name: string;
}

/** A refused change leaves no folders. One that another writer uses by now stays; a writer that had just entered it walks again. */
async function removeMade(made: readonly MadeFolder[]): Promise<void> {
  for (const { parent, name } of made.toReversed())
    if (parent.handle.fd !== -1) await rmdir(entryPath(parent, name)).catch(() => undefined);
}

/** One walk: where it began, the names that are left, and the open folders from the root to the present one. */
interface Walk {
  readonly root: string;
  readonly realRoot: string;
  readonly path: string;
  readonly mode: WalkMode;
  readonly pending: string[];
  /** The caller closes the folders that are left here. */
  readonly folders: Folder[];
  readonly made: MadeFolder[];
  links: number;
}

async function walk(
  root: string,
  path: string,
  mode: WalkMode,
  { folders, made }: Pick<Walk, 'folders' | 'made'>,
): Promise<Location> {
  const realRoot = await realRootOf(root);
  checkRoot(root, realRoot);
  const rootFolder = await openFolder(realRoot, realRoot);
  folders.push(rootFolder);
  // A path that leaves the root as written is refused before any folder is looked up or made.
  if (!isAbsolute(path) && !liesIn(root, resolve(root, path))) throw leavesRootError(path);
  if (path.split(sep).filter((name) => name !== '' && name !== '.').length - 1 > MAX_DEPTH) throw tooDeepError(path);
  const state: Walk = { root, realRoot, path, mode, pending: [], folders, made, links: 0 };
  state.pending.push(...(isAbsolute(path) ? namesInRoot(state, path) : path.split(sep)));
  for (;;) {
    const name = state.pending.shift();
    const folder = folders.at(-1) ?? rootFolder;
    if (name === undefined) {
      await confirmUnmoved(folder);
      return { realRoot, folder, name: undefined, stats: undefined, namesFolder: path.endsWith('/') };
    }
    const end = await step(state, folder, name);
    if (end !== undefined) return end;
  }
}

/** Takes one name of the path. Returns the location when it was the last one. */
async function step(state: Walk, folder: Folder, name: string): Promise<Location | undefined> {
  const { path, mode, pending, folders, realRoot } = state;
  if (name === '' || name === '.') return undefined;
  if (name === '..') {
    if (folders.length === 1) throw leavesRootError(path);
    await folders.pop()?.handle.close();
    return undefined;
  }
  if (isProtected(join(folder.path, name)))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${quotePath(path)} is Pawl's own, or leads into a folder of it, which no tool may see.`,
    );
  const stats = await statEntry(folder, name);
  if (mode !== 'keep') refuseReadOnly(join(folder.path, name), realRoot, stats, path);
  const isEnd = pending.every((rest) => rest === '' || rest === '.');
  if (stats?.isSymbolicLink() && !(isEnd && mode === 'keep-link')) {
    await followLink(state, folder, name);
    return undefined;
  }
  if (isEnd) {
    await confirmUnmoved(folder);
    return { realRoot, folder, name, stats, namesFolder: path.endsWith('/') || pending.length > 0 };
  }
  if (folders.length > MAX_DEPTH) throw tooDeepError(path);
  if (stats === undefined) {
    if (mode !== 'make') throw absentError(path);
    await mkdir(entryPath(folder, name)).then(
      () => state.made.push({ parent: folder, name }),
      (error: unknown) => {
        if (codeOf(error) !== 'EEXIST') pathChangedOn('ENOENT')(error);
      },
    );
  } else if (!stats.isDirectory()) {
    throw new PawlError('INVALID_PARAMS', `${quotePath(path)}: ${quotePath(name)} is not a folder.`);
  }
  folders.push(await openFolder(entryPath(folder, name), join(folder.path, name)));
  return undefined;
}

/** Puts the names of a link's target before the pending ones. An absolute target starts at the root again. */
async function followLink(state: Walk, folder: Folder, name: string): Promise<void> {
  const { path, pending, folders } = state;
  state.links += 1;
  if (state.links > MAX_LINKS)
    throw new PawlError('INVALID_PARAMS', `${quotePath(path)} passes through more than ${MAX_LINKS} symbolic links.`);
  const target = await readlink(entryPath(folder, name)).catch(pathChangedOn('EINVAL', 'ENOENT'));
  if (isAbsolute(target)) {
    pending.unshift(...namesInRoot(state, target));
    for (const each of folders.splice(1)) await each.handle.close();
  } else pending.unshift(...target.split(sep));
}

/** The names from the root to an absolute path, which may begin with the root as given or with its real path. */
function namesInRoot({ root, realRoot, path }: Walk, target: string): string[] {
  const inside = [realRoot, root].map((base) => relative(base, resolve(target))).find(staysInside);
  if (inside === undefined) throw leavesRootError(path);
  return inside.split(sep);
}

/** Throws `NOT_FOUND` when the root does not exist. */
export function realRootOf(root: string): Promise<string> {
  return realpath(root).catch((error: unknown) => {
    throw codeOf(error) === 'ENOENT' ? new PawlError('NOT_FOUND', `The workspace root ${root} does not exist.`) : error;
  });
}

async function openFolder(openPath: string, path: string): Promise<Folder> {
  const handle = await open(openPath, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(
    pathChangedOn('ELOOP', 'ENOTDIR', 'ENOENT'),
  );
  return { handle, path };
}

/** Throws `ChangedMeanwhile` when the folder is no longer at the path at which the walk found it. */
export async function confirmUnmoved(folder: Folder): Promise<void> {
  const path = hasDescriptorPaths ? await readlink(`/proc/self/fd/${folder.handle.fd}`) : await realpath(folder.path);
  if (path !== folder.path) throw new PathChangedError();
}

/** Passes the folder that a location names to `use`, and closes it if it had to be opened. */
export async function inFolder<Value>(
  { folder, name, stats }: Location,
  path: string,
  use: (folder: Folder) => Promise<Value>,
): Promise<Value> {
  if (name === undefined) return use(folder);
  if (stats === undefined) throw absentError(path);
  if (!stats.isDirectory()) throw notFolderError(path);
  const entered = await openFolder(entryPath(folder, name), join(folder.path, name));
  try {
    return await use(entered);
  } finally {
    await entered.handle.close();
  }
}

/** A path that leads to the folder whatever is renamed, for child processes as well. Requires `hasDescriptorPaths`. */
export function descriptorPath(folder: Folder): string {
  return `/proc/${process.pid}/fd/${folder.handle.fd}`;
}

export function entryPath(folder: Folder, name: string): string {
  return hasDescriptorPaths ? `/proc/self/fd/${folder.handle.fd}/${name}` : join(folder.path, name);
}

export function statEntry(folder: Folder, name: string): Promise<Stats | undefined> {
  return lstat(entryPath(folder, name)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  });
}

export function requireRegularFile(path: string, stats: Stats): void {
  if (stats.isFile()) return;
  const kind = stats.isFIFO()
    ? 'a FIFO'
    : stats.isSocket()
      ? 'a socket'
      : stats.isSymbolicLink()
        ? 'a symbolic link'
        : 'a device';
  throw new PawlError('INVALID_PARAMS', `${quotePath(path)} is ${kind}; only regular files can be read and written.`);
}

export const quotePath = (path: string): string => JSON.stringify(path);
export const absentError = (path: string): PawlError =>
  new PawlError('NOT_FOUND', `There is no ${quotePath(path)} in the workspace.`);
export const isFolderError = (path: string): PawlError =>
  new PawlError('INVALID_PARAMS', `${quotePath(path)} is a folder, not a file.`);
export const notFolderError = (path: string): PawlError =>
  new PawlError('INVALID_PARAMS', `${quotePath(path)} is not a folder.`);
const tooDeepError = (path: string): PawlError =>
  new PawlError('INVALID_PARAMS', `${quoteValue(path)} lies more than ${MAX_DEPTH} folders deep.`);
const leavesRootError = (path: string): PawlError =>
  new PawlError(
    'PERMISSION_DENIED',
    `${quotePath(path)} leaves the workspace; use a path inside it, such as "notes/${basename(path).replace(/^\.+$/, '') || 'file.txt'}".`,
  );
export const tooLargeError = (path: string, bytes: number, maxBytes: number): PawlError =>
  new PawlError(
    'RESULT_TOO_LARGE',
    `${quotePath(path)} has at least ${bytes} bytes; at most ${maxBytes} can be read at once.`,
  );

export function pathChangedOn(...codes: readonly string[]): (error: unknown) => never {
  return (error) => {
    throw codes.includes(codeOf(error) ?? '') ? new PathChangedError() : error;
  };
}

/** Test runners with a realm per file (Jest) have another `Error` than Node's own modules throw, so this checks no class. */
export function codeOf(error: unknown): string | undefined {
  return types.isNativeError(error) ? (error as NodeJS.ErrnoException).code : undefined;
}

/** System errors carry paths such as /proc/self/fd/21/a; the caller gets the path that it used. */
function translate(error: unknown, path: string): unknown {
  const code = codeOf(error);
  if (error instanceof PawlError || code === undefined) return error;
  switch (code) {
    case 'ENOENT':
      return absentError(path);
    case 'ENOTDIR':
    case 'ENAMETOOLONG':
    case 'EISDIR':
      return new PawlError('INVALID_PARAMS', `${quotePath(path)} cannot be used as a file: ${code}.`, { cause: error });
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new PawlError(
        'PERMISSION_DENIED',
        `The operating system does not let the worker use ${quotePath(path)}: ${code}.`,
        { cause: error },
      );
    default:
      return new PawlError('TOOL_FAILED', `${quotePath(path)}: ${(error as Error).message.replace(/ '.*'$/, '')}.`, {
        cause: error,
      });
  }
}
