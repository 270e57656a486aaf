import fc from 'fast-check';
import { afterAll, beforeAll, test, vi } from 'vitest';
import { nothingBreaks } from './commands.ts';

/** PAWL_TEST_SCHEDULES=100000 looks further. */
const SCHEDULES = Number(process.env['PAWL_TEST_SCHEDULES'] ?? 10_000);
const SEED = Number(process.env['PAWL_TEST_SEED'] ?? 1);

beforeAll(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterAll(() => void vi.useRealTimers());

test(`calls keep their promises over ${SCHEDULES} schedules of crashes, freezes, cuts, drains and cancellations`, {
  timeout: 60 * SCHEDULES,
}, async () => {
  await fc.assert(nothingBreaks(), { numRuns: SCHEDULES, seed: SEED });
});
