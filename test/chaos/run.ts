/** Runs one row against one stack, and judges what came of it. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { judge, type Verdict } from './checker.ts';
import { seeded } from './random.ts';
import { clearedAtExit } from './remains.ts';
import { Rig, type StackName } from './rig.ts';
import type { Row } from './rows/row.ts';

export interface RowResult extends Verdict {
  readonly row: number;
  readonly fault: string;
  readonly stack: StackName;
  readonly seed: number;
  /** From the end of the fault to the last end that a caller was told. */
  readonly recoveryMs?: number;
  readonly notes: readonly string[];
  /** What this mode of Redis says that it may forget. */
  readonly stated?: string;
  readonly clean: boolean;
  /** Why it did not run. */
  readonly skipped?: string;
  readonly tookMs: number;
}

/** What a mode of Redis that says that it forgets may cost. */
const EXCUSED = /^I[1-4]:/;

export async function runRow(row: Row, stack: StackName, seed: number): Promise<RowResult> {
  const startedAtMs = performance.now();
  const folder = mkdtempSync(join(tmpdir(), 'pawl-chaos-'));
  const release = clearedAtExit(() => rmSync(folder, { recursive: true, force: true }));
  const base = { row: row.number, fault: row.fault, stack, seed };
  const disk = row.diskBytes === undefined ? undefined : mountDisk(folder, row.diskBytes);
  try {
    const refused = disk?.refused ?? (await row.needs?.());
    if (refused !== undefined) return { ...base, ...nothing, skipped: refused };
    // The stacks get the same dice.
    const random = seeded(seed * 1_000 + row.number);
    const { redisOptions, env } = row;
    await using rig = await Rig.open({
      stack,
      folder,
      random,
      ...(redisOptions === undefined ? {} : { redisOptions }),
      ...(env === undefined ? {} : { env }),
      ...(disk === undefined ? {} : { redisFolder: disk.folder }),
    });
    let broken: unknown;
    try {
      await row.run(rig);
    } catch (error) {
      broken = error;
    }
    const verdict = judge(rig.history.calls, rig.effects(), rig.bounds);
    const failed = broken === undefined ? [] : [`I8: ${broken instanceof Error ? broken.message : String(broken)}`];
    const breaches = [...verdict.breaches, ...failed];
    const { recoveryMs } = rig;
    return {
      ...base,
      ...verdict,
      breaches,
      ...(recoveryMs === undefined ? {} : { recoveryMs }),
      notes: rig.notes,
      ...(row.stated === undefined ? {} : { stated: row.stated }),
      clean: breaches.every((breach) => row.stated !== undefined && EXCUSED.test(breach)),
      tookMs: performance.now() - startedAtMs,
    };
  } finally {
    disk?.unmount();
    rmSync(folder, { recursive: true, force: true });
    release();
  }
}

const nothing = {
  calls: 0,
  lostCalls: 0,
  secondEffects: 0,
  falseVerdicts: 0,
  breaches: [],
  notes: [],
  clean: true,
  tookMs: 0,
} as const;

interface Disk {
  readonly folder: string;
  readonly refused?: string;
  unmount(): void;
}

/** A file system of its own, so small that it fills up. */
function mountDisk(folder: string, bytes: number): Disk {
  const disk = join(folder, 'disk');
  mkdirSync(disk);
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'pawl-chaos', disk], { stdio: 'pipe' });
  } catch {
    return { folder: disk, refused: 'needs the right to mount a small file system', unmount: () => {} };
  }
  return { folder: disk, unmount: () => void execFileSync('umount', ['-l', disk]) };
}
