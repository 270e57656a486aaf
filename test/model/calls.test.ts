import fc from 'fast-check';
import { afterAll, beforeAll, test, vi } from 'vitest';
import { nothingBreaks } from './commands.ts';
import { SEARCHES, SEED } from './searches.ts';

beforeAll(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterAll(() => void vi.useRealTimers());

for (const { schedules, tags } of SEARCHES)
  test(`calls keep their promises over ${schedules} schedules of crashes, freezes, cuts, drains and cancellations`, {
    timeout: 400 * schedules,
    tags,
  }, async () => {
    await fc.assert(nothingBreaks(), { numRuns: schedules, seed: SEED });
  });
