import { setTimeout as sleep } from 'node:timers/promises';

const TIMEOUT_MS = 120_000;

/** Waits for something in another process, which tells nobody by itself. Throws after two minutes. */
export async function until(holds: () => Promise<boolean>, pollMs: number): Promise<void> {
  const deadlineMs = performance.now() + TIMEOUT_MS;
  while (!(await holds())) {
    if (performance.now() > deadlineMs) throw new Error(`after ${TIMEOUT_MS / 1_000} s it does not hold: ${holds}`);
    await sleep(pollMs);
  }
}
