/** Redis servers of the rig's own, with options of a row's own, that can be killed and started again. */

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, truncateSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { findRedisBinary } from '../../src/shared/store/redis/redis-binary.ts';
import { freePort } from '../helpers/free-port.ts';
import { eventually } from '../helpers/signal.ts';
import { clearedAtExit } from './remains.ts';

const run = promisify(execFile);

export interface Server extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** Where its files are. */
  readonly folder: string;
  /** A connection for faults; mends itself after a restart. */
  readonly admin: Redis;
  /** kill -9. */
  kill(): Promise<void>;
  /** Starts it again on its files, with more options than before. */
  start(options?: readonly string[]): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  readonly pid: number;
  readonly ended: boolean;
}

export async function startServer(folder: string, options: readonly string[] = []): Promise<Server> {
  const binary = await executable();
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  mkdirSync(folder, { recursive: true });
  const fixed = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'yes'];
  const durable = ['--appendfsync', 'everysec', '--maxmemory-policy', 'noeviction', '--logfile', join(folder, 'log')];
  let server: ChildProcess | undefined;
  let ended = true;
  const admin = new Redis(url, { lazyConnect: true, maxRetriesPerRequest: null, retryStrategy: () => 50 });
  admin.on('error', () => {});
  const start = async (more: readonly string[] = []) => {
    const started = spawn(binary, [...fixed, ...durable, ...options, ...more], { stdio: 'ignore' });
    server = started;
    ended = false;
    const gone = new Promise<never>((_, reject) =>
      started.once('close', (code) => {
        if (server === started) ended = true;
        reject(new Error(`the Redis server in ${folder} ended with ${code}`));
      }),
    );
    gone.catch(() => {});
    await Promise.race([gone, eventually(async () => answers(port), { what: `a Redis server in ${folder}` })]);
  };
  const release = clearedAtExit(() => void server?.kill('SIGKILL'));
  const kill = async () => {
    if (ended) return;
    server?.kill('SIGKILL');
    await eventually(() => ended, { what: 'the end of a Redis server' });
  };
  await start();
  return {
    url,
    port,
    folder,
    admin,
    kill,
    start,
    signal: (signal) => void server?.kill(signal),
    get pid() {
      return server?.pid ?? 0;
    },
    get ended() {
      return ended;
    },
    [Symbol.asyncDispose]: async () => {
      admin.disconnect();
      server?.kill('SIGCONT');
      await kill();
      release();
    },
  };
}

/**
 * Cuts the append-only file back to what had been written at a time: what a power failure leaves. Kills the server. The checkers of Redis and
 * Valkey can do so as well, but that of Valkey 9 takes the file that Valkey 9 begins with for broken.
 */
export async function forgetSince(server: Server, atSeconds: number): Promise<void> {
  await server.kill();
  const file = appendOnlyFile(server);
  const times = readFileSync(file, 'latin1').matchAll(/^#TS:(\d+)\r\n/gm);
  const later = [...times].find(([, writtenAtSeconds]) => Number(writtenAtSeconds) > atSeconds);
  if (later !== undefined) truncateSync(file, later.index);
}

/** What was written since the server's start. */
function appendOnlyFile(server: Server): string {
  const folder = join(server.folder, 'appendonlydir');
  const [name, ...others] = readdirSync(folder).filter((file) => file.endsWith('.incr.aof'));
  if (name === undefined || others.length > 0) throw new Error(`one append-only file was expected in ${folder}`);
  return join(folder, name);
}

async function executable(): Promise<string> {
  const given = process.env['PAWL_REDIS_SERVER'];
  if (given !== undefined) return given;
  const binary = await findRedisBinary();
  if (binary.kind !== 'executable') throw new Error('the fault rig needs a redis-server program, not a container');
  return binary.command;
}

/** Of the servers that are started here, such as `7.0.15`. */
export async function serverVersion(): Promise<string> {
  const { stdout } = await run(await executable(), ['--version']);
  return /v=(\S+)/.exec(stdout)?.[1] ?? 'unknown';
}

/** A server that asks for a user answers as well; one that still loads its file does not. */
async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    socket.end('PING\r\n');
    return /^(\+PONG|-NOAUTH)/.test(await text(socket));
  } finally {
    socket.destroy();
  }
}

const ON_DISK = 'on-disk';

/**
 * Notes in the append-only file whenever the server has said that its disk has all before. Answers how to cut the file back to the last
 * such note, which kills the server: what a power failure leaves of it at least.
 */
export function followDisk(server: Server): () => Promise<void> {
  const redis = server.admin.duplicate();
  redis.on('error', () => {});
  let last = '';
  const follow = async () => {
    for (let count = 1; ; count += 1) {
      await redis.set(ON_DISK, count);
      last = `${ON_DISK}\r\n$${String(count).length}\r\n${count}\r\n`;
      await redis.call('WAITAOF', 1, 0, 0);
    }
  };
  follow().catch(() => {});
  return async () => {
    const note = last;
    await server.kill();
    redis.disconnect();
    const file = appendOnlyFile(server);
    truncateSync(file, readFileSync(file, 'latin1').lastIndexOf(note) + note.length);
  };
}
