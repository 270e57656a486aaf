/** Waiting for something to become true, never for ever. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Mismatch } from './assertions.ts';

const POLL_MS = 10;
export const DEADLINE_MS = 20_000;

/** Looks until `condition` holds. Throws a `Mismatch` after the deadline. */
export async function until(
  expected: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = DEADLINE_MS,
): Promise<void> {
  const endMs = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Mismatch(expected, `nothing of the kind within ${deadlineMs / 1_000} s`);
    await sleep(POLL_MS);
  }
}

/** `promise`, or a `Mismatch` after the deadline. */
export async function within<T>(expected: string, promise: Promise<T>, deadlineMs = DEADLINE_MS): Promise<T> {
  const late = new AbortController();
  const limit = sleep(deadlineMs, undefined, { signal: late.signal, ref: false }).then(() => {
    throw new Mismatch(expected, `nothing of the kind within ${deadlineMs / 1_000} s`);
  });
  limit.catch(() => {});
  try {
    return await Promise.race([promise, limit]);
  } finally {
    late.abort();
  }
}
