/**
 * A limit on the processes of a run where the kernel counts none for its user, which is so for root: a control group of its own, of
 * either version, below the worker's or beside it. Where none can be made there is no limit, and nothing fails.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Where the two versions are mounted: the controller of the first has a folder of its own. */
const ROOTS = [
  { line: /^0::(?<path>\/.*)$/m, mount: '/sys/fs/cgroup' },
  { line: /^\d+:(?:[\w=]+,)*pids(?:,[\w=]+)*:(?<path>\/.*)$/m, mount: '/sys/fs/cgroup/pids' },
] as const;
const NAME = /^pawl-(\d+)-[0-9a-f]+$/;

export interface ProcessGroup {
  /** Stands before a command, and makes it and all that it starts members. */
  readonly enter: readonly string[];
  /** To be called when all of them have ended. */
  remove(): Promise<void>;
}

/** Makes groups of at most `limit` processes; undefined where none can be made. To be asked for before the first run. */
export function processGroups(limit: number, own = readOwn()): (() => ProcessGroup | undefined) | undefined {
  for (const { line, mount } of ROOTS) {
    const path = line.exec(own)?.groups?.['path'];
    if (path === undefined) continue;
    for (const parent of new Set([join(mount, path), dirname(join(mount, path))])) {
      if (!parent.startsWith(mount)) continue;
      try {
        void makeGroup(parent, limit).remove();
        removeOrphans(parent);
        return () => groupOrNone(parent, limit);
      } catch {
        // Not there, not writable, or the controller is not handed on.
      }
    }
  }
  return undefined;
}

/** Some kernels count a process a moment longer than its parent sees it. */
const TRY_AGAIN_MS = 2;
const MAX_TRIES = 25;

/** Groups of this worker that could not be removed in time: tried once more with the next one. */
const leftOver = new Set<string>();

function groupOrNone(parent: string, limit: number): ProcessGroup | undefined {
  try {
    return makeGroup(parent, limit);
  } catch {
    return undefined;
  }
}

function makeGroup(parent: string, limit: number): ProcessGroup {
  for (const folder of leftOver) remove(folder);
  const folder = join(parent, `pawl-${process.pid}-${randomBytes(6).toString('hex')}`);
  mkdirSync(folder);
  try {
    // The kernel has made it, where the controller is there: a folder of another kind must not look like a group.
    writeFileSync(join(folder, 'pids.max'), String(limit), { flag: 'r+' });
  } catch (error) {
    rmdirSync(folder);
    throw error;
  }
  return {
    enter: ['/bin/sh', '-c', 'echo 0 > "$1/cgroup.procs" || exit 125; shift; exec "$@"', 'pawl-limit', folder],
    async remove() {
      for (let tries = 0; tries < MAX_TRIES && !remove(folder); tries += 1) await sleep(TRY_AGAIN_MS);
    },
  };
}

function remove(folder: string): boolean {
  try {
    rmdirSync(folder);
    leftOver.delete(folder);
    return true;
  } catch {
    leftOver.add(folder);
    return false;
  }
}

/** What workers left behind that were killed: also one with this process' ID, which is always the same in a container. */
function removeOrphans(parent: string): void {
  for (const name of readdirSync(parent)) {
    const owner = NAME.exec(name)?.[1];
    if (owner === undefined) continue;
    if (Number(owner) === process.pid || !isAlive(Number(owner))) remove(join(parent, name));
  }
}

function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch {
    return false;
  }
}

function readOwn(): string {
  try {
    return readFileSync('/proc/self/cgroup', 'utf8');
  } catch {
    return '';
  }
}
