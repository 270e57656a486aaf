/** The configuration of an embedded server, and the command that starts it. */
import { randomBytes } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { RedisBinary } from '../redis-binary.ts';
import { type DataFolder, EmbeddedRedisError, folderDigest, writePrivateFile } from './data-folder.ts';

/** The kernel's limit for a socket's path is 104 bytes on macOS and 108 on Linux. */
const LONGEST_SOCKET_PATH = 100;

const CONTROL = /[\x00-\x1f\x7f]/g;

/** Redis stores a hash compactly while none of its values is longer. */
const COMPACT_VALUE_BYTES = 2_048;

/** Writes the server's configuration; returns its URL and the command that starts it. */
export async function configure(
  folder: DataFolder,
  binary: RedisBinary,
  runDir: string,
): Promise<{ url: string; command: readonly string[] }> {
  const file = join(runDir, 'redis.conf');
  const overNetwork = binary.kind === 'docker' || process.platform === 'win32';
  const password = randomBytes(24).toString('hex');
  const port = overNetwork ? await freePort() : 0;
  const socket = socketPathIn(runDir);
  const inContainer = binary.kind === 'docker';
  const listening = overNetwork
    ? [`bind ${inContainer ? '*' : '127.0.0.1'}`, `port ${inContainer ? 6379 : port}`, `requirepass ${password}`]
    : ['port 0', `unixsocket ${quoted(socket)}`, 'unixsocketperm 600'];
  const lines = [
    ...listening,
    `dir ${quoted(inContainer ? '/data' : folder.home)}`,
    `logfile ${quoted(inContainer ? '/data/redis.log' : folder.serverLog)}`,
    'daemonize no',
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    // Compact records of calls take a third less memory. All versions from 6.2 on know this name of the setting.
    `hash-max-ziplist-value ${COMPACT_VALUE_BYTES}`,
  ];
  await writePrivateFile(file, `${lines.join('\n')}\n`);
  const url = overNetwork ? `redis://:${password}@127.0.0.1:${port}` : socketIn(runDir);
  if (binary.kind === 'executable') return { url, command: [binary.command, file] };
  return { url, command: await dockerCommand(folder, binary.image, runDir, port) };
}

/** A container outlives a killed `docker run`, so each start first removes the one before it. */
async function dockerCommand(
  folder: DataFolder,
  image: string,
  runDir: string,
  port: number,
): Promise<readonly string[]> {
  const name = `pawl-redis-${folderDigest(folder)}`;
  const user = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
  const server = image.startsWith('valkey') ? 'valkey-server' : 'redis-server';
  const script =
    'docker rm --force "$1" >/dev/null 2>&1; exec docker run --rm --name "$1" --user "$2" ' +
    '--publish "127.0.0.1:$3:6379" --volume "$4:/data" --volume "$5:/run/pawl:ro" "$6" "$7" /run/pawl/redis.conf';
  return ['/bin/sh', '-c', script, 'sh', name, user, String(port), folder.home, runDir, image, server];
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done, failed) => server.once('error', failed).listen(0, '127.0.0.1', done));
  const address = server.address();
  await new Promise<void>((done) => server.close(() => done()));
  if (address === null || typeof address === 'string') throw new EmbeddedRedisError('no free port on the loopback');
  return address.port;
}

/** A folder in the temp folder, because a socket's path must be short. Each server has its own, so that an earlier one removes only its own. */
export async function makeRunDir(folder: DataFolder): Promise<string> {
  const name = `pawl-${folderDigest(folder)}-`;
  const temporary = resolve(tmpdir());
  const maxBytes = Buffer.byteLength(socketPathIn(join(temporary, `${name}XXXXXX`)));
  return mkdtemp(join(maxBytes <= LONGEST_SOCKET_PATH ? temporary : '/tmp', name));
}

function socketPathIn(runDir: string): string {
  return join(runDir, 'redis.sock');
}

export function socketIn(runDir: string): string {
  // A ? or # would end the path.
  return `unix://${encodeURI(socketPathIn(runDir)).replace(/[?#]/g, encodeURIComponent)}`;
}

/** Quotes a value of the configuration file, so that it may contain spaces and control characters. */
function quoted(value: string): string {
  const escaped = value.replaceAll(/[\\"]/g, '\\$&').replaceAll(CONTROL, (character) => {
    return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return `"${escaped}"`;
}
