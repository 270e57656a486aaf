/**
 * judge: settle, try again later, hand back, or leave it to others.
 */

import { leftInDoubt, settlementOfAborted } from '../../shared/calls/call-state.ts';
import { bringsTaint, longOutcomeText, type Outcome } from '../../shared/calls/outcome.ts';
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf, type PawlError } from '../../shared/errors/failure.ts';
import { redact, secretsIn, secretsOf } from '../../shared/errors/redaction.ts';
import { decideRetry, mayRunAgain } from '../../shared/retries/retry.ts';
import { RETRY_BUDGET_EXHAUSTED } from '../../shared/retries/retry-budget.ts';
import { qualifiedName, type ToolResult } from '../../shared/tools/tool.ts';
import { resultMetadata } from '../../shared/tools/tool-result.ts';
import { isLong, jsonText } from '../../shared/util/json/json-stream.ts';
import type { LargeText } from '../../shared/util/json/large-json.ts';
import {
  type Attempt,
  allParams,
  attemptsWith,
  nowMs,
  outcomeBase,
  remainingMs,
  supportsProbe,
} from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { AttemptHooks } from './attempt-hooks.ts';
import { type Counted, count, needsConsensus, nextVoters, split } from './consensus.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import type { Ending, Evidence } from './run-tool.ts';
import type { CallSettler, FailureDetails } from './settle-call.ts';
import { reportShadow } from './shadow-mode.ts';

type Unsuccessful = Exclude<Ending, { readonly kind: 'value' }>;

/** A result, and the text of the outcome that its call ends with. */
interface Worded {
  readonly kind: 'value';
  readonly result: ToolResult<unknown>;
  readonly outcome: Outcome;
  readonly outcomeJson: string | LargeText;
}

/** An ending whose result, if it has one, can be kept. */
export type WordedEnding = Unsuccessful | Worded;

/** Ends attempts: every way in which one can, and what it means for the call. */
export class OutcomeResolver {
  readonly #parts: ExecutorDeps;
  readonly #circuits: FleetCircuits;
  readonly #settler: CallSettler;
  readonly #hooks: AttemptHooks;
  /** Of this process. */
  readonly #secrets: readonly string[];

  constructor(parts: ExecutorDeps, circuits: FleetCircuits, settler: CallSettler, hooks: AttemptHooks) {
    this.#parts = parts;
    this.#circuits = circuits;
    this.#settler = settler;
    this.#hooks = hooks;
    this.#secrets = secretsOf(parts.settings, parts.environment);
  }

  /** A result as its caller will have it. One that JSON cannot say, or that is too large, is a failure of its tool. */
  async word(attempt: Attempt, ending: Ending, diff: string): Promise<WordedEnding> {
    if (ending.kind !== 'value') return ending;
    const { registered, policy } = attempt;
    const outcome = successOutcome(attempt, ending.result, diff);
    const maxBytes = policy.maxResultBytes ?? registered.tool.maxResultBytes;
    try {
      const outcomeJson = isLong(outcome) ? await longOutcomeText(outcome, maxBytes) : shortText(outcome, maxBytes);
      if (outcomeJson !== undefined) return { kind: 'value', result: ending.result, outcome, outcomeJson };
    } catch (error) {
      const message = `The output of ${registered.tool.name} cannot be said in JSON: ${classify(error).message}`;
      return { kind: 'failure', failure: failureOf('RESULT_INVALID', message) };
    }
    const message = `The result of ${registered.tool.name} is larger than the ${maxBytes} bytes that are allowed.`;
    return { kind: 'failure', failure: failureOf('RESULT_TOO_LARGE', message) };
  }

  decide(attempt: Attempt, ending: WordedEnding): Promise<JobOutcome> {
    switch (ending.kind) {
      case 'value':
        return this.#accept(attempt, ending);
      case 'failure':
        return this.#failed(attempt, ending.failure);
      case 'aborted':
        return this.interrupted(attempt, ending.reason, ending.evidence);
    }
  }

  async #accept(attempt: Attempt, worded: Worded): Promise<JobOutcome> {
    if (this.#parts.isAlone === true || !needsConsensus(attempt.registered.tool)) return this.succeed(attempt, worded);
    let counted: Counted;
    try {
      counted = await count(attempt, worded.result, this.#parts.schedule);
    } catch (error) {
      return this.#failed(
        attempt,
        failureOf('RESULT_INVALID', `The result cannot be compared: ${classify(error).message}`),
      );
    }
    attempt.running.vote = counted.vote.digest;
    switch (counted.kind) {
      case 'agreed':
        return this.succeed(attempt, worded);
      case 'split':
        return this.fail(attempt, split(counted.votes), { status: 'error', ran: true });
      case 'open': {
        const next = nextVoters(attempt, counted.votes, this.#parts.othersWith?.(attempt.registered.tool));
        await this.#retryUntilLeaseLost(attempt, () => this.#circuits.release(attempt.circuit));
        const verdict = await this.#settler.postpone(attempt, 'queued', attemptsWith(attempt, undefined), 0);
        return next !== undefined && verdict.kind === 'released' ? next : verdict;
      }
    }
  }

  async succeed(attempt: Attempt, { outcome, outcomeJson }: Worded): Promise<JobOutcome> {
    const { registered, circuit } = attempt;
    if (!(await this.#tainted(attempt, bringsTaint(outcome, registered.tool)))) return { kind: 'abandoned' };
    const sample = await this.#retryUntilLeaseLost(attempt, () => this.#circuits.succeeded(circuit, attempt.running));
    this.#tellEnd(attempt, outcome);
    return this.#settler.succeed(attempt, outcome, outcomeJson, sample);
  }

  /** The attempt failed by itself: count it, then try again or give up. */
  async #failed(attempt: Attempt, failure: Failure): Promise<JobOutcome> {
    const { callId, envelope, started, number, registered, modes } = attempt;
    attempt.trace?.failed(failure);
    const { nodeCircuits, othersWith = () => [] } = this.#parts;
    // A probe answers for all.
    const alone =
      attempt.circuit.probe === undefined &&
      nodeCircuits.failsInARow(qualifiedName(registered.tool), attempt.circuit.policy) &&
      othersWith(registered.tool).length > 0;
    const sample = alone ? { ...failure, againstCircuit: false } : failure;
    const counted = await this.#retryUntilLeaseLost(attempt, () => this.#circuits.failed(attempt.circuit, sample));
    const circuitState = counted ?? attempt.circuit.seen.state;
    // Votes are none.
    const tries = started.earlier.filter(({ vote }) => vote === undefined);
    const decision = decideRetry(
      {
        failure,
        effects: registered.tool.effects,
        attempt: number - started.earlier.length + tries.length,
        // Not from when it was first looked at: waiting for a slot, or for what it is about, is no try.
        elapsedMs: nowMs(attempt) - (tries[0]?.startedAtMs ?? started.nowMs),
        remainingMs: remainingMs(attempt),
        expectedRetrySafe: envelope.payload.callHints?.expectedRetrySafe ?? false,
        // A circuit that only observes refuses no retry either.
        circuitState: modes.circuits === 'on' ? circuitState : 'CLOSED',
      },
      attempt.retry,
      this.#parts.random,
    );
    if (decision.kind === 'stop') {
      const details = { status: decision.status, ran: true, breakerState: circuitState };
      return this.#settleFailure(attempt, failure, details);
    }
    if (modes.retry !== 'on') {
      reportShadow(this.#parts, modes.retry, { callId, envelope, attempt: number }, 'retried', failure.code);
      const status = failure.class === 'timeout' ? 'timeout' : 'retriable_error';
      return this.#settleFailure(attempt, failure, { status, ran: true, breakerState: circuitState });
    }
    const { delayMs } = decision;
    if (!(await this.#hooks.mayRetry(attempt, failure, delayMs)))
      return this.#settleFailure(attempt, failure, {
        status: 'retry_exhausted',
        ran: true,
        breakerState: circuitState,
      });
    const verdict = await this.#settler.postpone(
      attempt,
      'waiting-retry',
      attemptsWith(attempt, failure, delayMs),
      delayMs,
      {
        event: { type: 'retrying', callId, attempt: number, delayMs, reasonCode: failure.code },
        refused: () => this.#refuseRetry(attempt, failure, circuitState),
      },
    );
    if (verdict.kind === 'postponed')
      this.#parts.onEvent({
        type: 'tool_call_retry',
        callId,
        envelope,
        attempt: number,
        delayMs,
        errorCode: failure.code,
      });
    return verdict;
  }

  /** The tool's calls have used up their retries together: the call ends with its last failure. */
  #refuseRetry(attempt: Attempt, failure: Failure, breakerState: CircuitState): Promise<JobOutcome> {
    const { callId, envelope, number, allowance } = attempt;
    const { bucket } = allowance;
    this.#parts.onEvent({
      type: 'tool_call_retry_refused',
      callId,
      envelope,
      attempt: number,
      errorCode: failure.code,
      bucket,
    });
    const status = failure.class === 'timeout' ? 'timeout' : 'retry_exhausted';
    const message = `${failure.message} (not tried again: ${RETRY_BUDGET_EXHAUSTED})`;
    return this.#settleFailure(attempt, { ...failure, message }, { status, ran: true, breakerState });
  }

  /**
   * The attempt was ended from outside. `evidence` says what is known of its effect: the code was not reached, the tool proved
   * that nothing happened, or nothing is known.
   */
  async interrupted(attempt: Attempt, reason: PawlError, evidence: Evidence): Promise<JobOutcome> {
    const { effects } = attempt.registered.tool;
    const { started, envelope } = attempt;
    const nothingHappened = evidence === 'proven' || (evidence === 'not-run' && !started.recovered);
    const failure = { ...failureOf(reason.code, reason.message), nothingHappened };
    const ran = evidence !== 'not-run';
    switch (reason.code) {
      case 'LEASE_LOST':
        // An attempt that never came to the tool's code leaves no doubt, and no blame, if Redis can be told in time.
        if (!ran) await this.#settler.release(attempt);
        // Otherwise the worker that takes the job over finds an attempt without a record, and knows what to do with it.
        return { kind: 'abandoned' };
      case 'CANCELLED':
        return this.fail(attempt, failure, {
          status: 'error',
          ran,
          settlement: settlementOfAborted(effects, nothingHappened && !leftInDoubt(started.earlier)),
        });
      case 'DRAINED': {
        if (supportsProbe(attempt.registered) && ran && !nothingHappened) return { kind: 'abandoned' };
        const expectedRetrySafe = envelope.payload.callHints?.expectedRetrySafe ?? false;
        // What the attempt did not reach, or did not decide, is left as it was to the next one.
        const again = !ran || mayRunAgain({ failure, effects, expectedRetrySafe });
        if (!again) return this.fail(attempt, failureOf('OUTCOME_UNKNOWN'), { status: 'error', ran: true });
        await this.#retryUntilLeaseLost(attempt, () => this.#circuits.release(attempt.circuit));
        return this.#settler.postpone(attempt, 'queued', started.earlier, 0);
      }
      default:
        return this.#failed(attempt, failure);
    }
  }

  /** Ends a call whose code this attempt did not reach. */
  giveUp(attempt: Attempt, failure: Failure): Promise<JobOutcome> {
    return this.fail(attempt, failure, { status: 'error', ran: false });
  }

  /** Ends a call with an error that says nothing about the service behind the tool. */
  async fail(attempt: Attempt, failure: Failure, details: FailureDetails): Promise<JobOutcome> {
    await this.#retryUntilLeaseLost(attempt, () => this.#circuits.release(attempt.circuit));
    return this.#settleFailure(attempt, failure, details);
  }

  async #settleFailure(attempt: Attempt, raw: Failure, details: FailureDetails): Promise<JobOutcome> {
    const outside = details.ran && attempt.registered.tool.annotations.openWorldHint === true;
    if (!(await this.#tainted(attempt, outside))) return { kind: 'abandoned' };
    const failure = withoutSecrets(raw, [...secretsIn(allParams(attempt)), ...this.#secrets]);
    const ending = this.#settler.failing(attempt, failure, details);
    this.#tellEnd(attempt, { ...ending.outcome, attempts: attempt.number });
    return this.#settler.fail(attempt, ending);
  }

  /** Before anybody can read what came from outside, the session is marked (I23). False when the lease was lost over it. */
  async #tainted(attempt: Attempt, outside: boolean): Promise<boolean> {
    const { taint, log, schedule } = this.#parts;
    if (!outside || taint === undefined) return true;
    const { envelope, registered, running } = attempt;
    const mark = async () => {
      await taint(envelope.target.sessionKey, qualifiedName(registered.tool), nowMs(attempt));
      return true;
    };
    return (await retryUntilLeaseLost(mark, running, log, schedule)) === true;
  }

  /** What the tool came to is not lost because Redis cannot take a word on its circuit now. */
  #retryUntilLeaseLost<T>({ running }: Attempt, write: () => Promise<T>): Promise<T | undefined> {
    return retryUntilLeaseLost(write, running, this.#parts.log, this.#parts.schedule);
  }

  #tellEnd(attempt: Attempt, outcome: Outcome): void {
    const { callId, envelope, number, started } = attempt;
    const elapsedMs = nowMs(attempt) - started.nowMs;
    this.#parts.onEvent({ type: 'tool_call_end', callId, envelope, attempt: number, outcome, elapsedMs });
  }
}

/** A tool's message may quote the secrets that it was given (R31). */
function withoutSecrets(failure: Failure, known: readonly string[]): Failure {
  if (known.length === 0) return failure;
  const issues = failure.issues?.map((issue) => ({ ...issue, message: redact(issue.message, known) }));
  return { ...failure, message: redact(failure.message, known), ...(issues === undefined ? {} : { issues }) };
}

function successOutcome(attempt: Attempt, result: ToolResult<unknown>, diff: string): Outcome {
  const { tool } = attempt.registered;
  const metadata = resultMetadata(result, { outside: tool.annotations.openWorldHint === true, diff });
  const shownBytes = attempt.policy.maxOutputBytes ?? tool.maxOutputBytes;
  return {
    ...outcomeBase(attempt),
    status: 'success',
    attempts: attempt.number,
    output: { content: result.output ?? null, ...(Object.keys(metadata).length === 0 ? {} : { metadata }) },
    ...(shownBytes === undefined ? {} : { shownBytes }),
  };
}

/** Undefined when it has more than `maxBytes`. They are not counted where that cannot be. */
function shortText(outcome: Outcome, maxBytes: number): string | undefined {
  const text = jsonText(outcome);
  return text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes ? text : undefined;
}
