/** Looks for running processes by a part of their command line; sandboxed ones are seen too, under their outer number. */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';

const run = promisify(execFile);

export async function processesWith(part: string): Promise<readonly number[]> {
  const found = process.platform === 'linux' ? fromProc(part) : await fromPs(part);
  return found.filter((pid) => pid !== process.pid);
}

function fromProc(part: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        // A process that has ended and is not yet reaped has an empty command line.
        return readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').includes(part);
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function fromPs(part: string): Promise<readonly number[]> {
  const { stdout } = await run('ps', ['-axo', 'pid=,command='], { cwd: '/', maxBuffer: 64 * 1_024 * 1_024 });
  return stdout
    .split('\n')
    .filter((line) => line.includes(part))
    .map((line) => Number.parseInt(line.trim(), 10));
}
