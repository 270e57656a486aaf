/** Ends a call with the outcome of its attempt: circuit, taint, event and record, in this order. */
import { isTainted, type Outcome } from '../../shared/calls/outcome.ts';
import type { Failure } from '../../shared/errors/failure.ts';
import { redact, secretsOfCall } from '../../shared/errors/redaction.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { type Attempt, allParams, nowMs } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { SerializedSuccess } from './serialize-result.ts';
import type { CallSettler, FailureDetails } from './settle-call.ts';

export interface CallEnderDeps {
  readonly settler: CallSettler;
  readonly circuits: FleetCircuits;
  readonly writes: AttemptWrites;
  /** The secrets of this process, which no message may quote. */
  readonly secrets: readonly string[];
  /** Records that a session has seen text from outside. */
  taint?(sessionKey: string, source: string, atMs: number): Promise<void>;
  onEvent(event: WorkerEvent): void;
}

export class CallEnder {
  readonly #deps: CallEnderDeps;

  constructor(deps: CallEnderDeps) {
    this.#deps = deps;
  }

  async succeed(attempt: Attempt, { outcome, outcomeJson }: SerializedSuccess): Promise<JobOutcome> {
    const { settler, circuits, writes } = this.#deps;
    const { tool, circuit, running } = attempt;
    if (!(await this.#taint(attempt, isTainted(outcome, tool)))) return { kind: 'abandoned' };
    const sample = await writes.retry(running, () => circuits.succeeded(circuit, running));
    this.#emitEnd(attempt, outcome);
    return settler.succeed(attempt, outcome, outcomeJson, sample);
  }

  /** Ends a call whose code this attempt did not reach. */
  giveUp(attempt: Attempt, failure: Failure): Promise<JobOutcome> {
    return this.fail(attempt, failure, { status: 'error', ran: false });
  }

  /** Ends a call with an error that says nothing about the service behind the tool. */
  async fail(attempt: Attempt, failure: Failure, details: FailureDetails): Promise<JobOutcome> {
    const { circuits, writes } = this.#deps;
    await writes.retry(attempt.running, () => circuits.release(attempt.circuit));
    return this.failCounted(attempt, failure, details);
  }

  /** Ends a call with an error that its circuit has counted already. */
  async failCounted(attempt: Attempt, raw: Failure, details: FailureDetails): Promise<JobOutcome> {
    const isExternal = details.ran && attempt.tool.annotations.openWorldHint === true;
    if (!(await this.#taint(attempt, isExternal))) return { kind: 'abandoned' };
    const failure = withoutSecrets(raw, secretsOfCall(allParams(attempt), this.#deps.secrets));
    const settle = this.#deps.settler.failedAttemptSettle(attempt, failure, details);
    this.#emitEnd(attempt, { ...settle.outcome, attempts: attempt.number });
    return this.#deps.settler.fail(attempt, settle);
  }

  /** Marks the session before anyone can read what came from outside. False when the lease was lost meanwhile. */
  async #taint(attempt: Attempt, isExternal: boolean): Promise<boolean> {
    const { taint, writes } = this.#deps;
    if (!isExternal || taint === undefined) return true;
    const { envelope, tool, running } = attempt;
    const mark = async () => {
      await taint(envelope.target.sessionKey, qualifiedName(tool), nowMs(attempt));
      return true;
    };
    return (await writes.retry(running, mark)) === true;
  }

  #emitEnd(attempt: Attempt, outcome: Outcome): void {
    const { callId, envelope, number, started } = attempt;
    const elapsedMs = nowMs(attempt) - started.nowMs;
    this.#deps.onEvent({ type: 'tool_call_end', callId, envelope, attempt: number, outcome, elapsedMs });
  }
}

/** A tool's message may quote secrets that the tool received. */
function withoutSecrets(failure: Failure, secrets: readonly string[]): Failure {
  if (secrets.length === 0) return failure;
  const issues = failure.issues?.map((issue) => ({ ...issue, message: redact(issue.message, secrets) }));
  return { ...failure, message: redact(failure.message, secrets), ...(issues !== undefined && { issues }) };
}
