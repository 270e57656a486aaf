/**
 * The trust boundary, for all workspaces of this process: no code that runs outside of the sandbox, and no file that such code reads as
 * instruction, lies where a call can write. A workspace is often the very folder in which Pawl was started, and then holds both.
 *
 * - Hidden: Pawl's data folder, its configuration, files with secrets, other tenants' workspaces, credentials in home folders.
 * - Read-only: what Pawl executes and loads (`protectCode`), there or not, and what the workspace's owner runs later (`owner-files.ts`).
 *
 * Every way into a workspace asks here: file tools for each name on their way, sandboxes for what they mount.
 */
import { existsSync, lstatSync, readdirSync, realpathSync, type Stats } from 'node:fs';
import { homedir, tmpdir, userInfo } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import { DEFAULT_READ_ONLY_PATHS } from '../../shared/policy/read-only-paths.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { isOwnerFile } from './owner-files.ts';

const folders = new Set<string>();
const files = new Set<string>();
const code = new Set<string>();
let ownerFiles: readonly string[] = DEFAULT_READ_ONLY_PATHS;

/** Hidden from all tools. The folder need not exist yet. */
export function protectFolder(path: string): void {
  folders.add(resolve(path));
}

/** The same for a file, there or not, by its real path. */
export function protectFile(path: string): void {
  files.add(resolve(path));
}

/** What Pawl executes or loads, a file or a folder, there or not. It can be read. */
export function protectCode(path: string): void {
  const name = realName(path);
  if (![...code].some((each) => liesIn(each, name))) code.add(name);
}

/** What the owner of a workspace runs later, as the setting `readOnlyPaths` names it. */
export function protectOwnerFiles(paths: readonly string[]): void {
  ownerFiles = paths;
}

/** Whether `path` is a hidden file: asked of every file of a search. */
export function isProtectedFile(path: string): boolean {
  return files.has(path);
}

/** Whether `path`, a real one, is a hidden folder or file. */
export function isProtected(path: string): boolean {
  if (isProtectedFile(path) || folders.has(path)) return true;
  return protectedFolders().includes(path) || credentials().includes(path);
}

/** Real paths of the hidden folders that exist. */
export function protectedFolders(): readonly string[] {
  return realPaths([...folders]);
}

/** Of those that exist. */
export function realPaths(paths: readonly string[]): readonly string[] {
  return paths.filter((path) => existsSync(path)).map((path) => realpathSync(path));
}

/** Hidden files, there or not. */
export function protectedFiles(): readonly string[] {
  return [...files];
}

/** What Pawl executes or loads, there or not, by real paths of the folders that it lies in. */
export function protectedCode(): readonly string[] {
  return [...code];
}

export function isProtectedCode(path: string): boolean {
  return [...code].some((each) => liesIn(each, path));
}

export function ownerFilePaths(): readonly string[] {
  return ownerFiles;
}

/**
 * Throws `PERMISSION_DENIED` for a name that no call may make, change or remove. `path` is a real one but for its last name; `stats` are
 * what stands there.
 */
export function refuseReadOnly(path: string, stats: Stats | undefined, asWritten: string): void {
  const named = JSON.stringify(asWritten);
  if (isProtectedCode(path) || isLinkToCode(stats))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${named} is code that Pawl runs outside of the sandbox, or decides what it loads: no tool may change it.`,
    );
  if (isOwnerFile(path, ownerFiles, stats?.isDirectory() === true))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${named} is run later by programs of the workspace's owner: no tool may change it (setting readOnlyPaths).`,
    );
}

/** Of the name itself; undefined where it is not there, or cannot be. */
export function statsOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

/** A hard link, or a name in other letters where the file system takes them for the same. */
function isLinkToCode(stats: Stats | undefined): boolean {
  if (stats === undefined || !stats.isFile()) return false;
  if (stats.nlink === 1 && process.platform === 'linux') return false;
  return [...code].some((each) => {
    const own = statsOf(each);
    return own !== undefined && own.ino === stats.ino && own.dev === stats.dev;
  });
}

/** `path` as its real folder names it, also where it does not exist. A link at its end is kept. */
export function realName(path: string): string {
  const absolute = resolve(path);
  const above = dirname(absolute);
  if (above === absolute) return absolute;
  return join(existsSync(above) ? realpathSync(above) : realName(above), basename(absolute));
}

const IN_HOMES =
  `.ssh .aws .azure .docker .gnupg .kube .netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .git-credentials .gem/credentials
  .cargo/credentials .cargo/credentials.toml .config/gh .config/hub .config/git/credentials .config/gcloud .config/containers .config/rclone
  .config/op .config/sops .terraform.d .vault-token .password-store .m2/settings.xml .gradle/gradle.properties .composer/auth.json
  .config/google-chrome .config/chromium .mozilla .local/share/keyrings .bash_history .zsh_history .node_repl_history .psql_history
  Library/Keychains`.split(/\s+/);
const OF_THE_MACHINE =
  `/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private /etc/krb5.keytab
  /etc/docker /etc/rancher /etc/kubernetes /var/lib/kubelet`.split(/\s+/);

/** The home of this user, as the system has it, or as the environment says unless that is a temporary one. */
export function ownHomes(): readonly string[] {
  return [...homesOfUser(), ...(liesIn(tmpdir(), homedir()) ? [] : [homedir()])];
}

function homesOfUser(): readonly string[] {
  try {
    return [userInfo().homedir];
  } catch {
    // A user ID without an entry in the user database, as in containers.
    return [];
  }
}

/** Home folders on this machine, as far as they can be told. */
function homeFolders(): readonly string[] {
  const others = ['/home', '/Users'].flatMap((above) => {
    try {
      return readdirSync(above).map((name) => join(above, name));
    } catch {
      return [];
    }
  });
  return [...new Set([homedir(), ...homesOfUser(), '/root', ...others])];
}

let known: { readonly atMs: number; readonly paths: readonly string[] } | undefined;
const KNOWN_MS = 5_000;

/** Real paths of what people keep credentials in. Looked up anew now and then: they come and go. */
export function credentials(): readonly string[] {
  const nowMs = performance.now();
  if (known !== undefined && nowMs - known.atMs < KNOWN_MS) return known.paths;
  const hostKeys = (() => {
    try {
      return readdirSync('/etc/ssh').flatMap((name) =>
        /^ssh_host_.*_key$/.test(name) ? [join('/etc/ssh', name)] : [],
      );
    } catch {
      return [];
    }
  })();
  const paths = [
    ...homeFolders().flatMap((home) => IN_HOMES.map((name) => join(home, name))),
    ...OF_THE_MACHINE,
    ...hostKeys,
  ];
  known = { atMs: nowMs, paths: [...new Set(realPathsOrNone(paths))] };
  return known.paths;
}

/** Another user's home folder may not be looked into: then no program of this worker can either. */
function realPathsOrNone(paths: readonly string[]): readonly string[] {
  return paths.flatMap((path) => {
    try {
      return existsSync(path) ? [realpathSync(path)] : [];
    } catch {
      return [];
    }
  });
}
