/** The files of one data folder, which only this user may read and write. */
import { createHash } from 'node:crypto';
import { lstat, mkdir, open, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { HelperEnvironment } from '../redis-binary.ts';

/** The server was found but could not be started or reached. The message ends with the last lines of its log. */
export class EmbeddedRedisError extends Error {
  override readonly name: string = 'EmbeddedRedisError';
}

/** A server that cannot be reached from here uses the data folder. A second server would corrupt its data. */
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

export interface DataFolder {
  readonly dataDir: string;
  /** The server's files, and ours beside them. */
  readonly home: string;
  readonly endpointFile: string;
  readonly lockFile: string;
  /** The file that the supervisor renews. It contains the folder of the supervisor's files. */
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

/** Whether only this user can enter the folder: other users can create folders in the temp folder, too. */
export async function isOwnFolder(runDir: string): Promise<boolean> {
  const stats = await lstat(runDir).catch(() => undefined);
  return stats?.isDirectory() === true && stats.uid === process.getuid?.() && (stats.mode & 0o077) === 0;
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

/** Writes a file that only this user can read. Readers see the whole file or none. */
export async function writePrivateFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, text, { mode: 0o600 });
  await rename(temporary, path);
}

export async function failure(folder: DataFolder, reason: string): Promise<EmbeddedRedisError> {
  const logs = await Promise.all([tail(folder.supervisorLog), tail(folder.serverLog)]);
  const logTail = logs.filter((text) => text !== '').join('\n');
  return new EmbeddedRedisError(
    logTail === '' ? `The embedded Redis: ${reason}.` : `The embedded Redis: ${reason}.\n${logTail}`,
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
  /** The folder in which a fetched server is kept between runs; default: the user's cache folder. */
  readonly cacheDir?: string;
  readonly environment?: HelperEnvironment;
}
