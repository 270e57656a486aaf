/**
 * Folders and files that no tool sees, whatever its workspace: Pawl's own, with signing keys and the embedded Redis, and its
 * configuration. A workspace is often the very folder in which Pawl was started, and then holds them.
 */
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';

const folders = new Set<string>();
const files = new Set<string>();

/** For all workspaces of this process. The folder need not exist yet. */
export function protectFolder(path: string): void {
  folders.add(resolve(path));
}

/** The same for a file, there or not, by its real path. */
export function protectFile(path: string): void {
  files.add(resolve(path));
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
  return [...files].filter((file) => existsSync(file));
}
