/**
 * Where the root of a workspace may lie, as far as its path tells: in no folder of the system, in no home folder as a whole, and for a
 * tenant in that tenant's own folder.
 */
import { createHash } from 'node:crypto';
import { dirname, join, resolve } from 'node:path';
import { PawlError } from '../errors/failure.ts';
import { liesIn } from '../util/file-path.ts';

/** What lies in them is the system's. */
const SYSTEM_FOLDERS = ['/proc', '/sys', '/dev', '/run', '/etc', '/boot', '/bin', '/sbin', '/lib', '/lib64'];
/** They hold what belongs to others; folders in them may be workspaces. */
const SHARED_FOLDERS = [
  '/',
  '/tmp',
  '/var',
  '/var/tmp',
  '/var/lib',
  '/usr',
  '/usr/local',
  '/opt',
  '/srv',
  '/mnt',
  '/media',
];
const PROGRAM_FOLDERS = ['/usr/bin', '/usr/sbin', '/usr/lib', '/usr/local/bin', '/usr/local/lib', '/usr/local/sbin'];
/** Each folder in them is somebody's home. */
const FOLDERS_OF_HOMES = ['/home', '/Users'];

/** Why no workspace has this root; undefined where it may. `homes` are the home folders that are known beside the usual ones. */
export function forbiddenRoot(path: string, homes: readonly string[]): string | undefined {
  const root = resolve(path);
  if ([...SYSTEM_FOLDERS, ...PROGRAM_FOLDERS].some((folder) => liesIn(folder, root)))
    return `${root} belongs to the system`;
  if (SHARED_FOLDERS.includes(root)) return `${root} holds what belongs to others`;
  const isHome = root === '/root' || FOLDERS_OF_HOMES.includes(dirname(root));
  if (isHome || [...homes, ...FOLDERS_OF_HOMES].some((home) => liesIn(root, home)))
    return `${root} is a home folder, or holds one`;
  return undefined;
}

/** The folder that holds the roots of tenants. */
export function tenantsFolder({ workspaceRoot, dataDir }: TenantPlaces): string {
  return workspaceRoot === undefined ? resolve(dataDir, 'workspaces') : resolve(workspaceRoot, 'tenants');
}

export interface TenantPlaces {
  readonly workspaceRoot?: string | undefined;
  readonly dataDir: string;
}

/** A tenant's own root. Two names never share one, also where a file system takes upper for lower case. */
export function tenantRoot(places: TenantPlaces, tenantId: string): string {
  const readable = tenantId
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .slice(0, 40);
  const distinct = createHash('sha256').update(tenantId).digest('hex').slice(0, 16);
  return join(tenantsFolder(places), `${readable}-${distinct}`);
}

/**
 * The root that the opener of a session names, absolute: a tenant's from that tenant's own. Throws `PERMISSION_DENIED` for one that no
 * worker would open for the session; links are looked at there.
 */
export function checkedRoot(asked: string, tenantId: string | undefined, places: TenantPlaces): string {
  const own = tenantId === undefined ? undefined : tenantRoot(places, tenantId);
  const root = own === undefined ? resolve(asked) : resolve(own, asked);
  const refuse = (why: string) => {
    throw new PawlError('PERMISSION_DENIED', `The session cannot have ${root} as its workspaceRoot: ${why}.`);
  };
  const forbidden = forbiddenRoot(root, []);
  if (forbidden !== undefined) refuse(forbidden);
  if (own !== undefined && !liesIn(own, root)) refuse(`its tenant's workspaces lie in ${own}`);
  if (own === undefined && liesIn(tenantsFolder(places), root)) refuse('it lies in the folder of a tenant');
  return root;
}
