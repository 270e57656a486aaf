/**
 * A private Redis for a machine that has none configured: a real server as a child process, shared by every process
 * that uses the same data folder.
 *
 * One server per data folder. Whoever comes first starts it and writes an endpoint file; whoever comes later attaches.
 * It lives as long as any of them, however they end, and no longer: a small `sh` keeper holds the read end of a FIFO
 * whose write end every user keeps open (see `redis-keeper.sh`). Keeper and server have their own process group, so
 * that Ctrl-C in a terminal reaches their users first. Nothing listens on the network: clients use a Unix socket in a
 * folder that only this user can enter. That folder may be out of sight of others who use the same data folder: for them
 * the keeper signs the file `alive` in it.
 *
 * Where there is no FIFO (Windows), the server listens on a loopback port with a password and ends with the process
 * that started it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, constants, existsSync, openSync, readFileSync, readlinkSync, writeSync } from 'node:fs';
import {
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readFile,
  rename,
  rm,
  stat,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { createServer, connect as openConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { findRedisBinary, HELPER_FOLDER, type RedisBinary, runHelper } from './redis-binary.ts';

const KEEPER = fileURLToPath(new URL('./redis-keeper.sh', import.meta.url));
const START_TIMEOUT_MS = 30_000;
const WELCOME_TIMEOUT_MS = 2_000;
const ANSWER_TIMEOUT_MS = 1_000;
const POLL_MS = 5;
/** Each look at a server that reads its data takes a little of its time. */
const LOADING_POLL_MS = 50;
const LOCK_RENEWAL_MS = 2_000;
/** A starter that has not renewed its lock for so long is stopped or gone. */
const LOCK_STALE_MS = 20_000;
/** The keeper signs every two seconds: after so long it, or the machine, is gone. */
const SILENT_MS = 10_000;
/** The kernel's limit for a socket's path is 104 bytes on macOS and 108 on Linux. */
const LONGEST_SOCKET_PATH = 100;
const CONTROL = /[\x00-\x1f\x7f]/g;
/** A hash stays in one piece while none of its values is longer. */
const COMPACT_VALUE_BYTES = 2_048;

export interface EmbeddedRedisOptions {
  /** The project's data folder (`PAWL_DATA_DIR`); the server keeps its files in `redis/` below it. */
  readonly dataDir: string;
  /** Told what takes time or is unusual, one line each. */
  readonly log?: (line: string) => void;
  /** False: nothing is written to disk, and the data ends with the server. Default true. */
  readonly persistent?: boolean;
  /** Where a fetched server is kept between runs; default: the user's cache folder. */
  readonly cacheDir?: string;
}

export interface EmbeddedRedis {
  /** `unix:///…/redis.sock`, or `redis://:password@127.0.0.1:port` with Docker and on Windows; `new Redis(url)` takes both. */
  readonly url: string;
  /** Such as `7.0.15`. */
  readonly serverVersion: string;
  /** Absolute. */
  readonly dataDir: string;
  /** Drops this process's reference; the server ends with its last user. Safe to call twice. */
  stop(): Promise<void>;
}

/** The server was found but could not be started or reached. The message ends with the last lines of its log. */
export class EmbeddedRedisError extends Error {
  override readonly name: string = 'EmbeddedRedisError';
  readonly code = 'REDIS_UNAVAILABLE';
}

/** A server that cannot be reached from here uses the data folder. A second one would mix its own history into the first one's. */
export class DataFolderInUseError extends EmbeddedRedisError {
  override readonly name = 'DataFolderInUseError';
}

/** What the endpoint file holds. */
interface Endpoint {
  readonly url: string;
  readonly runDir: string;
  /** Of the server's files. A copy of the data folder has this file too, and another server. Absent in what an earlier version wrote. */
  readonly home?: string;
  /** The same folder, however it is called. */
  readonly homeId?: string;
}

/** The fixed places of one data folder. */
interface Partition {
  readonly dataDir: string;
  /** The server's files, and ours beside them. */
  readonly home: string;
  readonly endpointFile: string;
  readonly lockFile: string;
  /** What the keeper signs, with where it runs. */
  readonly aliveFile: string;
  readonly serverLog: string;
  readonly supervisorLog: string;
}

/**
 * Attaches to the data folder's server, and starts it first where there is none.
 *
 * @throws NoRedisServerError, EmbeddedRedisError, DataFolderInUseError
 */
export async function startEmbeddedRedis(options: EmbeddedRedisOptions): Promise<EmbeddedRedis> {
  const place = await openPlace(options.dataDir);
  const attached = await attach(place, options);
  if (attached !== undefined) return attached;
  // Before the lock: a download may take longer than anyone should hold it.
  const binary = await findRedisBinary(options);
  const deadlineMs = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadlineMs) {
    const lock = await takeLock(place);
    if (lock !== undefined) {
      try {
        return (await attach(place, options)) ?? (await start(place, binary, options, deadlineMs));
      } finally {
        await lock.release();
      }
    }
    await sleep(POLL_MS * 4);
    const meanwhile = await attach(place, options);
    if (meanwhile !== undefined) return meanwhile;
  }
  throw await failure(
    place,
    `another process is starting the embedded Redis and did not finish in ${START_TIMEOUT_MS} ms`,
  );
}

async function openPlace(dataDir: string): Promise<Partition> {
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

/** Answers undefined where no server stands, or the one that stands is ending. */
async function attach(place: Partition, options: EmbeddedRedisOptions): Promise<EmbeddedRedis | undefined> {
  const endpoint = await readEndpoint(place);
  if (endpoint === undefined) return undefined;
  if (process.platform === 'win32') {
    const state = await askState(endpoint.url);
    if (state.kind !== 'ready') return undefined;
    return { url: endpoint.url, serverVersion: state.version, dataDir: place.dataDir, stop: async () => {} };
  }
  const reference = openForWriting(endpoint.runDir);
  if (reference === undefined) return undefined;
  const serverVersion = (await isWelcome(endpoint.runDir, reference))
    ? await awaitVersion(place, endpoint, options, Date.now() + START_TIMEOUT_MS).catch((error: unknown) => {
        closeSync(reference);
        throw error;
      })
    : undefined;
  if (serverVersion !== undefined) return embeddedRedis(place, endpoint, serverVersion, reference);
  closeSync(reference);
  return undefined;
}

/** The keeper answers a token only before it has seen the end of the FIFO: an answer means that the server stays. */
async function isWelcome(runDir: string, reference: number): Promise<boolean> {
  const token = randomBytes(8).toString('hex');
  const answer = join(runDir, `welcome-${token}`);
  try {
    writeSync(reference, `${token}\n`);
  } catch {
    return false;
  }
  const deadlineMs = Date.now() + WELCOME_TIMEOUT_MS;
  while (Date.now() < deadlineMs) {
    if (existsSync(answer)) {
      await rm(answer, { force: true });
      return true;
    }
    if (existsSync(join(runDir, 'closing')) || !existsSync(runDir)) return false;
    await sleep(POLL_MS);
  }
  return false;
}

async function start(
  place: Partition,
  binary: RedisBinary,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<EmbeddedRedis> {
  options.log?.(`starting an embedded Redis (${describeBinary(binary)}) with its data in ${place.home}`);
  if (process.platform === 'win32') return startOwned(place, binary, options, deadlineMs);
  await endPrevious(place, options, deadlineMs);
  const runDir = await makeRunDir(place);
  const { url, command } = await configure(place, binary, options, runDir);
  const endpoint: Endpoint = { url, runDir, home: place.home, homeId: await idOf(place.home) };
  const { reference, supervisor } = await startSupervisor(place, endpoint, command);
  try {
    // Before the server answers: whoever waits for it attaches, and sees for itself that it reads its data.
    await writePrivately(place.endpointFile, `${JSON.stringify(endpoint)}\n`);
    const serverVersion = await awaitVersion(place, endpoint, options, deadlineMs);
    supervisor.unref();
    return embeddedRedis(place, endpoint, serverVersion, reference);
  } catch (error) {
    closeSync(reference);
    throw error;
  }
}

/**
 * The FIFO is opened three times. Once for both directions, so that neither of the others waits for its counterpart;
 * once for reading, for the keeper, which inherits it already open and so cannot miss our end; once for writing: ours.
 */
async function startSupervisor(
  place: Partition,
  endpoint: Endpoint,
  command: readonly string[],
): Promise<{ reference: number; supervisor: ChildProcess }> {
  const fifo = join(endpoint.runDir, 'users');
  await runHelper('mkfifo', ['-m', '600', fifo]);
  const both = openSync(fifo, constants.O_RDWR);
  const reading = openSync(fifo, constants.O_RDONLY);
  const reference = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK);
  const log = openSync(place.supervisorLog, 'a', 0o600);
  try {
    const supervisor = spawn('/bin/sh', [KEEPER, endpoint.runDir, place.endpointFile, ...command], {
      cwd: HELPER_FOLDER,
      detached: true,
      stdio: ['ignore', log, log, reading],
    });
    await new Promise<void>((done, failed) => supervisor.once('spawn', done).once('error', failed));
    return { reference, supervisor };
  } catch (error) {
    closeSync(reference);
    throw error;
  } finally {
    for (const descriptor of [both, reading, log]) closeSync(descriptor);
  }
}

/** Undefined: no keeper reads there. The descriptor closes on exec, so no child of ours counts as a user. */
function openForWriting(runDir: string): number | undefined {
  try {
    return openSync(join(runDir, 'users'), constants.O_WRONLY | constants.O_NONBLOCK);
  } catch {
    return undefined;
  }
}

/**
 * Sees the previous server of this data folder to its end: two servers must never write the same files. Usually its
 * keeper is just finishing.
 *
 * @throws DataFolderInUseError when there is one that cannot be reached from here
 */
async function endPrevious(place: Partition, options: EmbeddedRedisOptions, deadlineMs: number): Promise<void> {
  const runDir = (await readEndpoint(place))?.runDir;
  const isSeen = runDir !== undefined && (await isOurs(runDir));
  if (isSeen && existsSync(join(runDir, 'users'))) await shutDown(place, runDir, deadlineMs);
  else await awaitSilence(place, options, isSeen ? runDir : undefined);
  if (isSeen) await rm(runDir, { recursive: true, force: true });
  await rm(place.endpointFile, { force: true });
}

/** Waits for the end of a keeper that finishes. A server whose keeper was killed is asked to shut down. */
async function shutDown(place: Partition, runDir: string, deadlineMs: number): Promise<void> {
  for (;;) {
    const reading = openForWriting(runDir);
    if (reading === undefined) break;
    closeSync(reading);
    if (Date.now() > deadlineMs) throw await failure(place, `the previous server in ${runDir} does not end`);
    await sleep(POLL_MS * 4);
  }
  const socket = socketIn(runDir);
  if (existsSync(runDir)) await writeFile(join(runDir, 'closing'), '').catch(() => {});
  if ((await ask(socket, 'PING')) === undefined) return;
  while ((await ask(socket, 'SHUTDOWN')) !== undefined || (await ask(socket, 'PING')) !== undefined) {
    if (Date.now() > deadlineMs) throw await failure(place, `the previous server at ${socket} does not shut down`);
    await sleep(POLL_MS * 4);
  }
  // Its socket closes a moment before it has ended, and what is left of the keeper must read `closing` first.
  const patienceMs = Date.now() + WELCOME_TIMEOUT_MS;
  while (!existsSync(join(runDir, 'ended')) && Date.now() < patienceMs) await sleep(POLL_MS);
}

/** Where no FIFO is seen, one that lives shows by its signs in the data folder. Compared with each other: clocks may be wrong. */
async function awaitSilence(
  place: Partition,
  options: EmbeddedRedisOptions,
  runDir: string | undefined,
): Promise<void> {
  if (runDir !== undefined && (await ask(socketIn(runDir), 'PING')) !== undefined) throw await inUse(place);
  const last = await lastSign(place);
  if (last === undefined || Math.abs(Date.now() - last) > SILENT_MS) return;
  const silentAtMs = Date.now() + SILENT_MS;
  options.log?.(`waiting to see whether another embedded Redis lives in ${place.home}`);
  while (Date.now() < silentAtMs) {
    const sign = await lastSign(place);
    if (sign === undefined) return;
    if (sign !== last) throw await inUse(place);
    await sleep(POLL_MS * 4);
  }
}

/** When the keeper last signed. Undefined: it took its sign back, or there never was one. */
async function lastSign(place: Partition): Promise<number | undefined> {
  return (await stat(place.aliveFile).catch(() => undefined))?.mtimeMs;
}

async function inUse(place: Partition): Promise<DataFolderInUseError> {
  const where = (await readFile(place.aliveFile, 'utf8').catch(() => '')).trim();
  return new DataFolderInUseError(
    `The embedded Redis: another one lives on ${place.home} and cannot be reached from here${where === '' ? '' : ` (its files are in ${where})`}. ` +
      'A container, or a service with a /tmp of its own, may have started it, or its files were removed. A second one would damage the data: ' +
      'run this where the first one runs, end what uses that, name another data folder (PAWL_DATA_DIR), or share one Redis (REDIS_URL).',
  );
}

function embeddedRedis(place: Partition, endpoint: Endpoint, serverVersion: string, reference: number): EmbeddedRedis {
  let held: number | undefined = reference;
  return {
    url: endpoint.url,
    serverVersion,
    dataDir: place.dataDir,
    stop: async () => {
      if (held !== undefined) closeSync(held);
      held = undefined;
    },
  };
}

async function startOwned(
  place: Partition,
  binary: RedisBinary,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<EmbeddedRedis> {
  const { url, command } = await configure(place, binary, options, place.home);
  const [program = '', ...args] = command;
  const server = spawn(program, args, { cwd: HELPER_FOLDER, stdio: 'ignore', windowsHide: true });
  const end = () => void server.kill();
  process.once('exit', end);
  const endpoint: Endpoint = { url, runDir: place.home };
  const serverVersion = await awaitVersion(place, endpoint, options, deadlineMs);
  await writePrivately(place.endpointFile, `${JSON.stringify(endpoint)}\n`);
  server.unref();
  const stop = async () => {
    process.off('exit', end);
    end();
  };
  return { url, serverVersion, dataDir: place.dataDir, stop };
}

/** Writes the server's configuration; answers where it will listen and what starts it. */
async function configure(
  place: Partition,
  binary: RedisBinary,
  options: EmbeddedRedisOptions,
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
    `dir ${quoted(inContainer ? '/data' : place.home)}`,
    `logfile ${quoted(inContainer ? '/data/redis.log' : place.serverLog)}`,
    'daemonize no',
    `appendonly ${options.persistent === false ? 'no' : 'yes'}`,
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    // Records of calls in one piece each: a third less memory. By the name that Redis 6.2 has for it as well.
    `hash-max-ziplist-value ${COMPACT_VALUE_BYTES}`,
  ];
  await writePrivately(file, `${lines.join('\n')}\n`);
  const url = overNetwork ? `redis://:${password}@127.0.0.1:${port}` : socketIn(runDir);
  if (binary.kind === 'executable') return { url, command: [binary.command, file] };
  return { url, command: await dockerCommand(place, binary.image, runDir, port) };
}

/** A container outlives a killed `docker run`, so each start first removes the one before it. */
async function dockerCommand(
  place: Partition,
  image: string,
  runDir: string,
  port: number,
): Promise<readonly string[]> {
  const name = `pawl-redis-${digestOf(place)}`;
  const user = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
  const server = image.startsWith('valkey') ? 'valkey-server' : 'redis-server';
  const script =
    'docker rm --force "$1" >/dev/null 2>&1; exec docker run --rm --name "$1" --user "$2" ' +
    '--publish "127.0.0.1:$3:6379" --volume "$4:/data" --volume "$5:/run/pawl:ro" "$6" "$7" /run/pawl/redis.conf';
  return ['/bin/sh', '-c', script, 'sh', name, user, String(port), place.home, runDir, image, server];
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done, failed) => server.once('error', failed).listen(0, '127.0.0.1', done));
  const address = server.address();
  await new Promise<void>((done) => server.close(() => done()));
  if (address === null || typeof address === 'string') throw new EmbeddedRedisError('no free port on the loopback');
  return address.port;
}

/** In the temp folder, because a socket's path must be short. Each server has its own: what an earlier one removes late is its own. */
async function makeRunDir(place: Partition): Promise<string> {
  const name = `pawl-${digestOf(place)}-`;
  const temporary = resolve(tmpdir());
  const longest = Buffer.byteLength(socketPathIn(join(temporary, `${name}XXXXXX`)));
  return mkdtemp(join(longest <= LONGEST_SOCKET_PATH ? temporary : '/tmp', name));
}

function socketPathIn(runDir: string): string {
  return join(runDir, 'redis.sock');
}

function socketIn(runDir: string): string {
  // A ? or # would end the path.
  return `unix://${encodeURI(socketPathIn(runDir)).replace(/[?#]/g, encodeURIComponent)}`;
}

function digestOf(place: Partition): string {
  const owner = process.getuid?.() ?? 0;
  return createHash('sha256').update(`${owner}\n${place.dataDir}`).digest('hex').slice(0, 16);
}

/** Others can write to the temp folder too: a folder that is not ours alone is left alone. */
async function isOurs(runDir: string): Promise<boolean> {
  const found = await lstat(runDir).catch(() => undefined);
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
}

async function readEndpoint(place: Partition): Promise<Endpoint | undefined> {
  try {
    const read: unknown = JSON.parse(await readFile(place.endpointFile, 'utf8'));
    if (typeof read !== 'object' || read === null || !('url' in read) || !('runDir' in read)) return undefined;
    const { url, runDir, home, homeId }: Partial<Record<keyof Endpoint, unknown>> = read;
    if (typeof url !== 'string' || typeof runDir !== 'string') return undefined;
    const isCopy = home !== undefined && home !== place.home && homeId !== (await idOf(place.home));
    return isCopy ? undefined : { url, runDir };
  } catch {
    return undefined;
  }
}

async function idOf(folder: string): Promise<string> {
  const { dev, ino } = await stat(folder, { bigint: true });
  return `${dev}:${ino}`;
}

/** Complete or absent for every reader, and readable by this user only. */
async function writePrivately(path: string, text: string): Promise<void> {
  const aside = `${path}.${process.pid}`;
  await writeFile(aside, text, { mode: 0o600 });
  await rename(aside, path);
}

/** Waits until the server answers: until the deadline while it is silent, and as long as it takes while it reads its data. */
async function awaitVersion(
  place: Partition,
  endpoint: Endpoint,
  { log }: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<string> {
  let silentUntilMs = deadlineMs;
  let isTold = false;
  for (;;) {
    const state = await askState(endpoint.url);
    if (state.kind === 'ready') return state.version;
    if (state.kind === 'loading') {
      silentUntilMs = Math.max(silentUntilMs, Date.now() + START_TIMEOUT_MS);
      if (!isTold) log?.(`the embedded Redis reads its data from ${place.home}`);
      isTold = true;
    } else if (existsSync(join(endpoint.runDir, 'failed')))
      throw await failure(place, 'the server ends as soon as it starts');
    if (Date.now() > silentUntilMs)
      throw await failure(place, `the server at ${redacted(endpoint.url)} does not answer`);
    await sleep(state.kind === 'loading' ? LOADING_POLL_MS : POLL_MS);
  }
}

type ServerState =
  | { readonly kind: 'ready'; readonly version: string }
  /** It reads its data, which takes as long as there is much of it. */
  | { readonly kind: 'loading' }
  | { readonly kind: 'silent' };

async function askState(url: string): Promise<ServerState> {
  const answer = (await ask(url, 'PING', 'INFO server')) ?? '';
  if (answer.includes('-LOADING')) return { kind: 'loading' };
  const version = /redis_version:(?<version>[\w.]+)/.exec(answer)?.groups?.['version'];
  return version !== undefined && answer.includes('+PONG') ? { kind: 'ready', version } : { kind: 'silent' };
}

/**
 * Sends inline commands over a connection of their own and answers all that came back; undefined where nothing listens
 * or nothing came. A client library would reconnect and queue, which is just what must not happen here.
 */
function ask(url: string, ...commands: readonly string[]): Promise<string | undefined> {
  const target = new URL(url);
  const address =
    target.protocol === 'unix:'
      ? { path: decodeURIComponent(target.pathname) }
      : { host: target.hostname, port: Number(target.port) };
  const all = target.password === '' ? commands : [`AUTH ${target.password}`, ...commands];
  return new Promise((done) => {
    const connection = openConnection(address);
    let text = '';
    connection.setEncoding('utf8');
    connection.setTimeout(ANSWER_TIMEOUT_MS, () => connection.destroy());
    connection.on('connect', () => connection.write([...all, 'QUIT', ''].join('\r\n')));
    connection.on('data', (chunk: string) => {
      text += chunk;
    });
    connection.on('error', () => {});
    connection.on('close', () => done(text === '' ? undefined : text));
  });
}

interface StartLock {
  release(): Promise<void>;
}

/** One starter at a time per data folder. Undefined: a live process has it. */
async function takeLock(place: Partition): Promise<StartLock | undefined> {
  const mine = `${place.lockFile}.${process.pid}.${randomBytes(4).toString('hex')}`;
  await writeFile(mine, JSON.stringify({ pid: process.pid, space: processSpace() }), { mode: 0o600 });
  try {
    // A link appears with its contents or not at all.
    await link(mine, place.lockFile);
  } catch {
    await removeStaleLock(place, mine);
    return undefined;
  } finally {
    await unlink(mine);
  }
  const renewal = setInterval(() => {
    const now = new Date();
    utimes(place.lockFile, now, now).catch(() => {});
  }, LOCK_RENEWAL_MS);
  renewal.unref();
  return {
    release: async () => {
      clearInterval(renewal);
      await rm(place.lockFile, { force: true });
    },
  };
}

/** Moved aside before it is removed: what was moved is looked at again, and put back if it is not what was seen. */
async function removeStaleLock(place: Partition, aside: string): Promise<void> {
  if (!(await isStale(place.lockFile))) return;
  const moved = `${aside}.stale`;
  try {
    await rename(place.lockFile, moved);
    if (!(await isStale(moved))) await link(moved, place.lockFile);
    await unlink(moved);
  } catch {
    // Someone else was quicker: the next attempt sees what they left.
  }
}

async function isStale(lockFile: string): Promise<boolean> {
  try {
    if (Date.now() - (await stat(lockFile)).mtimeMs > LOCK_STALE_MS) return true;
    const read: unknown = JSON.parse(await readFile(lockFile, 'utf8'));
    if (typeof read !== 'object' || read === null || !('pid' in read)) return true;
    // In another container a number names another process: there only the renewal tells.
    const isOfThisSpace = !('space' in read) || read.space === processSpace();
    return isOfThisSpace && !isAlive(Number(read.pid));
  } catch {
    return false;
  }
}

/** Where numbers name the processes that they name here. */
function processSpace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}

/** A zombie, ended but not yet reaped, does not count as alive; a signal 0 alone would not tell. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
  if (process.platform !== 'linux') return true;
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

async function failure(place: Partition, reason: string): Promise<EmbeddedRedisError> {
  const logs = await Promise.all([tail(place.supervisorLog), tail(place.serverLog)]);
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

function describeBinary(binary: RedisBinary): string {
  return binary.kind === 'docker' ? `${binary.image} in Docker` : `${binary.version} from ${binary.origin}`;
}

function redacted(url: string): string {
  return url.replace(/:[^:@/]+@/, ':***@');
}

/** A value of the configuration file: in quotes it may hold blanks, and control characters by their numbers. */
function quoted(value: string): string {
  const escaped = value.replaceAll(/[\\"]/g, '\\$&').replaceAll(CONTROL, (character) => {
    return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return `"${escaped}"`;
}
