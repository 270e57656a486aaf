/**
 * Where the root of a workspace may lie, which whoever opens a session can name: in no folder of Pawl's own, unless the operator has
 * put the workspaces there (`PAWL_WORKSPACE_ROOT`). And one that is named below that setting is there: what links stand in a workspace,
 * its own programs decide.
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

/** Throws `PERMISSION_DENIED` for a root that no workspace may have; `realRoot` is where it really is. */
export function checkRoot(root: string, realRoot: string): void {
  const around = [...grounds].filter((ground) => isIn(ground, root));
  if (around.length > 0 && !real(around).some((ground) => isIn(ground, realRoot)))
    throw new PawlError(
      'PERMISSION_DENIED',
      "A link leads the session's workspace out of the folder that the workspaces are in (PAWL_WORKSPACE_ROOT).",
    );
  const own = protectedFolders().find((folder) => isIn(folder, realRoot));
  if (own === undefined) return;
  const ground = real([...grounds]).find((each) => isIn(each, realRoot));
  if (ground === undefined || isIn(ground, own))
    throw new PawlError(
      'PERMISSION_DENIED',
      "The session's workspace lies in a folder of Pawl's own (PAWL_DATA_DIR), which no tool may see.",
    );
}

function real(paths: readonly string[]): readonly string[] {
  return paths.filter((path) => existsSync(path)).map((path) => realpathSync(path));
}

function isIn(folder: string, path: string): boolean {
  const rest = relative(folder, path);
  return rest !== '..' && !rest.startsWith(`..${sep}`);
}
