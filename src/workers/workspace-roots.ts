/**
 * Where the root of a workspace may lie, which whoever opens a session can name: in no folder of Pawl's own, unless the operator has
 * put the workspaces there (`PAWL_WORKSPACE_ROOT`).
 */
import { existsSync, realpathSync } from 'node:fs';
import { relative, resolve, sep } from 'node:path';
import { PawlError } from '../shared/failure.ts';
import { protectedFolders } from './protected-folders.ts';

const grounds = new Set<string>();

/** Where the operator wants the workspaces of this process. The folder need not exist yet. */
export function putWorkspacesIn(path: string): void {
  grounds.add(resolve(path));
}

/** Throws `PERMISSION_DENIED` for a root, by its real path, that no workspace may have. */
export function checkRoot(realRoot: string): void {
  const own = protectedFolders().find((folder) => isIn(folder, realRoot));
  if (own === undefined) return;
  const ground = realGrounds().find((each) => isIn(each, realRoot));
  if (ground === undefined || isIn(ground, own))
    throw new PawlError(
      'PERMISSION_DENIED',
      "The session's workspace lies in a folder of Pawl's own (PAWL_DATA_DIR), which no tool may see.",
    );
}

function realGrounds(): readonly string[] {
  return [...grounds].filter((ground) => existsSync(ground)).map((ground) => realpathSync(ground));
}

function isIn(folder: string, path: string): boolean {
  const rest = relative(folder, path);
  return rest !== '..' && !rest.startsWith(`..${sep}`);
}
