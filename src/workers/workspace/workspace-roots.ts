/**
 * Decides which folders may be the root of a workspace; any client that opens a session can name one. A root may not
 * lie in a folder of the system, in one of Pawl's own (unless the operator set `PAWL_WORKSPACE_ROOT`), or in code that
 * Pawl runs. A tenant's session has its root in that tenant's folder, and no other session does. Links inside of such
 * a root are the concern of the workspace's own programs.
 */
import { mkdirSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import { forbiddenRoot, type TenantFolders, tenantRoot, tenantsFolder } from '../../shared/policy/workspace-root.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { isOwnerFolder } from './owner-files.ts';
import {
  credentials,
  isProtectedCode,
  knownHomes,
  ownerFilePaths,
  protectedFolders,
  protectFolder,
  realName,
  realPaths,
} from './protected-paths.ts';

const workspaceFolders = new Set<string>();
/** The folders of the tenants whose sessions this process has served. There may be many. */
const tenantFolders = new Set<string>();

/** Sets the operator's folder for the workspaces of this process. It need not exist yet. */
export function addWorkspaceFolder(path: string): void {
  workspaceFolders.add(resolve(path));
}

let homes: readonly string[] | undefined;

/** Explains why no session may have this root. A forbidden name is refused before anything opens it; links are checked after that. */
export function forbiddenReason(root: string): string | undefined {
  homes ??= knownHomes();
  const reason = forbiddenRoot(root, homes);
  if (reason === undefined) return undefined;
  return `No session can have this folder as its workspace: ${reason}. Start Pawl in another folder, or set PAWL_WORKSPACE_ROOT to one.`;
}

/** Throws `PERMISSION_DENIED` for a root that no workspace may have. `realRoot` is its real path. */
export function checkRoot(root: string, realRoot: string): void {
  const forbidden = forbiddenReason(realRoot);
  if (forbidden !== undefined && forbiddenReason(root) === undefined)
    throw new PawlError('PERMISSION_DENIED', forbidden);
  if (credentials().some((path) => liesIn(path, realRoot)))
    throw new PawlError('PERMISSION_DENIED', "The session's workspace lies in a folder with a person's credentials.");
  if (isProtectedCode(realRoot))
    throw new PawlError('PERMISSION_DENIED', "The session's workspace lies in a folder of code that Pawl runs.");
  // Only folders in which the root lies as it is named: a link could lead to the folder of another session's tenant.
  const named = [
    ...[...workspaceFolders].filter((ground) => [ground, ...realPaths([ground])].some((name) => liesIn(name, root))),
    ...[...tenantFolders].filter((ground) => liesIn(ground, root)),
  ];
  const grounds = realPaths(named);
  if (!grounds.every((ground) => liesIn(ground, realRoot)))
    throw new PawlError(
      'PERMISSION_DENIED',
      "A link leads the session's workspace out of the folder that the workspaces are in (PAWL_WORKSPACE_ROOT, or the worker's folder): name the folder that it leads to.",
    );
  const [ground = realRoot] = grounds.toSorted((one, other) => other.length - one.length);
  if (isOwnerFolder(relative(ground, realRoot), ownerFilePaths()))
    throw new PawlError(
      'PERMISSION_DENIED',
      "The session's workspace lies in a folder whose files programs of the owner run (setting readOnlyPaths).",
    );
  const protectedFolder = protectedFolders()
    .filter((folder) => liesIn(folder, realRoot))
    .find((folder) => !grounds.some((ground) => ground !== folder && liesIn(folder, ground)));
  if (protectedFolder !== undefined)
    throw new PawlError(
      'PERMISSION_DENIED',
      "The session's workspace lies in a folder of Pawl's own (PAWL_DATA_DIR) or of a tenant, which no other tool may see.",
    );
}

/**
 * Explains why the session has no workspace here, whatever its record says: the worker's own settings decide where a
 * tenant's workspace lies. Undefined where it has one; its tenant's folder is created then.
 */
export function openTenantRoot(
  { tenantId, workspaceRoot }: { readonly tenantId?: string | undefined; readonly workspaceRoot: string },
  folders: TenantFolders,
): string | undefined {
  const tenantsRoot = tenantsFolder(folders);
  // Only a tenant's own sessions may see its folder.
  protectFolder(tenantsRoot);
  if (tenantId === undefined) {
    if (!realNames(tenantsRoot).some((folder) => liesIn(folder, realName(workspaceRoot)))) return undefined;
    return "The session is of no tenant, and its workspace lies in a tenant's folder.";
  }
  const ownRoot = tenantRoot(folders, tenantId);
  if (!liesIn(ownRoot, workspaceRoot))
    return `The session's workspace is not in its tenant's folder (${ownRoot}): leave out workspaceRoot, and give producers and workers the same PAWL_WORKSPACE_ROOT.`;
  tenantFolders.add(ownRoot);
  try {
    mkdirSync(ownRoot, { recursive: true, mode: 0o700 });
  } catch {
    // A read-only worker uses the folder that another worker made, and otherwise reports that there is none.
  }
  return undefined;
}

const realNames = (folder: string): readonly string[] => [folder, realName(folder)];
