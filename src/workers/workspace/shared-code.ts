/**
 * The code of the processes that share a data folder on this machine: a worker without tools files runs calls in the workspace from which
 * another one loads its own. Each process writes the names of its code to a file of its own.
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { isAlive } from '../../shared/util/is-alive.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

const LOOK_AGAIN_MS = 1_000;

let folder: string | undefined;
let lookedAtMs: number | undefined;

/** Writes the names of this process's code for the others, and lets `codeOfOthers` read theirs. */
export function writeCodeNames(dataDir: string, names: readonly string[]): void {
  folder = resolve(dataDir, 'code');
  lookedAtMs = undefined;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const file = join(folder, `${hostname()}-${process.pid}.json`);
    writeFileSync(`${file}.new`, JSON.stringify(names));
    renameSync(`${file}.new`, file);
  } catch {
    // Nothing is shared through a folder that cannot be written.
  }
}

/** The names of the other processes that run; none where the last look was less than a second ago. */
export function codeOfOthers(): readonly string[] {
  const nowMs = performance.now();
  if (folder === undefined || nowMs - (lookedAtMs ?? Number.NEGATIVE_INFINITY) < LOOK_AGAIN_MS) return [];
  lookedAtMs = nowMs;
  const shared = folder;
  // The folder may have been removed.
  return orUndefined(() => readdirSync(shared).flatMap((file) => namesIn(join(shared, file)))) ?? [];
}

/** The names that a running process of this machine wrote. The file of one that ended is removed. */
function namesIn(file: string): readonly string[] {
  const [, host, pid] = /([^/]+)-(\d+)\.json$/.exec(file) ?? [];
  if (host !== hostname() || Number(pid) === process.pid) return [];
  try {
    if (isAlive(Number(pid))) return JSON.parse(readFileSync(file, 'utf8')) as readonly string[];
    rmSync(file, { force: true });
  } catch {
    // The process has just ended.
  }
  return [];
}
