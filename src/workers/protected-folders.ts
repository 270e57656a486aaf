/**
 * Folders that no tool sees, whatever its workspace: Pawl's own, with signing keys and the embedded Redis. A workspace is often the
 * very folder in which Pawl was started, and then holds them.
 */
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';

const folders = new Set<string>();

/** For all workspaces of this process. The folder need not exist yet. */
export function protectFolder(path: string): void {
  folders.add(resolve(path));
}

/** Whether `path`, a real one, is a protected folder. */
export function isProtected(path: string): boolean {
  if (folders.size === 0) return false;
  return folders.has(path) || protectedFolders().includes(path);
}

/** Real paths of those that exist. */
export function protectedFolders(): readonly string[] {
  return [...folders].filter((folder) => existsSync(folder)).map((folder) => realpathSync(folder));
}
