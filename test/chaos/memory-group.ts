/** A memory limit for a process and what it starts, where the machine lets us: cgroup v1, as root. */
import { accessSync, constants, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { clearedAtExit } from './remains.ts';

const ROOT = '/sys/fs/cgroup/memory';

export function memoryGroups(): boolean {
  try {
    accessSync(join(ROOT, 'memory.limit_in_bytes'), constants.R_OK);
    accessSync(ROOT, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

export interface MemoryGroup extends Disposable {
  /** How many processes it has cost so far. */
  kills(): number;
}

export function memoryGroup(pid: number, limitBytes: number): MemoryGroup {
  const folder = join(ROOT, `pawl-chaos-${pid}`);
  mkdirSync(folder);
  writeFileSync(join(folder, 'memory.limit_in_bytes'), String(limitBytes));
  writeFileSync(join(folder, 'cgroup.procs'), String(pid));
  const remove = () => {
    // A group can go when nobody is in it.
    for (const member of readFileSync(join(folder, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean))
      writeFileSync(join(ROOT, 'cgroup.procs'), member);
    rmdirSync(folder);
  };
  const release = clearedAtExit(remove);
  return {
    kills: () => Number(/oom_kill (\d+)/.exec(readFileSync(join(folder, 'memory.oom_control'), 'utf8'))?.[1] ?? 0),
    [Symbol.dispose]: () => {
      release();
      remove();
    },
  };
}
