import { PawlError } from '../../shared/errors/failure.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { RunningAttempt } from './running-attempts.ts';

const RETRY_AFTER_MS = 250;

export class AttemptWrites {
  readonly #log: Logger;
  readonly #schedule: Schedule;

  constructor(log: Logger, schedule: Schedule = systemSchedule) {
    this.#log = log;
    this.#schedule = schedule;
  }

  /**
   * Repeats a write while Redis or the blob store is unavailable. The answer is undefined when the attempt was given up: its code lost its
   * lease, or its worker is closed.
   */
  async retry<T>(running: RunningAttempt | undefined, write: () => Promise<T>): Promise<T | undefined> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await write();
      } catch (error) {
        if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
        // Each write logs once: every running call would otherwise log four times a second.
        if (tries === 0)
          this.#log.warn({ callId: running?.callId, error: error.message }, 'a write of a call failed: it is retried');
        if (running?.isGivenUp === true) return undefined;
        await new Promise<void>((resolve) => this.#schedule(resolve, RETRY_AFTER_MS));
      }
    }
  }
}
