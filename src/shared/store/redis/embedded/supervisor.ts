/** The supervisor of an embedded server, and the FIFO that counts its users. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, constants, existsSync, openSync, writeSync } from 'node:fs';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { orUndefined } from '../../../util/or-undefined.ts';
import { type HelperEnvironment, helperOptions, runHelper } from '../redis-binary.ts';
import {
  type DataFolder,
  DataFolderInUseError,
  type EmbeddedRedisOptions,
  type Endpoint,
  failure,
  isOwnFolder,
  readEndpoint,
} from './data-folder.ts';
import { socketIn } from './server-config.ts';
import { POLL_MS, sendInline } from './server-state.ts';

const KEEPER = fileURLToPath(new URL('../redis-keeper.sh', import.meta.url));

const ACCEPT_TIMEOUT_MS = 2_000;

/** The supervisor renews its file every two seconds: after this time without renewal, it has ended. */
const SILENT_MS = 10_000;

/**
 * Registers this process at the supervisor. The supervisor answers a token only before it has read the end of the FIFO, so an answer means
 * that the server stays.
 */
export async function isAccepted(runDir: string, reference: number): Promise<boolean> {
  const token = randomBytes(8).toString('hex');
  const answer = join(runDir, `welcome-${token}`);
  if (orUndefined(() => writeSync(reference, `${token}\n`)) === undefined) return false;
  const deadlineMs = Date.now() + ACCEPT_TIMEOUT_MS;
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

/**
 * The FIFO is opened three times: for both directions, so that the other two opens do not wait for each other; for reading, by the
 * supervisor, which inherits it and so cannot miss the end of this process; for writing, by this process.
 */
export async function startSupervisor(
  folder: DataFolder,
  endpoint: Endpoint,
  command: readonly string[],
  environment: HelperEnvironment,
): Promise<{ reference: number; supervisor: ChildProcess }> {
  const fifo = join(endpoint.runDir, 'users');
  await runHelper(environment, ['mkfifo', '-m', '600', fifo]);
  const both = openSync(fifo, constants.O_RDWR);
  const reading = openSync(fifo, constants.O_RDONLY);
  const reference = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK);
  const log = openSync(folder.supervisorLog, 'a', 0o600);
  try {
    const supervisor = spawn('/bin/sh', [KEEPER, endpoint.runDir, folder.endpointFile, ...command], {
      ...helperOptions(environment),
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

/** Undefined when no supervisor reads the FIFO. The descriptor closes on exec, so a child of this process does not count as a user. */
export function openForWriting(runDir: string): number | undefined {
  return orUndefined(() => openSync(join(runDir, 'users'), constants.O_WRONLY | constants.O_NONBLOCK));
}

/**
 * Ends the previous server of this data folder: two servers must never write the same files. Usually its supervisor is already ending it.
 *
 * @throws DataFolderInUseError when it cannot be reached from here
 */
export async function endPrevious(
  folder: DataFolder,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<void> {
  const runDir = (await readEndpoint(folder))?.runDir;
  const isReachable = runDir !== undefined && (await isOwnFolder(runDir));
  if (isReachable && existsSync(join(runDir, 'users'))) await shutDown(folder, runDir, deadlineMs);
  else await checkUnused(folder, options, isReachable ? runDir : undefined);
  if (isReachable) await rm(runDir, { recursive: true, force: true });
  await rm(folder.endpointFile, { force: true });
}

/** Waits for the end of a supervisor. If it was killed, sends SHUTDOWN to its server. */
async function shutDown(folder: DataFolder, runDir: string, deadlineMs: number): Promise<void> {
  for (;;) {
    const reading = openForWriting(runDir);
    if (reading === undefined) break;
    closeSync(reading);
    if (Date.now() > deadlineMs) throw await failure(folder, `the previous server in ${runDir} does not end`);
    await sleep(POLL_MS * 4);
  }
  const socket = socketIn(runDir);
  if (existsSync(runDir)) await writeFile(join(runDir, 'closing'), '').catch(() => {});
  if ((await sendInline(socket, 'PING')) === undefined) return;
  while ((await sendInline(socket, 'SHUTDOWN')) !== undefined || (await sendInline(socket, 'PING')) !== undefined) {
    if (Date.now() > deadlineMs) throw await failure(folder, `the previous server at ${socket} does not shut down`);
    await sleep(POLL_MS * 4);
  }
  // The socket closes shortly before the server has ended, and the rest of its supervisor must read `closing` first.
  const giveUpAtMs = Date.now() + ACCEPT_TIMEOUT_MS;
  while (!existsSync(join(runDir, 'ended')) && Date.now() < giveUpAtMs) await sleep(POLL_MS);
}

/**
 * Throws if a server whose FIFO cannot be reached is alive: it renews its file in the data folder. The file's times are compared with each
 * other, because clocks may differ.
 */
async function checkUnused(
  folder: DataFolder,
  options: EmbeddedRedisOptions,
  runDir: string | undefined,
): Promise<void> {
  if (runDir !== undefined && (await sendInline(socketIn(runDir), 'PING')) !== undefined)
    throw await inUseError(folder);
  const lastRenewal = await readRenewal(folder);
  if (lastRenewal === undefined || Math.abs(Date.now() - lastRenewal) > SILENT_MS) return;
  const silentAtMs = Date.now() + SILENT_MS;
  options.log?.(`waiting to see whether another embedded Redis lives in ${folder.home}`);
  while (Date.now() < silentAtMs) {
    const renewal = await readRenewal(folder);
    if (renewal === undefined) return;
    if (renewal !== lastRenewal) throw await inUseError(folder);
    await sleep(POLL_MS * 4);
  }
}

/** When the supervisor last renewed its file. Undefined: it removed the file, or never wrote one. */
async function readRenewal(folder: DataFolder): Promise<number | undefined> {
  return (await stat(folder.aliveFile).catch(() => undefined))?.mtimeMs;
}

async function inUseError(folder: DataFolder): Promise<DataFolderInUseError> {
  const location = (await readFile(folder.aliveFile, 'utf8').catch(() => '')).trim();
  return new DataFolderInUseError(
    `The embedded Redis: another one lives on ${folder.home} and cannot be reached from here${location === '' ? '' : ` (its files are in ${location})`}. ` +
      'A container, or a service with a /tmp of its own, may have started it, or its files were removed. A second one would damage the data: ' +
      'run this where the first one runs, end what uses that, name another data folder (PAWL_DATA_DIR), or share one Redis (REDIS_URL).',
  );
}
