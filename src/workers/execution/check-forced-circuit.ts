/** Refuses or parks calls whose circuit is forced open, by the configuration or by an operator. */
import { FORCED_BY_CONFIGURATION, forcedOpenText } from '../../shared/circuits/circuit-breaker.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { ForcedCircuits } from '../circuits/forced-circuits.ts';
import type { CallEnder } from '../outcome/end-call.ts';
import type { Parking } from '../outcome/park-call.ts';

interface ForcedCircuitCheckDeps {
  /** Absent where every call goes through its tool's own circuit. */
  readonly forced?: Pick<ForcedCircuits, 'mayBeAny' | 'reasonFor'> | undefined;
  readonly ender: Pick<CallEnder, 'fail'>;
  readonly parking: Pick<Parking, 'requeue'>;
  readonly writes: AttemptWrites;
  onEvent(event: WorkerEvent): void;
}

export class ForcedCircuitCheck {
  readonly #deps: ForcedCircuitCheckDeps;

  constructor(deps: ForcedCircuitCheckDeps) {
    this.#deps = deps;
  }

  /** Undefined where the attempt may go on. */
  async check(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { modes, circuit, callId, envelope, number } = attempt;
    const reason = await this.#reason(attempt);
    if (reason === undefined) return undefined;
    const { ender, parking, onEvent } = this.#deps;
    const breakerState = 'FORCED_OPEN';
    const event = { callId, envelope, attempt: number };
    if (modes.circuits !== 'on') {
      if (modes.circuits === 'shadow')
        onEvent({ type: 'tool_call_shadow', ...event, kind: 'refused', detail: breakerState });
      return undefined;
    }
    const retryAfterMs = circuit.policy.cooldownMs;
    if (circuit.policy.whenOpen === 'park') return parking.requeue(attempt, retryAfterMs);
    const failure = failureOf('CIRCUIT_OPEN', forcedOpenText(envelope.toolName, reason), { retryAfterMs });
    onEvent({ type: 'tool_call_blocked', ...event, errorCode: failure.code, breakerState });
    return ender.fail(attempt, failure, { status: 'circuit_open', ran: false, breakerState });
  }

  /** The reason why the circuit is forced open. Redis knows nothing of the configuration, nor of calls that go through other circuits. */
  async #reason({ policy, circuit, tool, running }: Attempt): Promise<string | undefined> {
    if (policy.circuit?.forcedOpen === true) return FORCED_BY_CONFIGURATION;
    const { forced, writes } = this.#deps;
    if (forced?.mayBeAny !== true) return undefined;
    return writes.retry(running, () => forced.reasonFor(tool, circuit.key));
  }
}
