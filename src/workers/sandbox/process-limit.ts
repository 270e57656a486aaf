/**
 * Limits the processes of a run where the kernel counts none for its user, as for root. It uses a control group of its
 * own, of either version, below the worker's or beside it. Where none can be made there is no limit, and nothing
 * fails.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../shared/util/is-alive.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/** The mount points of the two versions; the first version's controller has a folder of its own. */
const ROOTS = [
  { line: /^0::(?<path>\/.*)$/m, mount: '/sys/fs/cgroup' },
  { line: /^\d+:(?:[\w=]+,)*pids(?:,[\w=]+)*:(?<path>\/.*)$/m, mount: '/sys/fs/cgroup/pids' },
] as const;
const NAME = /^pawl-(\d+)-[0-9a-f]+$/;

interface ProcessGroup {
  /** A command prefix that makes the command and its children members of the group. */
  readonly enter: readonly string[];
  /** Must be called when all members have ended. */
  remove(): Promise<void>;
}

/** Returns a maker of groups of at most `limit` processes, or undefined where none can be made. Call it before the first run. */
export function processGroups(limit: number, ownGroup = readOwnGroup()): (() => ProcessGroup | undefined) | undefined {
  for (const { line, mount } of ROOTS) {
    const path = line.exec(ownGroup)?.groups?.['path'];
    if (path === undefined) continue;
    for (const parent of new Set([join(mount, path), dirname(join(mount, path))])) {
      if (!parent.startsWith(mount)) continue;
      try {
        void makeGroup(parent, limit).remove();
        removeOrphans(parent);
        return () => orUndefined(() => makeGroup(parent, limit));
      } catch {
        // The folder is missing or not writable, or the controller is not delegated.
      }
    }
  }
  return undefined;
}

/** Some kernels count a process a moment longer than its parent sees it. */
const RETRY_DELAY_MS = 2;
const MAX_TRIES = 25;

/** Groups of this worker that could not be removed in time. The next removal tries them again. */
const unremovedGroups = new Set<string>();

function makeGroup(parent: string, limit: number): ProcessGroup {
  for (const folder of unremovedGroups) remove(folder);
  const folder = join(parent, `pawl-${process.pid}-${randomBytes(6).toString('hex')}`);
  mkdirSync(folder);
  try {
    // The kernel creates this file if the controller is enabled. The flag `r+` prevents an ordinary folder from
    // looking like a group.
    writeFileSync(join(folder, 'pids.max'), String(limit), { flag: 'r+' });
  } catch (error) {
    rmdirSync(folder);
    throw error;
  }
  return {
    enter: ['/bin/sh', '-c', 'echo 0 > "$1/cgroup.procs" || exit 125; shift; exec "$@"', 'pawl-limit', folder],
    async remove() {
      for (let tries = 0; tries < MAX_TRIES && !remove(folder); tries += 1) await sleep(RETRY_DELAY_MS);
    },
  };
}

function remove(folder: string): boolean {
  try {
    rmdirSync(folder);
    unremovedGroups.delete(folder);
    return true;
  } catch {
    unremovedGroups.add(folder);
    return false;
  }
}

/** Removes the groups of killed workers. One may have this process's own ID, which is always the same in a container. */
function removeOrphans(parent: string): void {
  for (const name of readdirSync(parent)) {
    const owner = NAME.exec(name)?.[1];
    if (owner === undefined) continue;
    if (Number(owner) === process.pid || !isAlive(Number(owner))) remove(join(parent, name));
  }
}

function readOwnGroup(): string {
  return orUndefined(() => readFileSync('/proc/self/cgroup', 'utf8')) ?? '';
}
