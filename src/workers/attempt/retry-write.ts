import { PawlError } from '../../shared/errors/failure.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { RunningAttempt } from './running-attempts.ts';

const RETRY_AFTER_MS = 250;

/** Repeats a write while Redis or the blob store is unavailable and the lease still holds. The answer is undefined when the lease is lost. */
export async function retryUntilLeaseLost<T>(
  write: () => Promise<T>,
  running: RunningAttempt | undefined,
  log: Logger,
  schedule: Schedule = systemSchedule,
): Promise<T | undefined> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
      // Each write logs once: every running call would otherwise log four times a second.
      if (tries === 0)
        log.warn(
          { callId: running?.callId, error: error.message },
          'a write of a call failed: it is retried until its lease is lost',
        );
      if (running?.leaseLost === true) return undefined;
      await new Promise<void>((resolve) => schedule(resolve, RETRY_AFTER_MS));
    }
  }
}

/** `retryUntilLeaseLost` with the log and the timers of one worker. */
export class LeaseWrites {
  readonly #log: Logger;
  readonly #schedule: Schedule | undefined;

  constructor(log: Logger, schedule?: Schedule) {
    this.#log = log;
    this.#schedule = schedule;
  }

  retry<T>(running: RunningAttempt | undefined, write: () => Promise<T>): Promise<T | undefined> {
    return retryUntilLeaseLost(write, running, this.#log, this.#schedule);
  }
}
