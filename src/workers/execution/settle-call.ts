/**
 * The writing end of an attempt: the outcome of its call, or word that there will be another attempt. One script each, which
 * only the newest fence may run, again and again while Redis cannot take it and the lease still holds.
 */

import {
  type AttemptRecord,
  type CallState,
  isKeptLong,
  leftInDoubt,
  lifeOfFailure,
  type RecordLife,
  type Settlement,
  settlementOfAborted,
} from '../../shared/calls/call-state.ts';
import { lifeOfUnstarted } from '../../shared/calls/compensation.ts';
import { doubtful, isUnresolved, type Outcome, resultError, stateOf } from '../../shared/calls/outcome.ts';
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import type { Settings, ToolPolicy } from '../../shared/config/config.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf } from '../../shared/errors/failure.ts';
import type { FailureStatus } from '../../shared/errors/result-status.ts';
import type { Effects } from '../../shared/retries/effects.ts';
import type { Settle, WriteAnswer } from '../../shared/store/calls/settle.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import { type Attempt, attemptsWith, outcomeBase } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

export interface FailureDetails {
  readonly status: FailureStatus;
  /** False when the tool's code was not reached, so that the attempt does not count. */
  readonly ran: boolean;
  readonly breakerState?: CircuitState;
  readonly settlement?: Settlement;
}

/** What of a tool says how long its calls are kept, and what is told of one that may have had its effect. */
export interface KeptTool {
  readonly policy: ToolPolicy;
  readonly effects: Effects;
  /** The caller vouches that a second run does no harm. */
  readonly expectedRetrySafe?: boolean;
}

/** An attempt that follows a failure, and takes from the tool's budget. */
export interface Retry {
  /** For those who wait. */
  readonly event: object;
  /** The budget is exhausted. */
  refused(): Promise<JobOutcome>;
}

export class CallSettler {
  readonly #ledger: CallLedger;
  readonly #settings: Settings;
  readonly #log: Logger;
  readonly #schedule: Schedule;
  readonly #endsWithJob: boolean;

  /** `endsWithJob` leaves a success to whoever ends the job: the verdict holds what is `unwritten`. */
  constructor(
    ledger: CallLedger,
    settings: Settings,
    log: Logger,
    options: { readonly schedule?: Schedule | undefined; readonly endsWithJob?: boolean | undefined } = {},
  ) {
    this.#ledger = ledger;
    this.#settings = settings;
    this.#log = log;
    this.#schedule = options.schedule ?? systemSchedule;
    this.#endsWithJob = options.endsWithJob ?? false;
  }

  /** Ends a call with its tool's result. */
  async succeed(
    attempt: Attempt,
    outcome: Outcome,
    outcomeJson: Settle['outcomeJson'],
    sample: Settle['sample'],
  ): Promise<JobOutcome> {
    const settle: Settle = {
      ...this.#ending(attempt.callId, attempt.started.fence, outcome, attempt.policy),
      outcomeJson,
      attempts: attemptsWith(attempt, undefined),
      ...(sample === undefined ? {} : { sample }),
      ...(attempt.modes.retry === 'on' ? { refill: attempt.allowance } : {}),
    };
    // What a person approved is marked as used when it has ended: its outcome is written first.
    const withJob = this.#endsWithJob && attempt.started.approvalId === undefined;
    return withJob ? { kind: 'finished', outcome, unwritten: settle } : this.#settle(settle, attempt.running);
  }

  /** How a call ends with an error. */
  failing(attempt: Attempt, failure: Failure, details: FailureDetails): Settle {
    const { status, ran, breakerState, settlement } = details;
    const attempts = ran ? attemptsWith(attempt, failure) : attempt.started.earlier;
    const outcome: Outcome = {
      ...outcomeBase(attempt),
      status,
      attempts: attempts.length,
      error: resultError(failure, status, breakerState),
      ...(settlement === undefined ? {} : { settlement }),
    };
    const { callId, started, policy, registered, envelope } = attempt;
    const unstarted = settlement === 'cancelled' && lifeOfUnstarted(this.#settings.ttl, envelope.control);
    const ending = this.#failing(callId, started.fence, outcome, attempts, {
      policy,
      effects: registered.tool.effects,
      expectedRetrySafe: envelope.payload.callHints?.expectedRetrySafe ?? false,
    });
    return { ...ending, ...unstarted };
  }

  /** Ends a call with an error, as `failing` says. */
  fail(attempt: Attempt, ending: Settle): Promise<JobOutcome> {
    return this.#settle(ending, attempt.running);
  }

  /** Ends a call for which no attempt of this worker ran. */
  refuse(
    callId: string,
    fence: number,
    outcome: Outcome,
    attempts: readonly AttemptRecord[],
    tool?: KeptTool,
  ): Promise<JobOutcome> {
    return this.#settle(this.#failing(callId, fence, outcome, attempts, tool), undefined);
  }

  #failing(
    callId: string,
    fence: number,
    outcome: Outcome,
    attempts: readonly AttemptRecord[],
    { policy, effects, expectedRetrySafe = false }: KeptTool = { policy: {}, effects: 'none' },
  ): Settle {
    const keptLong = isKeptLong(effects, attempts, outcome.settlement);
    const inDoubt = keptLong && (!expectedRetrySafe || outcome.settlement === 'unsettled');
    const told = inDoubt && outcome.error !== undefined ? { ...outcome, error: doubtful(outcome.error) } : outcome;
    const { ttlMs, freeAfterMs, ...ending } = this.#ending(callId, fence, told, policy);
    return {
      ...ending,
      ttlMs: keptLong ? Math.max(ttlMs, this.#doneTtlMs(policy)) : ttlMs,
      ...(keptLong || freeAfterMs === undefined ? {} : { freeAfterMs }),
      outcomeJson: JSON.stringify(told),
      attempts,
    };
  }

  #ending(callId: string, fence: number, outcome: Outcome, policy: ToolPolicy) {
    const state = stateOf(outcome);
    return { callId, fence, state, outcome, ...this.#life(state, outcome, policy) };
  }

  /** R16. The key of a call in doubt must not be free sooner than that of a success. */
  #life(state: Exclude<CallState, 'inflight'>, outcome: Outcome, policy: ToolPolicy): RecordLife {
    const { ttl } = this.#settings;
    if (state === 'done' || isUnresolved(outcome)) return { ttlMs: this.#doneTtlMs(policy) };
    return state === 'cancelled' ? { ttlMs: ttl.cancelledMs } : lifeOfFailure(ttl, policy.ttl);
  }

  #doneTtlMs(policy: ToolPolicy): number {
    return policy.ttl?.doneMs ?? this.#settings.ttl.doneMs;
  }

  async #settle(settle: Settle, running: RunningAttempt | undefined): Promise<JobOutcome> {
    const answer = await retryUntilLeaseLost(() => this.#ledger.settle(settle), running, this.#log, this.#schedule);
    if (answer === 'settled') return { kind: 'finished', outcome: settle.outcome };
    return notWritten(answer);
  }

  /** The call gets another attempt: after `delayMs`, or at once with this one unspent (`queued`). */
  async postpone(
    attempt: Attempt,
    phase: 'waiting-retry' | 'queued' | 'unstarted',
    attempts: readonly AttemptRecord[],
    delayMs: number,
    retry?: Retry,
  ): Promise<JobOutcome> {
    const { callId, started, running } = attempt;
    const answer = await retryUntilLeaseLost(
      () =>
        this.#ledger.postpone(
          callId,
          started.fence,
          phase,
          attempts,
          delayMs,
          retry?.event,
          retry && attempt.allowance,
        ),
      running,
      this.#log,
      this.#schedule,
    );
    if (answer === 'postponed')
      return phase === 'queued' && delayMs === 0 ? { kind: 'released' } : { kind: 'postponed', delayMs };
    if (answer === 'exhausted' && retry !== undefined) return retry.refused();
    if (answer === 'cancelled') {
      const ran = attempts.length > started.earlier.length;
      const nothingHappened = !leftInDoubt(attempts);
      const settlement = settlementOfAborted(attempt.registered.tool.effects, nothingHappened);
      const failure = { ...failureOf('CANCELLED'), nothingHappened };
      return this.fail(attempt, this.failing(attempt, failure, { status: 'error', ran, settlement }));
    }
    return notWritten(answer);
  }

  /** The attempt is given up before the tool's code: as if it had not begun. Where Redis is away, the lease says so in its time. */
  async release({ callId, started }: Attempt): Promise<void> {
    try {
      await this.#ledger.postpone(callId, started.fence, 'unstarted', started.earlier, 0);
    } catch (error) {
      this.#log.warn({ callId, error: classify(error).message }, 'an attempt was given up; its lease will end');
    }
  }
}

function notWritten(answer: WriteAnswer | undefined): JobOutcome {
  if (answer === 'fenced') return { kind: 'abandoned', fenced: true };
  return answer === undefined ? { kind: 'abandoned' } : { kind: 'dropped' };
}
