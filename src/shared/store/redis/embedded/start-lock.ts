/** The lock that lets one process at a time start the server of a data folder. */
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { link, readFile, rename, rm, stat, unlink, utimes, writeFile } from 'node:fs/promises';
import { isAlive } from '../../../util/is-alive.ts';
import { orUndefined } from '../../../util/or-undefined.ts';
import type { DataFolder } from './data-folder.ts';

const LOCK_RENEWAL_MS = 2_000;

/** A process that has not renewed its lock for this long was stopped or has ended. */
const LOCK_STALE_MS = 20_000;

interface StartLock {
  release(): Promise<void>;
}

/** Takes the lock of a data folder; undefined when a live process holds it. */
export async function takeLock(folder: DataFolder): Promise<StartLock | undefined> {
  const ownFile = `${folder.lockFile}.${process.pid}.${randomBytes(4).toString('hex')}`;
  await writeFile(ownFile, JSON.stringify({ pid: process.pid, space: processSpace() }), { mode: 0o600 });
  try {
    // A link appears with its contents or not at all.
    await link(ownFile, folder.lockFile);
  } catch {
    await removeStaleLock(folder, ownFile);
    return undefined;
  } finally {
    await unlink(ownFile);
  }
  const renewal = setInterval(() => {
    const now = new Date();
    utimes(folder.lockFile, now, now).catch(() => {});
  }, LOCK_RENEWAL_MS).unref();
  return {
    release: async () => {
      clearInterval(renewal);
      await rm(folder.lockFile, { force: true });
    },
  };
}

/** Moves a stale lock aside before removing it. What was moved is checked again, and put back if it is another lock. */
async function removeStaleLock(folder: DataFolder, ownFile: string): Promise<void> {
  if (!(await isStale(folder.lockFile))) return;
  const moved = `${ownFile}.stale`;
  try {
    await rename(folder.lockFile, moved);
    if (!(await isStale(moved))) await link(moved, folder.lockFile);
    await unlink(moved);
  } catch {
    // Another process was faster: the next attempt sees its lock.
  }
}

async function isStale(lockFile: string): Promise<boolean> {
  try {
    if (Date.now() - (await stat(lockFile)).mtimeMs > LOCK_STALE_MS) return true;
    const read: unknown = JSON.parse(await readFile(lockFile, 'utf8'));
    if (typeof read !== 'object' || read === null || !('pid' in read)) return true;
    // In another PID namespace the ID names another process: there only the renewal counts.
    const isOfThisSpace = !('space' in read) || read.space === processSpace();
    return isOfThisSpace && !isRunning(Number(read.pid));
  } catch {
    return false;
  }
}

/** The PID namespace, in which process IDs are unique. Empty when it is not known. */
function processSpace(): string {
  return orUndefined(() => readlinkSync('/proc/self/ns/pid')) ?? '';
}

/** Whether a process runs, and is no zombie. */
function isRunning(pid: number): boolean {
  if (!isAlive(pid)) return false;
  if (process.platform !== 'linux') return true;
  const status = orUndefined(() => readFileSync(`/proc/${pid}/status`, 'utf8'));
  return status !== undefined && !/^State:\s+Z/m.test(status);
}
