/** The files of one data folder: where its server runs, and what this user alone may read and write. */
import { createHash } from 'node:crypto';
import { lstat, mkdir, open, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';

/** The server was found but could not be started or reached. The message ends with the last lines of its log. */
export class EmbeddedRedisError extends Error {
  override readonly name: string = 'EmbeddedRedisError';
  readonly code = 'REDIS_UNAVAILABLE';
}

/** A server that cannot be reached from here uses the data folder. A second one would mix its own history into the first one's. */
export class DataFolderInUseError extends EmbeddedRedisError {
  override readonly name = 'DataFolderInUseError';
}

export interface Endpoint {
  readonly url: string;
  readonly runDir: string;
  /**
   * The folder of the server's files. A copy of the data folder has this file, too, and another server. Absent in files of earlier
   * versions.
   */
  readonly home?: string;
  /** The device and inode of that folder, which stay when it is renamed. */
  readonly homeId?: string;
}

/** The files of one data folder. */
export interface DataFolder {
  readonly dataDir: string;
  /** The server's files, and ours beside them. */
  readonly home: string;
  readonly endpointFile: string;
  readonly lockFile: string;
  /** The file that the supervisor renews. It says where the supervisor runs. */
  readonly aliveFile: string;
  readonly serverLog: string;
  readonly supervisorLog: string;
}

export async function openDataFolder(dataDir: string): Promise<DataFolder> {
  const absolute = resolve(dataDir);
  const home = join(absolute, 'redis');
  await mkdir(home, { recursive: true, mode: 0o700 });
  return {
    dataDir: absolute,
    home,
    endpointFile: join(home, 'endpoint.json'),
    lockFile: join(home, 'start.lock'),
    aliveFile: join(home, 'alive'),
    serverLog: join(home, 'redis.log'),
    supervisorLog: join(home, 'keeper.log'),
  };
}

export function folderDigest(folder: DataFolder): string {
  const owner = process.getuid?.() ?? 0;
  return createHash('sha256').update(`${owner}\n${folder.dataDir}`).digest('hex').slice(0, 16);
}

/** Others can write to the temp folder too: a folder that is not ours alone is left alone. */
export async function isOurs(runDir: string): Promise<boolean> {
  const found = await lstat(runDir).catch(() => undefined);
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
}

export async function readEndpoint(folder: DataFolder): Promise<Endpoint | undefined> {
  try {
    const read: unknown = JSON.parse(await readFile(folder.endpointFile, 'utf8'));
    if (typeof read !== 'object' || read === null || !('url' in read) || !('runDir' in read)) return undefined;
    const { url, runDir, home, homeId }: Partial<Record<keyof Endpoint, unknown>> = read;
    if (typeof url !== 'string' || typeof runDir !== 'string') return undefined;
    const isCopy = home !== undefined && home !== folder.home && homeId !== (await idOf(folder.home));
    return isCopy ? undefined : { url, runDir };
  } catch {
    return undefined;
  }
}

export async function idOf(path: string): Promise<string> {
  const { dev, ino } = await stat(path, { bigint: true });
  return `${dev}:${ino}`;
}

/** Complete or absent for every reader, and readable by this user only. */
export async function writePrivately(path: string, text: string): Promise<void> {
  const aside = `${path}.${process.pid}`;
  await writeFile(aside, text, { mode: 0o600 });
  await rename(aside, path);
}

export async function failure(folder: DataFolder, reason: string): Promise<EmbeddedRedisError> {
  const logs = await Promise.all([tail(folder.supervisorLog), tail(folder.serverLog)]);
  const last = logs.filter((text) => text !== '').join('\n');
  return new EmbeddedRedisError(
    last === '' ? `The embedded Redis: ${reason}.` : `The embedded Redis: ${reason}.\n${last}`,
  );
}

async function tail(path: string): Promise<string> {
  const file = await open(path, 'r').catch(() => undefined);
  if (file === undefined) return '';
  try {
    const { size } = await file.stat();
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(2_000), position: Math.max(0, size - 2_000) });
    return buffer.toString('utf8', 0, bytesRead).trimEnd().split('\n').slice(-5).join('\n');
  } finally {
    await file.close();
  }
}

export interface EmbeddedRedisOptions {
  /** The project's data folder (`PAWL_DATA_DIR`); the server keeps its files in `redis/` below it. */
  readonly dataDir: string;
  /** Called with one line for each step that takes time or is unusual. */
  readonly log?: (line: string) => void;
  /** False: nothing is written to disk, and the data ends with the server. Default true. */
  readonly persistent?: boolean;
  /** The folder in which a fetched server is kept between runs; default: the user's cache folder. */
  readonly cacheDir?: string;
}
