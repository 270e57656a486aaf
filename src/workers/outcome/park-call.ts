/** Releases a job without consuming an attempt: for a time, or until its call is ready to run. */
import type { Attempt } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { CallSettler, Postponed } from './settle-call.ts';

interface ParkingDeps {
  readonly settler: Pick<CallSettler, 'postpone'>;
  readonly circuits: Pick<FleetCircuits, 'release'>;
  readonly writes: AttemptWrites;
}

export class Parking {
  readonly #deps: ParkingDeps;

  constructor(deps: ParkingDeps) {
    this.#deps = deps;
  }

  /** Lets the circuit have another probe, and postpones the call. */
  async postpone(attempt: Attempt, postponed: Postponed): Promise<JobOutcome> {
    const { settler, circuits, writes } = this.#deps;
    await writes.retry(attempt.running, () => circuits.release(attempt.circuit));
    return settler.postpone(attempt, postponed);
  }

  /** Queues the call again after `delayMs`; with 0 at once. */
  requeue(attempt: Attempt, delayMs: number): Promise<JobOutcome> {
    return this.postpone(attempt, { phase: 'queued', attempts: attempt.started.earlierAttempts, delayMs });
  }

  /** Parks the call for at most `delayMs`. It may have become ready before its job was delayed, so `isReady` is checked again. */
  async parkUntil(attempt: Attempt, delayMs: number, isReady: () => Promise<boolean>): Promise<JobOutcome> {
    const parked = await this.requeue(attempt, delayMs);
    return parked.kind === 'postponed' ? { ...parked, kind: 'waiting', isReady } : parked;
  }

  /** Parks the call until its resource lock is free, for at most `delayMs`. Its time does not count yet. */
  async parkForLock(attempt: Attempt, delayMs: number): Promise<JobOutcome> {
    const parked = await this.postpone(attempt, {
      phase: 'unstarted',
      attempts: attempt.started.earlierAttempts,
      delayMs,
    });
    return parked.kind === 'postponed' ? { kind: 'waiting-for-lock', delayMs: parked.delayMs } : parked;
  }
}
