/** Decides what follows the result of an attempt: end the call, try again later, release the job, or leave it to other workers. */
import { abortedSettlement, hasAttemptInDoubt } from '../../shared/calls/call-state.ts';
import { isExpectedRetrySafe } from '../../shared/calls/envelope.ts';
import { type Failure, failureOf, type PawlError } from '../../shared/errors/failure.ts';
import { mayRunAgain } from '../../shared/retries/retry.ts';
import type { Evidence } from '../attempt/attempt-result.ts';
import { type Attempt, supportsProbe } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { Consensus } from './consensus.ts';
import type { CallEnder } from './end-call.ts';
import type { Parking } from './park-call.ts';
import type { PendingCalls } from './pend-call.ts';
import type { FailedAttempts } from './retry-call.ts';
import type { SerializedResult, SerializedSuccess } from './serialize-result.ts';
import type { CallSettler } from './settle-call.ts';

interface OutcomeResolverDeps {
  readonly ender: Pick<CallEnder, 'succeed' | 'fail'>;
  readonly failed: Pick<FailedAttempts, 'resolve'>;
  readonly consensus: Pick<Consensus, 'isNeededFor' | 'vote'>;
  readonly parking: Pick<Parking, 'requeue'>;
  readonly settler: Pick<CallSettler, 'release'>;
  readonly pending: Pick<PendingCalls, 'pend'>;
}

export class OutcomeResolver {
  readonly #deps: OutcomeResolverDeps;

  constructor(deps: OutcomeResolverDeps) {
    this.#deps = deps;
  }

  resolve(attempt: Attempt, result: SerializedResult): Promise<JobOutcome> {
    switch (result.kind) {
      case 'value':
        return this.#succeeded(attempt, result);
      case 'failure':
        return this.#deps.failed.resolve(attempt, result.failure);
      case 'pending':
        return this.#deps.pending.pend(attempt, result.pending);
      case 'aborted':
        return this.aborted(attempt, result.reason, result.evidence);
    }
  }

  async #succeeded(attempt: Attempt, success: SerializedSuccess): Promise<JobOutcome> {
    // The circuit counts the success without a wait, so that it is not counted after a later failure.
    if (!this.#deps.consensus.isNeededFor(attempt.tool)) return this.#deps.ender.succeed(attempt, success);
    const voted = await this.#deps.consensus.vote(attempt, success.result);
    switch (voted.kind) {
      case 'agreed':
        return this.#deps.ender.succeed(attempt, success);
      case 'incomparable':
        return this.#deps.failed.resolve(attempt, voted.failure);
      case 'split':
        return this.#deps.ender.fail(attempt, voted.failure, { status: 'error', ran: true });
      case 'open':
        return voted.end;
    }
  }

  /**
   * The attempt was aborted. `evidence` says what is known of its effect: the code was not reached, the tool proved that nothing
   * happened, or nothing is known.
   */
  async aborted(attempt: Attempt, reason: PawlError, evidence: Evidence): Promise<JobOutcome> {
    const { started, tool } = attempt;
    const ran = evidence !== 'not-run';
    const nothingHappened = evidence === 'proven' || (!ran && !started.recovered);
    const failure = { ...failureOf(reason.code, reason.message), nothingHappened };
    switch (reason.code) {
      case 'LEASE_LOST':
        // An attempt that never reached the tool's code leaves no doubt and blames no call, if Redis gets the release in time.
        if (!ran) await this.#deps.settler.release(attempt);
        // Otherwise the worker that recovers the job finds an attempt without a record, and decides by the tool's effects.
        return { kind: 'abandoned' };
      case 'CANCELLED':
        return this.#deps.ender.fail(attempt, failure, {
          status: 'error',
          ran,
          settlement: abortedSettlement(tool.effects, nothingHappened && !hasAttemptInDoubt(started.earlierAttempts)),
        });
      case 'DRAINED':
        return this.#drained(attempt, failure, ran);
      default:
        return this.#deps.failed.resolve(attempt, failure);
    }
  }

  /** The worker drains. Whatever the attempt did not do or decide is left to the next attempt. */
  async #drained(attempt: Attempt, failure: Failure, ran: boolean): Promise<JobOutcome> {
    const { registered, tool, envelope } = attempt;
    if (supportsProbe(registered) && ran && !failure.nothingHappened) return { kind: 'abandoned' };
    const expectedRetrySafe = isExpectedRetrySafe(envelope);
    const isRepeatable = !ran || mayRunAgain({ failure, effects: tool.effects, expectedRetrySafe });
    if (!isRepeatable) {
      const unknown = failureOf('OUTCOME_UNKNOWN', failure.message);
      return this.#deps.ender.fail(attempt, unknown, { status: 'error', ran: true });
    }
    return this.#deps.parking.requeue(attempt, 0);
  }
}
