/** Long calls that write a checkpoint after each step, while their workers are killed, or stopped until another one has taken over. */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LEASE_MS, type Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

export interface CheckpointRowOptions {
  readonly calls: number;
  readonly faults: number;
}

const FULL_FAULTS = 12;
const STEP_MS = 25;
const STEPS_OF_FAULT = 100;

export function checkpointRow({ calls, faults }: CheckpointRowOptions): Row {
  return {
    number: 53,
    fault: `${calls} long calls with checkpoints: ${faults} times their worker is killed, or stopped until another one has taken over`,
    async run(rig) {
      const [door] = await Promise.all([rig.producer(), rig.worker()]);
      const steps = faults * STEPS_OF_FAULT;
      const walks = Array.from({ length: calls }, (_, number) => {
        const folder = join(rig.folder, `walk-${number}`);
        mkdirSync(folder);
        return { folder, ask: { tool: 'walk', key: `walk-${number}`, params: { folder, steps, stepMs: STEP_MS } } };
      });
      const asked = walks.map(({ ask }) => door.call(ask));
      for (let fault = 0; fault < faults; fault += 1) {
        await passes(rig.random.between(20, STEPS_OF_FAULT / 2) * STEP_MS);
        const worker = rig.workers.at(-1);
        const isStopped = fault % 2 === 1;
        if (isStopped) worker?.signal('SIGSTOP');
        else await worker?.kill();
        await rig.worker();
        await passes(2 * LEASE_MS);
        if (!isStopped) continue;
        worker?.signal('SIGCONT');
        // What it does with calls that are not its own any more.
        await passes(LEASE_MS);
        await worker?.kill();
      }
      rig.healed();
      // Calls that lost a worker run one at a time, and a step takes up to twice its own time.
      await rig.settle(asked, rig.history.calls, 2 * calls * steps * STEP_MS);
      judgeSteps(rig, walks, { steps, faults });
    },
    ...(faults === FULL_FAULTS ? {} : { atFullSize: () => checkpointRow({ calls, faults: FULL_FAULTS }) }),
  };
}

function judgeSteps(
  rig: Rig,
  walks: readonly { readonly folder: string }[],
  { steps, faults }: { readonly steps: number; readonly faults: number },
): void {
  let [repeated, left] = [0, 0];
  for (const { folder } of walks) {
    const walked = readFileSync(join(folder, 'walked'), 'utf8').trim().split('\n').map(Number);
    const done = new Set(walked).size;
    repeated += walked.length - done;
    left += steps - done;
  }
  // The step at which a worker ends runs again; a stopped one may begin one more before it learns that it is late.
  rig.bound('I7', 'steps that ran again', repeated, 2 * faults * walks.length);
  rig.bound('I8', 'steps that did not run', left, 0);
  rig.notes.push(`${repeated} of ${steps * walks.length} steps ran again, ${left} did not run`);
}

export const checkpointRows: readonly Row[] = [checkpointRow({ calls: 3, faults: 4 })];
