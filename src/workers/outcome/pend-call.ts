/** Makes a call pending on an outside system: its attempt ends, the call does not, and it holds nothing of the worker. */
import { abortedSettlement } from '../../shared/calls/call-state.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import type { PendingRecords } from '../../shared/store/ports.ts';
import type { PendingResult } from '../../shared/tools/pending.ts';
import { type Attempt, attemptsWith, termsOf } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { Consensus } from './consensus.ts';
import type { CallEnder } from './end-call.ts';
import type { FailedAttempts } from './retry-call.ts';
import { notWritten } from './settle-port.ts';

interface PendingCallsDeps {
  readonly records: Pick<PendingRecords, 'pend'>;
  readonly circuits: Pick<FleetCircuits, 'succeeded'>;
  readonly consensus: Pick<Consensus, 'isNeededFor'>;
  readonly ender: Pick<CallEnder, 'fail'>;
  readonly failed: Pick<FailedAttempts, 'resolve'>;
  readonly writes: AttemptWrites;
}

export class PendingCalls {
  readonly #deps: PendingCallsDeps;

  constructor(deps: PendingCallsDeps) {
    this.#deps = deps;
  }

  async pend(attempt: Attempt, { token, expiresInMs, onExpiry }: PendingResult): Promise<JobOutcome> {
    const { records, circuits, consensus, failed, writes } = this.#deps;
    const { callId, started, tool, running, envelope } = attempt;
    // One outside system cannot vote for several workers.
    if (consensus.isNeededFor(tool))
      return failed.resolve(
        attempt,
        failureOf('RESULT_INVALID', `${tool.name} needs a consensus, so it cannot be pending.`),
      );
    // The service behind the tool accepted the work, which its circuit counts as a success.
    const sample = await writes.retry(running, () => circuits.succeeded(attempt.circuit, running));
    const [last, ...earlier] = attemptsWith(attempt, undefined).reverse();
    const attempts = [...earlier.reverse(), ...(last === undefined ? [] : [{ ...last, status: 'pending' as const }])];
    const answer = await writes.retry(running, () =>
      records.pend({
        callId,
        fence: started.fence,
        token,
        terms: termsOf(attempt),
        attemptMs: 0,
        attempts,
        expiresInMs,
        onExpiry,
        sample,
        sessionKey: envelope.target.sessionKey,
      }),
    );
    if (answer?.kind === 'pending') return { kind: 'pending', expiresAtMs: answer.expiresAtMs, onExpiry };
    if (answer?.kind !== 'cancelled') return notWritten(answer?.kind);
    const failure = { ...failureOf('CANCELLED'), nothingHappened: false };
    const settlement = abortedSettlement(tool.effects, false);
    return this.#deps.ender.fail(attempt, failure, { status: 'error', ran: true, settlement });
  }
}
