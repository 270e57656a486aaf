import fc from 'fast-check';
import { afterAll, beforeAll, test, vi } from 'vitest';
import { nothingBreaks } from './commands.ts';

const QUICK = { schedules: 2_500, tags: [] };
/** PAWL_TEST_SCHEDULES=100000 looks further. */
const WHOLE = { schedules: Number(process.env['PAWL_TEST_SCHEDULES'] ?? 10_000), tags: ['slow'] };
const SEED = Number(process.env['PAWL_TEST_SEED'] ?? 1);

beforeAll(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterAll(() => void vi.useRealTimers());

for (const { schedules, tags } of [QUICK, WHOLE])
  test(`calls keep their promises over ${schedules} schedules of crashes, freezes, cuts, drains and cancellations`, {
    timeout: 60 * schedules,
    tags,
  }, async () => {
    await fc.assert(nothingBreaks(), { numRuns: schedules, seed: SEED });
  });
