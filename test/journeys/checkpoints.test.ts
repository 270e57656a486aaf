/** @module-tag slow */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';

const [KILLS, STEPS, STEP_MS] = [10, 120, 15];

test('a tool with checkpoints whose worker is killed at ten random points does each step of its work once', async () => {
  const { session, workers, addWorker, folder } = await startFleet({ lockDurationMs: 3_000 });
  const place = join(folder, 'walk');
  mkdirSync(place);
  const begun = () => readWalked(place).length;
  const walking = session.call('walk', { folder: place, steps: STEPS, stepMs: STEP_MS }, { idempotencyKey: 'walk' });
  let ended: unknown;
  void walking.then((result) => {
    ended = result;
  });
  for (let kill = 0; kill < KILLS; kill += 1) {
    const before = begun();
    const goesOn = () => {
      expect(ended).toBeUndefined();
      return begun() > before;
    };
    await eventually(goesOn, { what: `a step of attempt ${kill + 1}` });
    await sleep(Math.random() * 10 * STEP_MS);
    await workers.at(-1)?.kill();
    await addWorker();
  }
  const { status, output, attempts } = await walking;
  expect({ status, attempts }).toEqual({ status: 'success', attempts: KILLS + 1 });

  const walked = readWalked(place);
  expect(readdirSync(place).filter((name) => name !== 'walked')).toHaveLength(STEPS);
  // A step runs again only when its worker was killed before the step was written down.
  expect(walked.length).toBeLessThanOrEqual(STEPS + KILLS);
  expect(walked).toEqual(walked.toSorted((one, other) => one - other));
  expect(output?.content).toBeLessThan(STEPS);
});

function readWalked(place: string): readonly number[] {
  try {
    return readFileSync(join(place, 'walked'), 'utf8').trim().split('\n').map(Number);
  } catch {
    return [];
  }
}
