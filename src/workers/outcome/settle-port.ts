/**
 * The port through which the outcome of a successful call is written: at once, or together with the end of the call's job. All other
 * outcomes are written at once.
 */
import type { Settle, WriteAnswer } from '../../shared/store/calls/settle.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

export interface SettlePort {
  /** `running` is absent where this worker ran no attempt of the call. */
  settle(settle: Settle, running: RunningAttempt | undefined): Promise<JobOutcome>;
}

/** Writes the outcome at once. Only the newest fence may write. */
export class ImmediateSettle implements SettlePort {
  readonly #ledger: Pick<CallLedger, 'settle'>;
  readonly #writes: AttemptWrites;

  constructor(ledger: Pick<CallLedger, 'settle'>, writes: AttemptWrites) {
    this.#ledger = ledger;
    this.#writes = writes;
  }

  async settle(settle: Settle, running: RunningAttempt | undefined): Promise<JobOutcome> {
    const answer = await this.#writes.retry(running, () => this.#ledger.settle(settle));
    return answer === 'settled' ? { kind: 'finished', outcome: settle.outcome } : notWritten(answer);
  }
}

/** Leaves the outcome to the queue, which writes it in the command that ends the job. */
export const settleWithJob: SettlePort = {
  settle: async (settle) => ({ kind: 'succeeded', outcome: settle.outcome, settle }),
};

/** The end of a job whose write was refused. An undefined answer means that the lease was lost. */
export function notWritten(answer: WriteAnswer | undefined): JobOutcome {
  if (answer === 'fenced') return { kind: 'abandoned', fenced: true };
  return answer === undefined ? { kind: 'abandoned' } : { kind: 'dropped' };
}
