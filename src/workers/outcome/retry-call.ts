/** Decides what follows a failed attempt: another attempt, or the end of the call. */
import { triesOf } from '../../shared/calls/call-state.ts';
import { isExpectedRetrySafe } from '../../shared/calls/envelope.ts';
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import type { Failure } from '../../shared/errors/failure.ts';
import type { FailureStatus } from '../../shared/errors/result-status.ts';
import { decideRetry } from '../../shared/retries/retry.ts';
import { RETRY_BUDGET_EXHAUSTED } from '../../shared/retries/retry-budget.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { Random } from '../../shared/util/time.ts';
import { type Attempt, attemptsWith, nowMs, remainingMs } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { NodeCircuits } from '../circuits/node-circuit.ts';
import type { ConsensusDeps } from './consensus.ts';
import type { CallEnder } from './end-call.ts';
import type { CallSettler } from './settle-call.ts';

interface FailedAttemptsDeps extends Pick<ConsensusDeps, 'othersWith'> {
  readonly ender: Pick<CallEnder, 'failCounted'>;
  readonly settler: Pick<CallSettler, 'postpone'>;
  /** The hooks of the worker, which may refuse another attempt. */
  readonly hooks: { mayRetry(attempt: Attempt, failure: Failure, delayMs: number): Promise<boolean> };
  readonly circuits: Pick<FleetCircuits, 'failed'>;
  readonly nodeCircuits: Pick<NodeCircuits, 'failsInARow'>;
  readonly writes: AttemptWrites;
  readonly random: Random;
  onEvent(event: WorkerEvent): void;
}

export class FailedAttempts {
  readonly #deps: FailedAttemptsDeps;

  constructor(deps: FailedAttemptsDeps) {
    this.#deps = deps;
  }

  async resolve(attempt: Attempt, failure: Failure): Promise<JobOutcome> {
    const { callId, envelope, number, modes } = attempt;
    attempt.trace?.failed(failure);
    const breakerState = await this.#count(attempt, failure);
    const decision = this.#decide(attempt, failure, breakerState);
    const end = (status: FailureStatus) =>
      this.#deps.ender.failCounted(attempt, failure, { status, ran: true, breakerState });
    if (decision.kind === 'stop') return end(decision.status);
    if (modes.retry !== 'on') {
      const event = { callId, envelope, attempt: number, kind: 'retried', detail: failure.code } as const;
      if (modes.retry === 'shadow') this.#deps.onEvent({ type: 'tool_call_shadow', ...event });
      return end(failure.class === 'timeout' ? 'timeout' : 'retriable_error');
    }
    const { delayMs } = decision;
    if (!(await this.#deps.hooks.mayRetry(attempt, failure, delayMs))) return end('retry_exhausted');
    return this.#retry(attempt, failure, delayMs, breakerState);
  }

  /** Counts the failure in its circuit. Returns the state of the circuit. */
  async #count(attempt: Attempt, failure: Failure): Promise<CircuitState> {
    const { nodeCircuits, othersWith = () => [], circuits, writes } = this.#deps;
    const { circuit, tool, running } = attempt;
    // A probe stands for all workers, so its failure always counts.
    const failsHereAlone =
      circuit.probe === undefined &&
      nodeCircuits.failsInARow(qualifiedName(tool), circuit.policy) &&
      othersWith(tool).length > 0;
    const counted = failsHereAlone ? { ...failure, againstCircuit: false } : failure;
    return (await writes.retry(running, () => circuits.failed(circuit, counted))) ?? circuit.snapshot.state;
  }

  #decide(attempt: Attempt, failure: Failure, circuitState: CircuitState) {
    const { envelope, started, number, tool, modes, circuit } = attempt;
    // A circuit that only observes refuses no retry, and one that parks lets it wait.
    const stopsRetries = modes.circuits === 'on' && circuit.policy.whenOpen !== 'park';
    const tries = triesOf(started.earlierAttempts);
    return decideRetry(
      {
        failure,
        effects: tool.effects,
        attempt: number - started.earlierAttempts.length + tries.length,
        // The time starts with the first try: waiting for a slot or for `ready()` does not count.
        elapsedMs: nowMs(attempt) - (tries[0]?.startedAtMs ?? started.nowMs),
        remainingMs: remainingMs(attempt),
        expectedRetrySafe: isExpectedRetrySafe(envelope),
        circuitState: stopsRetries ? circuitState : 'CLOSED',
      },
      attempt.retry,
      this.#deps.random,
    );
  }

  async #retry(attempt: Attempt, failure: Failure, delayMs: number, breakerState: CircuitState): Promise<JobOutcome> {
    const { callId, envelope, number } = attempt;
    const postponed = await this.#deps.settler.postpone(attempt, {
      phase: 'waiting-retry',
      attempts: attemptsWith(attempt, failure, delayMs),
      delayMs,
      retry: {
        event: { type: 'retrying', callId, attempt: number, delayMs, reasonCode: failure.code },
        refused: () => this.#refuseRetry(attempt, failure, breakerState),
      },
    });
    const errorCode = failure.code;
    if (postponed.kind === 'postponed')
      this.#deps.onEvent({ type: 'tool_call_retry', callId, envelope, attempt: number, delayMs, errorCode });
    return postponed;
  }

  /** The calls of the tool have used up their shared retry budget: the call ends with its last failure. */
  #refuseRetry(attempt: Attempt, failure: Failure, breakerState: CircuitState): Promise<JobOutcome> {
    const { callId, envelope, number, allowance } = attempt;
    const event = { callId, envelope, attempt: number, errorCode: failure.code };
    this.#deps.onEvent({ type: 'tool_call_retry_refused', ...event, bucket: allowance.bucket });
    const status = failure.class === 'timeout' ? 'timeout' : 'retry_exhausted';
    const message = `${failure.message} (not tried again: ${RETRY_BUDGET_EXHAUSTED})`;
    return this.#deps.ender.failCounted(attempt, { ...failure, message }, { status, ran: true, breakerState });
  }
}
