import { expect, test } from 'vitest';
import { neededWorkers } from '../../../src/shared/queues/scaling.ts';

const IDLE = { waiting: 0, running: 0, oldestWaitMs: 0, workers: 2, slots: 20, meanAttemptMs: 100 };

test.each([
  ['nothing to do', {}, 0],
  ['what runs fits into one worker', { running: 10 }, 1],
  ['short attempts drain a backlog with few slots: 10 + 400 × 0.1/5', { running: 10, waiting: 400 }, 2],
  ['attempts longer than the target need a slot for each call', { running: 20, waiting: 30, meanAttemptMs: 9_000 }, 5],
  [
    'calls that wait too long behind full workers ask for one more',
    { running: 20, waiting: 1, oldestWaitMs: 6_000 },
    3,
  ],
  ['the same with slots free is no lack of workers', { running: 5, waiting: 1, oldestWaitMs: 6_000 }, 1],
  ['a tier without workers needs one as soon as something waits', { workers: 0, slots: 0, waiting: 1 }, 1],
  ['before the first attempt each call needs a slot', { waiting: 40, meanAttemptMs: undefined }, 4],
])('%s', (_case, load, workers) => {
  expect(neededWorkers({ ...IDLE, ...load })).toBe(workers);
});
