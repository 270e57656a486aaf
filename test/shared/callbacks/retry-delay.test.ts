import { expect, test } from 'vitest';
import { retryDelayMs } from '../../../src/shared/callbacks/callback.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

test.each([
  { attempts: 1, sinceEndMs: 0, retryAfterMs: 0, delayMs: 2_000 },
  { attempts: 1, sinceEndMs: 0, retryAfterMs: HOUR_MS, delayMs: HOUR_MS },
  { attempts: 1, sinceEndMs: 100, retryAfterMs: DAY_MS, delayMs: DAY_MS - 100 },
  { attempts: 1, sinceEndMs: 100, retryAfterMs: 1e21, delayMs: DAY_MS - 100 },
  { attempts: 20, sinceEndMs: 20 * HOUR_MS, retryAfterMs: 9 * HOUR_MS, delayMs: 4 * HOUR_MS },
  { attempts: 20, sinceEndMs: DAY_MS - HOUR_MS, retryAfterMs: 0, delayMs: HOUR_MS },
  { attempts: 20, sinceEndMs: DAY_MS - 1_000, retryAfterMs: 0, delayMs: undefined },
  { attempts: 2, sinceEndMs: DAY_MS, retryAfterMs: 1e21, delayMs: undefined },
  { attempts: 2, sinceEndMs: 2 * DAY_MS, retryAfterMs: 0, delayMs: undefined },
])('attempt $attempts, $sinceEndMs ms after the end, Retry-After $retryAfterMs ms: $delayMs', (each) => {
  const { attempts, sinceEndMs, retryAfterMs, delayMs } = each;
  expect(retryDelayMs({ attempts, sinceMs: 1_000, nowMs: 1_000 + sinceEndMs }, () => 1, retryAfterMs)).toBe(delayMs);
});
