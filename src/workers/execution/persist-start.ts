/** Brings the start of an attempt to Redis' disk before its tool runs, where the tool's durability asks for it. */
import type { Settings } from '../../shared/config/config.ts';
import { durabilityOf } from '../../shared/config/durability.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { OutcomeResolver } from '../outcome/decide-outcome.ts';
import type { Parking } from '../outcome/park-call.ts';

/** The delay of a job while Redis cannot confirm a write to disk. */
const RETRY_AFTER_MS = 1_000;

interface StartBarrierDeps {
  readonly settings: Settings;
  readonly ledger: Pick<CallLedger, 'renewLease'>;
  /** Resolves when all that Redis has acknowledged is on its disk. Absent where no tool asks for it. */
  readonly onDisk?: ((callId: string) => Promise<void>) | undefined;
  readonly parking: Pick<Parking, 'requeue'>;
  readonly resolver: Pick<OutcomeResolver, 'aborted'>;
  readonly log: Logger;
}

export class StartBarrier {
  readonly #deps: StartBarrierDeps;

  constructor(deps: StartBarrierDeps) {
    this.#deps = deps;
  }

  /** A power failure must not forget that a `once` attempt began: a repeated request would cause a second effect. */
  async persist(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { settings, ledger, onDisk, parking, resolver, log } = this.#deps;
    const { callId, started, tool, running } = attempt;
    if (onDisk === undefined || durabilityOf(settings, tool) !== 'waitaof') return undefined;
    try {
      await onDisk(callId);
      // After a failover the new server may lack this start, so its lease is checked once more.
      if (!(await ledger.renewLease(callId, started.fence, settings.lockDurationMs)).renewed)
        running.abort(new PawlError('LEASE_LOST'));
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      log.warn({ callId, error: error.message }, 'fsync of an attempt start failed; the attempt will be retried');
      return await parking.requeue(attempt, RETRY_AFTER_MS);
    }
    if (!running.signal.aborted) return undefined;
    return resolver.aborted(attempt, running.signal.reason as PawlError, 'not-run');
  }
}
