/**
 * Where the root of a workspace may lie, which whoever opens a session can name: in no folder of Pawl's own, unless the operator has
 * put the workspaces there (`PAWL_WORKSPACE_ROOT`). And one that is named below that setting is there: what links stand in a workspace,
 * its own programs decide.
 */
import { resolve } from 'node:path';
import { PawlError } from '../shared/failure.ts';
import { liesIn } from '../shared/file-path.ts';
import { protectedFolders, realPaths } from './protected-paths.ts';

const grounds = new Set<string>();

/** Where the operator wants the workspaces of this process. The folder need not exist yet. */
export function putWorkspacesIn(path: string): void {
  grounds.add(resolve(path));
}

/** Throws `PERMISSION_DENIED` for a root that no workspace may have; `realRoot` is where it really is. */
export function checkRoot(root: string, realRoot: string): void {
  const around = [...grounds].filter((ground) => liesIn(ground, root));
  if (around.length > 0 && !realPaths(around).some((ground) => liesIn(ground, realRoot)))
    throw new PawlError(
      'PERMISSION_DENIED',
      "A link leads the session's workspace out of the folder that the workspaces are in (PAWL_WORKSPACE_ROOT).",
    );
  const own = protectedFolders().find((folder) => liesIn(folder, realRoot));
  if (own === undefined) return;
  const ground = realPaths([...grounds]).find((each) => liesIn(each, realRoot));
  if (ground === undefined || liesIn(ground, own))
    throw new PawlError(
      'PERMISSION_DENIED',
      "The session's workspace lies in a folder of Pawl's own (PAWL_DATA_DIR), which no tool may see.",
    );
}
