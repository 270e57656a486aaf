/**
 * Files below one root, and nothing else (A11).
 *
 * Node has no `openat2(RESOLVE_BENEATH)`, so this module walks a path itself: one folder at a time, each opened with
 * O_NOFOLLOW, each next name looked up *through the descriptor of the folder before it* (`/proc/self/fd/N/name`). A folder
 * that somebody swaps for a symbolic link meanwhile can therefore not lead the walk astray, because no path is ever
 * resolved twice. Symbolic links are read and walked by hand, so that those inside the root work and the others are
 * refused before anything outside is touched, even by an open. `..` goes back to a folder that is still open.
 *
 * Where there is no /proc (macOS) names are looked up by path and checked again after each open. That refuses every path
 * that leaves the root, but only narrows the race with somebody who swaps folders meanwhile (measured: 5 of 11,000 writes).
 */
import { randomBytes } from 'node:crypto';
import { constants, existsSync, type Stats } from 'node:fs';
import {
  access,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  realpath,
  rename,
  unlink,
} from 'node:fs/promises';
import { basename, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { PawlError } from '../shared/failure.ts';
import type { Workspace, WorkspaceEntry } from '../shared/tool.ts';

export const DEFAULT_MAX_READ_BYTES = 16 * 1024 * 1024;

const MAX_LINKS = 40;
const MAX_WALKS = 16;
const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const hasDescriptorPaths = existsSync('/proc/self/fd');

/**
 * The workspace of a session. `root` need not exist yet: every use looks it up and throws `NOT_FOUND` where it is absent.
 * With access `read`, `write` throws `PERMISSION_DENIED`.
 */
export function openWorkspace(root: string, access: 'read' | 'write'): Workspace {
  const absoluteRoot = resolve(root);
  return {
    root: absoluteRoot,
    read: (path, options) => readWithin(absoluteRoot, path, options?.maxBytes ?? DEFAULT_MAX_READ_BYTES),
    list: (path) => listWithin(absoluteRoot, path),
    write: async (path, content) => {
      if (access === 'read')
        throw new PawlError(
          'PERMISSION_DENIED',
          `The workspace is open for reading only; ${shown(path)} was not written.`,
        );
      return writeWithin(absoluteRoot, path, typeof content === 'string' ? Buffer.from(content) : content);
    },
  };
}

/** The real, absolute path of a folder of the workspace. Errors as for `Workspace.read`. */
export function resolveFolder(root: string, path: string): Promise<string> {
  return at(resolve(root), path, 'keep', async (location) => {
    const folder = await enter(location, path);
    try {
      return folder.path;
    } finally {
      if (folder !== location.folder) await folder.handle.close();
    }
  });
}

function readWithin(root: string, path: string, maxBytes: number): Promise<Uint8Array> {
  return at(root, path, 'keep', async ({ folder, name, stats, namesFolder }) => {
    if (name === undefined || stats?.isDirectory()) throw isFolder(path);
    if (stats === undefined) throw absent(path);
    refuseSpecial(path, stats);
    if (namesFolder) throw isNoFolder(path);
    // O_NONBLOCK: if a FIFO has taken the file's place since, this open must not wait for a writer.
    const handle = await open(entry(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
      changedIf('ELOOP', 'ENXIO'),
    );
    try {
      const opened = await handle.stat();
      if (opened.isDirectory()) throw isFolder(path);
      refuseSpecial(path, opened);
      if (!hasDescriptorPaths && (await realpath(join(folder.path, name))) !== join(folder.path, name))
        throw new ChangedMeanwhile();
      if (opened.size > maxBytes) throw tooLarge(path, opened.size, maxBytes);
      return await readUpTo(handle, path, opened.size, maxBytes);
    } finally {
      await handle.close();
    }
  });
}

/** The size of a file is a hint: it can grow while it is read, and files of /proc say 0. */
async function readUpTo(handle: FileHandle, path: string, sizeHint: number, maxBytes: number): Promise<Uint8Array> {
  let buffer = Buffer.allocUnsafe(sizeHint + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
    if (length > maxBytes) throw tooLarge(path, length, maxBytes);
    if (length === buffer.length) buffer = Buffer.concat([buffer], Math.min(buffer.length * 2 + 4_096, maxBytes + 1));
  }
}

function listWithin(root: string, path: string): Promise<readonly WorkspaceEntry[]> {
  return at(root, path, 'keep', async (location) => {
    const folder = await enter(location, path);
    try {
      const names = (await readdir(hasDescriptorPaths ? `/proc/self/fd/${folder.handle.fd}` : folder.path)).sort();
      const prefix = relative(location.realRoot, folder.path);
      const entries = await Promise.all(names.map((name) => describe(folder, name, prefix)));
      return entries.filter((each) => each !== undefined);
    } finally {
      if (folder !== location.folder) await folder.handle.close();
    }
  });
}

async function describe(folder: Folder, name: string, prefix: string): Promise<WorkspaceEntry | undefined> {
  const stats = await lookUp(folder, name);
  if (stats === undefined) return undefined; // gone since the folder was read
  const kind = stats.isFile() ? 'file' : stats.isDirectory() ? 'directory' : 'other';
  return { path: join(prefix, name), kind, bytes: kind === 'file' ? stats.size : 0 };
}

function writeWithin(root: string, path: string, content: Uint8Array): Promise<{ created: boolean; bytes: number }> {
  return at(root, path, 'make', async ({ folder, name, stats, namesFolder }) => {
    if (name === undefined || stats?.isDirectory() || namesFolder) throw isFolder(path);
    if (stats !== undefined) {
      refuseSpecial(path, stats);
      await access(entry(folder, name), constants.W_OK);
    }
    const temporary = entry(folder, `.pawl-${randomBytes(8).toString('hex')}.tmp`);
    const permissions = stats === undefined ? 0o666 : stats.mode & 0o777;
    const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, permissions);
    try {
      try {
        if (stats !== undefined) await takeOver(handle, stats);
        await handle.writeFile(content);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await confirm(folder);
      await rename(temporary, entry(folder, name));
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      throw error;
    }
    return { created: stats === undefined, bytes: content.byteLength };
  });
}

/** The new file keeps the old one's owner, where the system lets us, and its permissions. */
async function takeOver(handle: FileHandle, old: Stats): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== old.uid || own.gid !== old.gid) await handle.chown(old.uid, old.gid).catch(() => undefined);
  await handle.chmod(old.mode & 0o777);
}

/** A folder that is open, and where it was when it was opened. */
interface Folder {
  readonly handle: FileHandle;
  readonly path: string;
}

/** Where a path ends: a name, present or not and never a symbolic link, in a folder that is open. */
interface Location {
  readonly realRoot: string;
  readonly folder: Folder;
  /** Undefined when the path ends at `folder` itself. */
  readonly name: string | undefined;
  readonly stats: Stats | undefined;
  /** The path was written with a slash at its end. */
  readonly namesFolder: boolean;
}

/** Something took another's place between two looks. The walk starts again, a limited number of times. */
class ChangedMeanwhile extends Error {}

/** Walks to `path`, hands the place to `use`, closes what it opened, and turns system errors into Pawl's. */
async function at<Value>(
  root: string,
  path: string,
  missing: 'keep' | 'make',
  use: (location: Location) => Promise<Value>,
): Promise<Value> {
  if (path.includes('\0')) throw new PawlError('INVALID_PARAMS', 'A path cannot contain a NUL character.');
  for (let walks = 1; ; walks += 1) {
    const folders: Folder[] = [];
    try {
      return await use(await walk(root, path, missing, folders));
    } catch (error) {
      if (!(error instanceof ChangedMeanwhile)) throw translate(error, path);
      if (walks === MAX_WALKS)
        throw new PawlError(
          'PERMISSION_DENIED',
          `${shown(path)} keeps changing while it is being opened; nothing was touched.`,
        );
    } finally {
      await Promise.all(folders.map((folder) => folder.handle.close()));
    }
  }
}

/** `folders` is the way from the root to where the walk is; the caller closes what is left in it. */
async function walk(root: string, path: string, missing: 'keep' | 'make', folders: Folder[]): Promise<Location> {
  const realRoot = await realpath(root).catch((error: unknown) => {
    throw codeOf(error) === 'ENOENT' ? new PawlError('NOT_FOUND', `The workspace root ${root} does not exist.`) : error;
  });
  const rootFolder = await openFolder(realRoot, realRoot);
  folders.push(rootFolder);
  const inRoot = (target: string): string[] => {
    const inside = [realRoot, root].map((base) => relative(base, resolve(target))).find((rest) => !isOutside(rest));
    if (inside === undefined) throw leavesRoot(path);
    return inside.split(sep);
  };
  const namesFolder = path.endsWith('/');
  // What leaves as written is refused before a folder on its way is looked up, or made.
  if (!isAbsolute(path) && isOutside(relative(root, resolve(root, path)))) throw leavesRoot(path);
  const pending = isAbsolute(path) ? inRoot(path) : path.split(sep);
  let links = 0;
  for (;;) {
    const name = pending.shift();
    const folder = folders.at(-1) ?? rootFolder;
    if (name === undefined) {
      await confirm(folder);
      return { realRoot, folder, name: undefined, stats: undefined, namesFolder };
    }
    if (name === '' || name === '.') continue;
    if (name === '..') {
      if (folders.length === 1) throw leavesRoot(path);
      await folders.pop()?.handle.close();
      continue;
    }
    const stats = await lookUp(folder, name);
    if (stats?.isSymbolicLink()) {
      links += 1;
      if (links > MAX_LINKS)
        throw new PawlError('INVALID_PARAMS', `${shown(path)} passes through more than ${MAX_LINKS} symbolic links.`);
      const target = await readlink(entry(folder, name)).catch(changedIf('EINVAL', 'ENOENT'));
      if (isAbsolute(target)) {
        pending.unshift(...inRoot(target));
        for (const each of folders.splice(1)) await each.handle.close();
      } else pending.unshift(...target.split(sep));
      continue;
    }
    if (pending.every((rest) => rest === '' || rest === '.')) {
      await confirm(folder);
      return { realRoot, folder, name, stats, namesFolder: namesFolder || pending.length > 0 };
    }
    if (stats === undefined) {
      if (missing === 'keep') throw absent(path);
      await mkdir(entry(folder, name)).catch((error: unknown) => {
        if (codeOf(error) !== 'EEXIST') throw error;
      });
    } else if (!stats.isDirectory()) {
      throw new PawlError('INVALID_PARAMS', `${shown(path)}: ${shown(name)} is not a folder.`);
    }
    folders.push(await openFolder(entry(folder, name), join(folder.path, name)));
  }
}

const isOutside = (fromRoot: string): boolean => fromRoot === '..' || fromRoot.startsWith(`..${sep}`);

async function openFolder(lookedUpAs: string, path: string): Promise<Folder> {
  const handle = await open(lookedUpAs, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(
    changedIf('ELOOP', 'ENOTDIR', 'ENOENT'),
  );
  return { handle, path };
}

/** The folder in which the walk ended is still where the walk found it: nobody moved it out of the root. */
async function confirm(folder: Folder): Promise<void> {
  const path = hasDescriptorPaths ? await readlink(`/proc/self/fd/${folder.handle.fd}`) : await realpath(folder.path);
  if (path !== folder.path) throw new ChangedMeanwhile();
}

/** The folder that a location names; another one than `location.folder` is the caller's to close. */
async function enter(location: Location, path: string): Promise<Folder> {
  const { folder, name, stats } = location;
  if (name === undefined) return folder;
  if (stats === undefined) throw absent(path);
  if (!stats.isDirectory()) throw isNoFolder(path);
  return openFolder(entry(folder, name), join(folder.path, name));
}

function entry(folder: Folder, name: string): string {
  return hasDescriptorPaths ? `/proc/self/fd/${folder.handle.fd}/${name}` : join(folder.path, name);
}

function lookUp(folder: Folder, name: string): Promise<Stats | undefined> {
  return lstat(entry(folder, name)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  });
}

function refuseSpecial(path: string, stats: Stats): void {
  if (stats.isFile()) return;
  const kind = stats.isFIFO()
    ? 'a FIFO'
    : stats.isSocket()
      ? 'a socket'
      : stats.isSymbolicLink()
        ? 'a symbolic link'
        : 'a device';
  throw new PawlError('INVALID_PARAMS', `${shown(path)} is ${kind}; only regular files can be read and written.`);
}

const shown = (path: string): string => JSON.stringify(path);
const absent = (path: string): PawlError => new PawlError('NOT_FOUND', `There is no ${shown(path)} in the workspace.`);
const isFolder = (path: string): PawlError =>
  new PawlError('INVALID_PARAMS', `${shown(path)} is a folder, not a file.`);
const isNoFolder = (path: string): PawlError => new PawlError('INVALID_PARAMS', `${shown(path)} is not a folder.`);
const leavesRoot = (path: string): PawlError =>
  new PawlError(
    'PERMISSION_DENIED',
    `${shown(path)} leaves the workspace; use a path inside it, such as "notes/${basename(path).replace(/^\.+$/, '') || 'file.txt'}".`,
  );
const tooLarge = (path: string, bytes: number, maxBytes: number): PawlError =>
  new PawlError(
    'RESULT_TOO_LARGE',
    `${shown(path)} has at least ${bytes} bytes; at most ${maxBytes} can be read at once.`,
  );

function changedIf(...codes: readonly string[]): (error: unknown) => never {
  return (error) => {
    throw codes.includes(codeOf(error) ?? '') ? new ChangedMeanwhile() : error;
  };
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
}

/** System errors carry paths such as /proc/self/fd/21/a; the caller gets the path it used. */
function translate(error: unknown, path: string): unknown {
  const code = codeOf(error);
  if (error instanceof PawlError || code === undefined) return error;
  switch (code) {
    case 'ENOENT':
      return absent(path);
    case 'ENOTDIR':
    case 'ENAMETOOLONG':
    case 'EISDIR':
      return new PawlError('INVALID_PARAMS', `${shown(path)} cannot be used as a file: ${code}.`, { cause: error });
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new PawlError(
        'PERMISSION_DENIED',
        `The operating system does not let the worker use ${shown(path)}: ${code}.`,
        { cause: error },
      );
    default:
      return new PawlError('TOOL_FAILED', `${shown(path)}: ${(error as Error).message.replace(/ '.*'$/, '')}.`, {
        cause: error,
      });
  }
}
