/**
 * The folders that may be the root of a workspace, by their path alone: no system folder, no whole home folder, and for a tenant only its
 * own folder.
 */
import { createHash } from 'node:crypto';
import { dirname, join, resolve } from 'node:path';
import { PawlError } from '../errors/failure.ts';
import { liesIn } from '../util/file-path.ts';
import { words } from '../util/text/words.ts';

/** Folders of the system: nothing in them is a workspace. */
const SYSTEM_FOLDERS = words(`
  /proc /sys /dev /run /etc /boot /bin /sbin /lib /lib32 /lib64 /libx32 /nix /gnu /snap /lost+found
  /System /Library /Applications /private/etc /private/var/db /private/var/root
  /var/backups /var/cache /var/db /var/log /var/mail /var/spool
  /var/lib/apt /var/lib/containerd /var/lib/docker /var/lib/dpkg /var/lib/rpm /var/lib/systemd
`);
/** The same in `/usr` and `/usr/local`. `/usr/src` is a workspace in many container images. */
const PROGRAM_FOLDERS = ['/usr', '/usr/local'].flatMap((folder) =>
  words('bin etc games include lib lib32 lib64 libx32 libexec sbin share').map((name) => `${folder}/${name}`),
);
/** Folders shared with others. Folders within them may be workspaces. */
const SHARED_FOLDERS = words(`
  / /tmp /var /var/tmp /var/lib /usr /usr/local /opt /srv /mnt /media /private /private/tmp /private/var /private/var/tmp
  /Volumes
`);
/** Each folder within these is a home folder. */
const HOME_PARENTS = ['/home', '/Users'];

/** The reason why a path cannot be the root of a workspace; undefined where it can. `homes` are further home folders. */
export function forbiddenRoot(path: string, homes: readonly string[]): string | undefined {
  const root = resolve(path);
  if ([...SYSTEM_FOLDERS, ...PROGRAM_FOLDERS].some((folder) => liesIn(folder, root)))
    return `${root} belongs to the system`;
  if (SHARED_FOLDERS.includes(root)) return `${root} holds what belongs to others`;
  const isHome = root === '/root' || HOME_PARENTS.includes(dirname(root));
  if (isHome || [...homes, ...HOME_PARENTS].some((home) => liesIn(root, home)))
    return `${root} is a home folder, or holds one`;
  return undefined;
}

export function tenantsFolder({ workspaceRoot, dataDir }: TenantFolders): string {
  return workspaceRoot === undefined ? resolve(dataDir, 'workspaces') : resolve(workspaceRoot, 'tenants');
}

export interface TenantFolders {
  readonly workspaceRoot?: string | undefined;
  readonly dataDir: string;
}

/** A tenant's own root. No two tenants share one, even on a file system that ignores case. */
export function tenantRoot(folders: TenantFolders, tenantId: string): string {
  const readable = tenantId
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .slice(0, 40);
  const distinct = createHash('sha256').update(tenantId).digest('hex').slice(0, 16);
  return join(tenantsFolder(folders), `${readable}-${distinct}`);
}

/**
 * The absolute root that the opener of a session names; a relative path of a tenant starts at its own root. Throws `PERMISSION_DENIED` for
 * a root that no worker would open. Workers resolve links.
 */
export function requireAllowedRoot(path: string, tenantId: string | undefined, folders: TenantFolders): string {
  const tenantFolder = tenantId === undefined ? undefined : tenantRoot(folders, tenantId);
  const root = tenantFolder === undefined ? resolve(path) : resolve(tenantFolder, path);
  const refuse = (reason: string) => {
    throw new PawlError('PERMISSION_DENIED', `The session cannot have ${root} as its workspaceRoot: ${reason}.`);
  };
  const forbidden = forbiddenRoot(root, []);
  if (forbidden !== undefined) refuse(forbidden);
  if (tenantFolder !== undefined && !liesIn(tenantFolder, root))
    refuse(`its tenant's workspaces lie in ${tenantFolder}`);
  if (tenantFolder === undefined && liesIn(tenantsFolder(folders), root)) refuse('it lies in the folder of a tenant');
  return root;
}
