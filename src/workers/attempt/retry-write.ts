import { PawlError } from '../../shared/errors/failure.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { RunningAttempt } from './running-attempts.ts';

const WRITE_AGAIN_MS = 250;

/** Writes again and again while Redis cannot take it and the lease still holds; undefined when it is lost. */
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
      // Once for each write: every call that runs would say it four times a second.
      if (tries === 0)
        log.warn(
          { callId: running?.callId, error: error.message },
          'Redis takes nothing of a call now; it is tried again',
        );
      if (running?.leaseLost === true) return undefined;
      await new Promise<void>((resolve) => schedule(resolve, WRITE_AGAIN_MS));
    }
  }
}
