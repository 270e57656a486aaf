/** Files below one root: reading and listing, and access to writing and searching. */
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, realpath } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import type { Workspace, WorkspaceEntry } from '../../shared/tools/capabilities.ts';
import { isMarked } from '../sandbox/placeholders.ts';
import { commitWithin } from './atomic-commit.ts';
import {
  absentError,
  entryPath,
  type Folder,
  hasDescriptorPaths,
  inFolder,
  isFolderError,
  notFolderError,
  PathChangedError,
  pathChangedOn,
  quotePath,
  requireRegularFile,
  statEntry,
  tooLargeError,
  withLocation,
} from './safe-path.ts';
import { searchWithin } from './workspace-search.ts';

const DEFAULT_MAX_READ_BYTES = 16 * 1024 * 1024;

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/**
 * Opens the workspace of a session. `root` need not exist yet: every use looks it up and throws `NOT_FOUND` where it
 * is absent. With access `read`, `write` and `commit` throw `PERMISSION_DENIED`.
 */
export function openWorkspace(
  root: string,
  access: 'read' | 'write',
  signal: AbortSignal = new AbortController().signal,
): Workspace {
  const absoluteRoot = resolve(root);
  const commit: Workspace['commit'] = async (changes) => {
    if (access === 'read')
      throw new PawlError(
        'PERMISSION_DENIED',
        `The workspace is open for reading only; ${changes.map((change) => quotePath(change.path)).join(', ')} stays as it is.`,
      );
    return commitWithin(absoluteRoot, changes);
  };
  return {
    root: absoluteRoot,
    read: (path, options) => readWithin(absoluteRoot, path, options?.maxBytes ?? DEFAULT_MAX_READ_BYTES),
    list: (path) => listWithin(absoluteRoot, path),
    write: async (path, content, options) => {
      const [written] = await commit([{ kind: 'write', path, content, ...options }]);
      return { created: written?.existed === false, bytes: Buffer.byteLength(content) };
    },
    commit,
    search: (search) => searchWithin(absoluteRoot, search, signal),
  };
}

/** Returns the real, absolute path of a folder of the workspace. Errors are those of `Workspace.read`. */
export function resolveFolder(root: string, path: string): Promise<string> {
  return withLocation(resolve(root), path, 'keep', (location) =>
    inFolder(location, path, async (folder) => folder.path),
  );
}

function readWithin(root: string, path: string, maxBytes: number): Promise<Uint8Array> {
  return withLocation(root, path, 'keep', async ({ folder, name, stats, namesFolder }) => {
    if (name === undefined || stats?.isDirectory()) throw isFolderError(path);
    if (stats === undefined) throw absentError(path);
    requireRegularFile(path, stats);
    if (namesFolder) throw notFolderError(path);
    // O_NONBLOCK: a FIFO may have replaced the file since, and this open must not wait for a writer.
    const handle = await open(entryPath(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
      pathChangedOn('ELOOP', 'ENXIO'),
    );
    try {
      const opened = await handle.stat();
      if (opened.isDirectory()) throw isFolderError(path);
      requireRegularFile(path, opened);
      if (!hasDescriptorPaths && (await realpath(join(folder.path, name))) !== join(folder.path, name))
        throw new PathChangedError();
      if (opened.size > maxBytes) throw tooLargeError(path, opened.size, maxBytes);
      return await readUpTo(handle, path, opened.size, maxBytes);
    } finally {
      await handle.close();
    }
  });
}

/** A file's size is a hint only: the file can grow while it is read, and files of /proc report 0. */
async function readUpTo(handle: FileHandle, path: string, sizeHint: number, maxBytes: number): Promise<Uint8Array> {
  let buffer = Buffer.allocUnsafe(sizeHint + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
    if (length > maxBytes) throw tooLargeError(path, length, maxBytes);
    if (length === buffer.length) buffer = Buffer.concat([buffer], Math.min(buffer.length * 2 + 4_096, maxBytes + 1));
  }
}

function listWithin(root: string, path: string): Promise<readonly WorkspaceEntry[]> {
  return withLocation(root, path, 'keep', (location) =>
    inFolder(location, path, async (folder) => {
      const names = (await readdir(hasDescriptorPaths ? `/proc/self/fd/${folder.handle.fd}` : folder.path)).sort();
      const prefix = relative(location.realRoot, folder.path);
      const entries = await Promise.all(names.map((name) => describe(folder, name, prefix)));
      return entries.filter((each) => each !== undefined);
    }),
  );
}

async function describe(folder: Folder, name: string, prefix: string): Promise<WorkspaceEntry | undefined> {
  const stats = await statEntry(folder, name);
  // A name that is not UTF-8 has lost bytes, so that nothing is there by this name. It is listed all the same.
  if (stats === undefined)
    return name.includes('\ufffd') ? { path: join(prefix, name), kind: 'other', bytes: 0 } : undefined;
  // While a program runs, a placeholder stands where nothing is.
  if (stats.isDirectory() && isMarked(entryPath(folder, name))) return undefined;
  const kind = stats.isFile() ? 'file' : stats.isDirectory() ? 'directory' : 'other';
  return { path: join(prefix, name), kind, bytes: kind === 'file' ? stats.size : 0 };
}
