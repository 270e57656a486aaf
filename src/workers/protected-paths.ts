/**
 * Folders and files that no tool sees, whatever its workspace: Pawl's own, with signing keys and the embedded Redis, and its
 * configuration. A workspace is often the very folder in which Pawl was started, and then holds them.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, lstatSync, realpathSync, renameSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

const folders = new Set<string>();
/** By path, whether it was there when it was first protected: then it is the operator's. */
const files = new Map<string, boolean>();

/** For all workspaces of this process. The folder need not exist yet. */
export function protectFolder(path: string): void {
  folders.add(resolve(path));
}

/** The same for a file, there or not, by its real path. */
export function protectFile(path: string): void {
  const file = resolve(path);
  if (!files.has(file)) files.set(file, existsSync(file));
}

/** Whether `path` is a protected file: asked of every file of a search. */
export function isProtectedFile(path: string): boolean {
  return files.has(path);
}

/** Whether `path`, a real one, is a protected folder or file. */
export function isProtected(path: string): boolean {
  if (isProtectedFile(path)) return true;
  if (folders.size === 0) return false;
  return folders.has(path) || protectedFolders().includes(path);
}

/** Real paths of those that exist. */
export function protectedFolders(): readonly string[] {
  return realPaths([...folders]);
}

/** Of those that exist. */
export function realPaths(paths: readonly string[]): readonly string[] {
  return paths.filter((path) => existsSync(path)).map((path) => realpathSync(path));
}

/** Those that exist. */
export function protectedFiles(): readonly string[] {
  return [...files.keys()].filter((file) => existsSync(file));
}

/**
 * A file that is not there cannot be hidden from a program, so that one in a sandbox can make it. Answers a function, to be called
 * when the program has ended, that moves aside what appeared below `root`, a real path, since now, and says so, a sentence each.
 *
 * Another program may have made a file before this one began, and it looks like the operator's: one that was not there when it was
 * protected has to be just what it was.
 */
export function watchForPlanted(root: string): () => readonly string[] {
  const inside = [...files].filter(([file]) => file.startsWith(join(root, '/')));
  const before = new Map(inside.map(([file]) => [file, identityOf(file)]));
  const isPlanted = ([file, isOperators]: readonly [string, boolean]): boolean => {
    const then = before.get(file);
    const now = identityOf(file);
    return now !== undefined && (then === undefined || (!isOperators && now !== then));
  };
  return () => inside.filter(isPlanted).flatMap(([file]) => moveAside(file));
}

/** Of the file itself, also where it is a link that leads nowhere yet. Another one in its place, or a change to it, makes another. */
function identityOf(file: string): string | undefined {
  try {
    const { dev, ino, ctimeNs } = lstatSync(file, { bigint: true });
    return `${dev}:${ino}:${ctimeNs}`;
  } catch {
    return undefined;
  }
}

/** To a name that nothing loads. Nothing is said where the end of another program has moved it meanwhile. */
function moveAside(file: string): readonly string[] {
  const folder = dirname(file);
  const aside = `${file}.aside-${randomBytes(4).toString('hex')}`;
  try {
    // A program may have put a link in the folder's place, to have a file of somebody else's moved.
    if (realpathSync(folder) !== folder) return [];
    // It may have taken the right to move anything from its folder, too.
    const { mode } = statSync(folder);
    if ((mode & 0o700) !== 0o700) chmodSync(folder, mode | 0o700);
    renameSync(file, aside);
    return [`${basename(file)} appeared in ${folder}, and was moved to ${basename(aside)}.`];
  } catch (error) {
    if (identityOf(file) === undefined) return [];
    const why = error instanceof Error ? error.message : String(error);
    return [`${basename(file)} appeared in ${folder}, and could not be moved aside (${why}): remove it.`];
  }
}
