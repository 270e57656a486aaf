/**
 * Finds a Redis server on this machine, or fetches one into its own cache folder, without root.
 *
 * In this order: `redis-server` or `valkey-server` on the PATH (6.2 or later); the private cache; the package of Debian
 * and Ubuntu, unpacked into the private cache, or into the data folder where the cache cannot be written to; Docker; else an
 * error that names the command to install one.
 */
import { execFile } from 'node:child_process';
import { access, constants, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { reasonOf } from '../../errors/failure.ts';

const execute = promisify(execFile);

/**
 * The folder in which helper programs start. No call can write there: an empty or relative entry of PATH or LD_LIBRARY_PATH would mean the
 * current folder.
 */
const HELPER_FOLDER = '/';

/** The environment of helper programs. Its PATH must lead to no folder in which calls can write. Default: that of this process. */
export type HelperEnvironment = NodeJS.ProcessEnv | undefined;

export function helperOptions(env: HelperEnvironment): { readonly cwd: string; readonly env: HelperEnvironment } {
  return { cwd: HELPER_FOLDER, env };
}

/** Without a time limit in milliseconds it may run as long as it takes. */
export function runHelper(environment: HelperEnvironment, command: readonly string[], timeoutMs = 0) {
  const [program = '', ...args] = command;
  return execute(program, args, { ...helperOptions(environment), timeout: timeoutMs });
}

/** The oldest server whose commands Pawl's scripts use. */
const OLDEST_VERSION: readonly [number, number] = [6, 2];
const NAMES_ON_PATH = ['redis-server', 'valkey-server'] as const;
const DOCKER_IMAGES = ['redis:8-alpine', 'valkey/valkey:8-alpine'] as const;
const DOWNLOAD_TIMEOUT_MS = 120_000;
const PROBE_TIMEOUT_MS = 10_000;

/** The server to start. Both kinds take a configuration file, as in `redis-server FILE`. */
export type RedisBinary =
  | { readonly kind: 'executable'; readonly command: string; readonly version: string; readonly origin: string }
  | { readonly kind: 'docker'; readonly image: string; readonly origin: string };

interface RedisBinaryOptions {
  /** The folder in which a fetched server is kept between runs; default: the user's cache folder. */
  readonly cacheDir?: string;
  /** Pawl's data folder, which keeps the server where the cache folder cannot be written to. */
  readonly dataDir?: string;
  /** Called with one line for each step that takes time, such as a download. */
  readonly log?: (line: string) => void;
  readonly environment?: HelperEnvironment;
}

/** No server was found and none could be fetched. The message lists what was tried and what to do on this platform. */
export class NoRedisServerError extends Error {
  override readonly name = 'NoRedisServerError';

  constructor(tried: readonly string[]) {
    super(
      `No Redis server was found, and none could be fetched (${tried.join('; ')}). ` +
        `Install one (${installCommand()}) or set REDIS_URL.`,
    );
  }
}

/** @throws NoRedisServerError */
export async function findRedisBinary(options: RedisBinaryOptions = {}): Promise<RedisBinary> {
  const log = options.log ?? (() => {});
  const tried: string[] = [];
  for (const command of NAMES_ON_PATH) {
    const found = await probe(command, 'PATH', options.environment, tried);
    if (found !== undefined) return found;
  }
  const homes = cacheFolders(options).map((folder) =>
    join(folder, 'pawl', 'redis', `${process.platform}-${process.arch}`),
  );
  for (const home of homes) {
    const found = await probe(join(home, 'redis-server'), 'cache', options.environment, tried);
    if (found !== undefined) return found;
    // A data folder may have come with a repository of others, and so may a program in it.
    if (await isWritable(home)) break;
  }
  if (process.platform === 'linux') {
    try {
      const home = await firstWritable(homes);
      await fetchDebianPackage(home, options.environment, log);
      const downloaded = await probe(join(home, 'redis-server'), 'Debian package', options.environment, tried);
      if (downloaded !== undefined) return downloaded;
    } catch (error) {
      tried.push(`Debian package: ${firstLine(error)}`);
    }
  }
  const image = await findDockerImage(options.environment, tried);
  if (image !== undefined) return { kind: 'docker', image, origin: 'Docker' };
  throw new NoRedisServerError(tried);
}

/** The folders that may keep a fetched server, the preferred one first. */
function cacheFolders({ cacheDir = userCacheFolder(), dataDir }: RedisBinaryOptions): readonly string[] {
  return [cacheDir, ...(dataDir === undefined ? [] : [join(dataDir, 'cache')])].map((folder) => resolve(folder));
}

/** The first folder beside which this user may make others. A service often has no home folder, or may not write to it. */
async function firstWritable(folders: readonly string[]): Promise<string> {
  const failures: unknown[] = [];
  for (const folder of folders) {
    try {
      await mkdir(dirname(folder), { recursive: true });
      await access(dirname(folder), constants.W_OK | constants.X_OK);
      return folder;
    } catch (error) {
      failures.push(error);
    }
  }
  throw failures.at(-1);
}

function isWritable(folder: string): Promise<boolean> {
  return firstWritable([folder]).then(
    () => true,
    () => false,
  );
}

async function probe(
  command: string,
  origin: string,
  environment: HelperEnvironment,
  tried: string[],
): Promise<RedisBinary | undefined> {
  try {
    const { stdout } = await runHelper(environment, [command, '--version'], PROBE_TIMEOUT_MS);
    const version = /v=(?<version>\d+\.\d+\.\d+)/.exec(stdout)?.groups?.['version'];
    if (version === undefined) throw new Error(`answered '${stdout.trim()}'`);
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major > OLDEST_VERSION[0] || (major === OLDEST_VERSION[0] && minor >= OLDEST_VERSION[1])) {
      return { kind: 'executable', command, version, origin };
    }
    throw new Error(`is version ${version}, older than ${OLDEST_VERSION.join('.')}`);
  } catch (error) {
    tried.push(isMissing(error) ? `no ${command}` : `${command}: ${firstLine(error)}`);
    return undefined;
  }
}

/**
 * Unpacks the distribution's own package, checked by apt against the distribution's keys. apt writes only to a private folder, and reads the
 * system's list of installed packages, so that it fetches just the missing ones. `redis-check-rdb` of *redis-tools* is the same binary as
 * the server, which it becomes under the server's name.
 */
async function fetchDebianPackage(
  home: string,
  environment: HelperEnvironment,
  log: (line: string) => void,
): Promise<void> {
  await access('/var/lib/dpkg/status');
  log('no Redis server here: fetching the package of this distribution into a private folder');
  const work = await mkdtemp(`${home}-`);
  try {
    const lists = join(work, 'apt', 'lists');
    const archives = join(work, 'apt', 'archives');
    await mkdir(join(lists, 'partial'), { recursive: true });
    await mkdir(join(archives, 'partial'), { recursive: true });
    const settings = [
      `Dir::State::lists=${lists}`,
      `Dir::Cache=${join(work, 'apt')}`,
      `Dir::Cache::archives=${archives}`,
      'Debug::NoLocking=1',
      'APT::Sandbox::User=',
    ].flatMap((setting) => ['-o', setting]);
    const run = (...command: readonly string[]) => runHelper(environment, command, DOWNLOAD_TIMEOUT_MS);
    await run('apt-get', ...settings, '-qq', 'update');
    const install = ['-qq', 'install', '--yes', '--reinstall', '--download-only', '--no-install-recommends'];
    await run('apt-get', ...settings, ...install, 'redis-tools');
    const root = join(work, 'root');
    for (const name of await readdir(archives)) {
      if (name.endsWith('.deb')) await run('dpkg-deb', '-x', join(archives, name), root);
    }
    await rm(join(work, 'apt'), { recursive: true });
    await symlink('redis-check-rdb', join(root, 'usr', 'bin', 'pawl-redis-server'));
    await writeFile(join(work, 'redis-server'), LAUNCHER, { mode: 0o755 });
    await replaceFolder(work, home, environment);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * Starts the unpacked server with the unpacked libraries, wherever the folder is. The inherited search path is dropped: an empty entry in
 * it, as from a colon at its end, would load libraries from the current folder.
 */
const LAUNCHER = `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
libraries=
for folder in "$here"/root/usr/lib/*-linux-* "$here"/root/lib/*-linux-*; do
  if [ -d "$folder" ]; then libraries="$libraries\${libraries:+:}$folder"; fi
done
unset LD_LIBRARY_PATH
if [ -n "$libraries" ]; then export LD_LIBRARY_PATH="$libraries"; fi
exec "$here/root/usr/bin/pawl-redis-server" "$@"
`;

/** Two processes may fetch at once: the second finds the first's folder in place and keeps that one, if it works. */
async function replaceFolder(from: string, to: string, environment: HelperEnvironment): Promise<void> {
  try {
    await rename(from, to);
  } catch {
    if ((await probe(join(to, 'redis-server'), 'cache', environment, [])) !== undefined) return;
    await rm(to, { recursive: true, force: true });
    await rename(from, to);
  }
}

async function findDockerImage(environment: HelperEnvironment, tried: string[]): Promise<string | undefined> {
  try {
    await runHelper(environment, ['docker', 'version', '--format', '{{.Server.Version}}'], PROBE_TIMEOUT_MS);
  } catch (error) {
    tried.push(isMissing(error) ? 'no docker' : `docker: ${firstLine(error)}`);
    return undefined;
  }
  for (const image of DOCKER_IMAGES) {
    const local = await runHelper(environment, ['docker', 'image', 'inspect', image]).catch(() => undefined);
    if (local !== undefined) return image;
  }
  for (const image of DOCKER_IMAGES) {
    const pulled = await runHelper(environment, ['docker', 'pull', '--quiet', image], DOWNLOAD_TIMEOUT_MS).catch(
      () => undefined,
    );
    if (pulled !== undefined) return image;
  }
  tried.push(`docker: could not pull ${DOCKER_IMAGES.join(' or ')}`);
  return undefined;
}

/** The user's cache folder. In `pawl` below it are programs and compiled code. */
export function userCacheFolder(): string {
  if (process.platform === 'darwin') return join(homedir(), 'Library', 'Caches');
  if (process.platform === 'win32') return join(homedir(), 'AppData', 'Local');
  return join(homedir(), '.cache');
}

function installCommand(): string {
  if (process.platform === 'darwin') return 'brew install redis';
  if (process.platform === 'win32') return 'winget install Docker.DockerDesktop, or use WSL';
  return 'apt-get install redis-server, dnf install valkey, apk add valkey, pacman -S valkey';
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

function firstLine(error: unknown): string {
  return reasonOf(error).split('\n').filter(Boolean).slice(0, 2).join(' ').trim();
}
