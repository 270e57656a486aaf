/** The supervisor of an embedded server, and the FIFO that counts its users. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, constants, existsSync, openSync, writeSync } from 'node:fs';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { HELPER_FOLDER, runHelper } from '../redis-binary.ts';
import {
  type DataFolder,
  DataFolderInUseError,
  type EmbeddedRedisOptions,
  type Endpoint,
  failure,
  isOurs,
  readEndpoint,
} from './data-folder.ts';
import { socketIn } from './server-config.ts';
import { ask, POLL_MS } from './server-state.ts';

const KEEPER = fileURLToPath(new URL('../redis-keeper.sh', import.meta.url));

const WELCOME_TIMEOUT_MS = 2_000;

/** The supervisor renews its file every two seconds: after this time it, or the machine, is gone. */
const SILENT_MS = 10_000;

/**
 * Asks the supervisor to keep the server for this process. It answers a token only before it has seen the end of the FIFO, so an answer
 * means that the server stays.
 */
export async function isWelcome(runDir: string, reference: number): Promise<boolean> {
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

/**
 * The FIFO is opened three times. Once for both directions, so that neither of the others waits for its counterpart;
 * once for reading, for the keeper, which inherits it already open and so cannot miss our end; once for writing: ours.
 */
export async function startSupervisor(
  folder: DataFolder,
  endpoint: Endpoint,
  command: readonly string[],
): Promise<{ reference: number; supervisor: ChildProcess }> {
  const fifo = join(endpoint.runDir, 'users');
  await runHelper('mkfifo', ['-m', '600', fifo]);
  const both = openSync(fifo, constants.O_RDWR);
  const reading = openSync(fifo, constants.O_RDONLY);
  const reference = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK);
  const log = openSync(folder.supervisorLog, 'a', 0o600);
  try {
    const supervisor = spawn('/bin/sh', [KEEPER, endpoint.runDir, folder.endpointFile, ...command], {
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
export function openForWriting(runDir: string): number | undefined {
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
export async function endPrevious(
  folder: DataFolder,
  options: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<void> {
  const runDir = (await readEndpoint(folder))?.runDir;
  const isSeen = runDir !== undefined && (await isOurs(runDir));
  if (isSeen && existsSync(join(runDir, 'users'))) await shutDown(folder, runDir, deadlineMs);
  else await awaitSilence(folder, options, isSeen ? runDir : undefined);
  if (isSeen) await rm(runDir, { recursive: true, force: true });
  await rm(folder.endpointFile, { force: true });
}

/** Waits for the end of a keeper that finishes. A server whose keeper was killed is asked to shut down. */
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
  if ((await ask(socket, 'PING')) === undefined) return;
  while ((await ask(socket, 'SHUTDOWN')) !== undefined || (await ask(socket, 'PING')) !== undefined) {
    if (Date.now() > deadlineMs) throw await failure(folder, `the previous server at ${socket} does not shut down`);
    await sleep(POLL_MS * 4);
  }
  // Its socket closes a moment before it has ended, and what is left of the keeper must read `closing` first.
  const patienceMs = Date.now() + WELCOME_TIMEOUT_MS;
  while (!existsSync(join(runDir, 'ended')) && Date.now() < patienceMs) await sleep(POLL_MS);
}

/**
 * Waits for signs of a server whose FIFO cannot be seen: a living one renews its file in the data folder. Times of the file are compared
 * with each other, because clocks may be wrong.
 */
async function awaitSilence(
  folder: DataFolder,
  options: EmbeddedRedisOptions,
  runDir: string | undefined,
): Promise<void> {
  if (runDir !== undefined && (await ask(socketIn(runDir), 'PING')) !== undefined) throw await inUse(folder);
  const last = await lastSign(folder);
  if (last === undefined || Math.abs(Date.now() - last) > SILENT_MS) return;
  const silentAtMs = Date.now() + SILENT_MS;
  options.log?.(`waiting to see whether another embedded Redis lives in ${folder.home}`);
  while (Date.now() < silentAtMs) {
    const sign = await lastSign(folder);
    if (sign === undefined) return;
    if (sign !== last) throw await inUse(folder);
    await sleep(POLL_MS * 4);
  }
}

/** When the supervisor last renewed its file. Undefined: it removed the file, or never wrote one. */
async function lastSign(folder: DataFolder): Promise<number | undefined> {
  return (await stat(folder.aliveFile).catch(() => undefined))?.mtimeMs;
}

async function inUse(folder: DataFolder): Promise<DataFolderInUseError> {
  const where = (await readFile(folder.aliveFile, 'utf8').catch(() => '')).trim();
  return new DataFolderInUseError(
    `The embedded Redis: another one lives on ${folder.home} and cannot be reached from here${where === '' ? '' : ` (its files are in ${where})`}. ` +
      'A container, or a service with a /tmp of its own, may have started it, or its files were removed. A second one would damage the data: ' +
      'run this where the first one runs, end what uses that, name another data folder (PAWL_DATA_DIR), or share one Redis (REDIS_URL).',
  );
}
