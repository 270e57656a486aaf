/**
 * Writes the end of an attempt: the outcome of its call, or the fact that there will be another attempt. Each is one script, which
 * only the newest fence may run. A write is repeated while Redis is unavailable.
 */
import {
  type AttemptRecord,
  abortedSettlement,
  type CallState,
  endsInDoubt,
  failedLifetime,
  hasAttemptInDoubt,
  type LedgerTtls,
  type RecordLifetime,
  type Settlement,
  unresolvedLifetime,
  unstartedLifetime,
} from '../../shared/calls/call-state.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import { isExpectedRetrySafe, type ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { isUnresolved, markInDoubt, type Outcome, outcomeState, resultError } from '../../shared/calls/outcome.ts';
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf } from '../../shared/errors/failure.ts';
import type { FailureStatus } from '../../shared/errors/result-status.ts';
import type { Settle } from '../../shared/store/calls/settle.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { AnyTool } from '../../shared/tools/tool.ts';
import { type Attempt, attemptsWith, outcomeBase } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import { ImmediateSettle, notWritten, type SettlePort } from './settle-port.ts';

export interface FailureDetails {
  readonly status: FailureStatus;
  /** False when the tool's code was not reached, so that the attempt does not count. */
  readonly ran: boolean;
  readonly breakerState?: CircuitState;
  readonly settlement?: Settlement;
}

/** A call that ends without a result. */
export interface FailedCall {
  readonly callId: string;
  readonly fence: number;
  readonly outcome: Outcome;
  readonly attempts: readonly AttemptRecord[];
  /** Decides how long the record is kept, and how an effect in doubt is reported. Absent when the stored call cannot be trusted. */
  readonly call?: {
    readonly tool: Pick<AnyTool, 'namespace' | 'name' | 'effects'>;
    readonly envelope: Pick<ToolCallEnvelope, 'payload'>;
  };
}

export interface Postponed {
  /** `waiting-retry` consumes an attempt. `queued` and `unstarted` do not; `unstarted` does not count the attempt's time either. */
  readonly phase: 'waiting-retry' | 'queued' | 'unstarted';
  readonly attempts: readonly AttemptRecord[];
  readonly delayMs: number;
  readonly retry?: Retry;
}

/** An attempt that follows a failure and takes from the tool's retry budget. */
export interface Retry {
  /** Sent to the callers that wait. */
  readonly event: object;
  /** Ends the call when the budget is exhausted. */
  refused(): Promise<JobOutcome>;
}

interface CallSettlerDeps {
  readonly ledger: Pick<CallLedger, 'settle' | 'postpone'>;
  readonly settings: Settings;
  readonly log: Logger;
  readonly writes: AttemptWrites;
  /** Writes the outcome of a success. Default: at once. */
  readonly successes?: SettlePort | undefined;
}

export class CallSettler {
  readonly #deps: CallSettlerDeps;
  readonly #immediate: SettlePort;
  readonly #successes: SettlePort;

  constructor(deps: CallSettlerDeps) {
    this.#deps = deps;
    this.#immediate = new ImmediateSettle(deps.ledger, deps.writes);
    this.#successes = deps.successes ?? this.#immediate;
  }

  /** Ends a call with its tool's result. */
  async succeed(
    attempt: Attempt,
    outcome: Outcome,
    outcomeJson: Settle['outcomeJson'],
    sample: Settle['sample'],
  ): Promise<JobOutcome> {
    const settle: Settle = {
      ...this.#baseSettle(attempt.callId, attempt.started.fence, outcome, ttlsOf(this.#deps.settings, attempt.tool)),
      outcomeJson,
      attempts: attemptsWith(attempt, undefined),
      ...(sample !== undefined && { sample }),
      ...(hasOwnCircuit(attempt) ? { plainCircuit: true } : {}),
      ...(attempt.tool.compensate === undefined ? { dropsSignature: true } : {}),
      ...(attempt.modes.retry === 'on' ? { refill: attempt.allowance } : {}),
    };
    // An approval is marked as used when its attempt has ended. The outcome has to be written before that.
    const port = attempt.started.approvalId === undefined ? this.#successes : this.#immediate;
    return port.settle(settle, attempt.running);
  }

  failedAttemptSettle(attempt: Attempt, failure: Failure, details: FailureDetails): Settle {
    const { status, ran, breakerState, settlement } = details;
    const attempts = ran ? attemptsWith(attempt, failure) : attempt.started.earlierAttempts;
    const outcome: Outcome = {
      ...outcomeBase(attempt),
      status,
      attempts: attempts.length,
      error: resultError(failure, status, breakerState),
      ...(settlement !== undefined && { settlement }),
    };
    const { callId, started, tool, envelope } = attempt;
    const ttls = ttlsOf(this.#deps.settings, tool);
    const unstarted = settlement === 'cancelled' && unstartedLifetime(ttls, compensatedCallId(envelope) !== undefined);
    const { fence } = started;
    return { ...this.failedCallSettle({ callId, fence, outcome, attempts, call: attempt }), ...unstarted };
  }

  fail(attempt: Attempt, settle: Settle): Promise<JobOutcome> {
    return this.#immediate.settle(settle, attempt.running);
  }

  /** Ends a call for which no attempt of this worker ran. */
  refuse(refused: FailedCall): Promise<JobOutcome> {
    return this.#immediate.settle(this.failedCallSettle(refused), undefined);
  }

  failedCallSettle({ callId, fence, outcome, attempts, call }: FailedCall): Settle {
    const { settings } = this.#deps;
    const ttls = call === undefined ? settings.ttl : ttlsOf(settings, call.tool);
    const keptLong = endsInDoubt(call?.tool.effects ?? 'none', attempts, outcome.settlement);
    const isRetrySafe = call !== undefined && isExpectedRetrySafe(call.envelope);
    const inDoubt = keptLong && (!isRetrySafe || outcome.settlement === 'unsettled');
    const reported =
      inDoubt && outcome.error !== undefined ? { ...outcome, error: markInDoubt(outcome.error) } : outcome;
    const { ttlMs, freeAfterMs, ...ending } = this.#baseSettle(callId, fence, reported, ttls);
    return {
      ...ending,
      ttlMs: keptLong ? Math.max(ttlMs, ttls.doneMs) : ttlMs,
      ...(keptLong || freeAfterMs === undefined ? {} : { freeAfterMs }),
      outcomeJson: JSON.stringify(reported),
      attempts,
    };
  }

  #baseSettle(callId: string, fence: number, outcome: Outcome, ttls: LedgerTtls) {
    const state = outcomeState(outcome);
    return { callId, fence, state, outcome, ...lifetimeOf(state, outcome, ttls) };
  }

  /** Gives the call another attempt, after `delayMs` or at once. */
  async postpone(attempt: Attempt, { phase, attempts, delayMs, retry }: Postponed): Promise<JobOutcome> {
    const { callId, started, running } = attempt;
    const { ledger, writes } = this.#deps;
    const answer = await writes.retry(running, () =>
      ledger.postpone(callId, started.fence, {
        phase,
        attempts,
        delayMs,
        event: retry?.event,
        allowance: retry && attempt.allowance,
      }),
    );
    if (answer === 'postponed')
      return phase === 'queued' && delayMs === 0 ? { kind: 'released' } : { kind: 'postponed', delayMs };
    if (answer === 'exhausted' && retry !== undefined) return retry.refused();
    if (answer === 'cancelled') {
      const ran = attempts.length > started.earlierAttempts.length;
      const nothingHappened = !hasAttemptInDoubt(attempts);
      const settlement = abortedSettlement(attempt.tool.effects, nothingHappened);
      const failure = { ...failureOf('CANCELLED'), nothingHappened };
      return this.fail(attempt, this.failedAttemptSettle(attempt, failure, { status: 'error', ran, settlement }));
    }
    return notWritten(answer);
  }

  /** Gives up an attempt that did not reach its tool's code, as if it had never begun. Without Redis its lease runs out instead. */
  async release({ callId, started }: Attempt): Promise<void> {
    const { ledger, log } = this.#deps;
    try {
      await ledger.postpone(callId, started.fence, {
        phase: 'unstarted',
        attempts: started.earlierAttempts,
        delayMs: 0,
      });
    } catch (error) {
      log.warn({ callId, error: classify(error).message }, 'an attempt was given up; its lease will run out');
    }
  }
}

/** The circuit is the one that a tool has without settings. */
function hasOwnCircuit({ started, envelope }: Attempt): boolean {
  return started.circuit === `tool:${envelope.toolNamespace}.${envelope.toolName}`;
}

/** How long the record is kept. */
function lifetimeOf(state: Exclude<CallState, 'inflight'>, outcome: Outcome, ttls: LedgerTtls): RecordLifetime {
  if (state === 'done') return { ttlMs: ttls.doneMs };
  if (isUnresolved(outcome)) return unresolvedLifetime(ttls);
  return state === 'cancelled' ? { ttlMs: ttls.cancelledMs } : failedLifetime(ttls);
}
