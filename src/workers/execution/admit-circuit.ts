/** Decides whether an attempt may begin while its circuit is not closed: as the circuit's probe, or at all. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { hasAttemptInDoubt } from '../../shared/calls/call-state.ts';
import { outcomeWithoutRun } from '../../shared/calls/outcome.ts';
import { type Circuit, forcedOpenText } from '../../shared/circuits/circuit-breaker.ts';
import { targetOfCircuit } from '../../shared/circuits/circuit-key.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { circuitPolicyOf } from '../../shared/config/tool-settings.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import type { BeginResult } from '../../shared/store/calls/begin-attempt.ts';
import { parseCircuit } from '../../shared/store/circuits/circuits.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import type { AnyTool } from '../../shared/tools/tool.ts';
import type { CircuitHold } from '../attempt/circuit-hold.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { CallSettler } from '../outcome/settle-call.ts';

/** The answer to a start whose circuit is not closed. */
export type OpenCircuit = Extract<BeginResult, { kind: 'circuit' }>;

type CircuitEntry =
  /** Begin, through the circuit of `hold`, if any. */
  | { readonly kind: 'begin'; readonly hold?: CircuitHold }
  /** Begin as the probe; give the probe back if no attempt begins. */
  | { readonly kind: 'probe'; readonly hold: CircuitHold }
  | { readonly kind: 'end'; readonly end: JobOutcome };

interface CircuitAdmissionDeps {
  readonly settings: Settings;
  readonly workerId: string;
  readonly circuits: Pick<FleetCircuits, 'enter' | 'release' | 'verified'>;
  readonly settler: Pick<CallSettler, 'refuse'>;
  onEvent(event: WorkerEvent): void;
}

export class CircuitAdmitter {
  readonly #deps: CircuitAdmissionDeps;

  constructor(deps: CircuitAdmissionDeps) {
    this.#deps = deps;
  }

  async enter(callId: string, answer: OpenCircuit, tool: AnyTool, modes: ReliabilityModes): Promise<CircuitEntry> {
    const { settings, workerId, circuits, onEvent } = this.#deps;
    const hold: CircuitHold = {
      partition: homePartition(partitionFor(callId).tier),
      key: answer.circuit,
      policy: circuitPolicyOf(settings, tool),
      snapshot: parseCircuit(answer.circuitRaw),
      probe: undefined,
      bypassed: !modes.enabled,
    };
    if (!modes.enabled) return { kind: 'begin', hold };
    const entry = await circuits.enter(hold, `${workerId} ${callId} ${answer.fence + 1}`, answer.nowMs);
    switch (entry.kind) {
      // The stored circuit cannot be read behind its head, so it counts as closed.
      case 'pass':
        return { kind: 'begin', hold };
      case 'again':
        return { kind: 'begin' };
      case 'probe':
        return entry;
      case 'refuse': {
        if (modes.circuits !== 'on') {
          const event = { callId, envelope: answer.request.envelope, attempt: answer.earlierAttempts.length + 1 };
          if (modes.circuits === 'shadow')
            onEvent({ type: 'tool_call_shadow', ...event, kind: 'refused', detail: hold.snapshot.state });
          return { kind: 'begin', hold };
        }
        const { retryAfterMs } = entry;
        if (hold.policy.whenOpen === 'park') return { kind: 'end', end: { kind: 'postponed', delayMs: retryAfterMs } };
        return { kind: 'end', end: await this.#refuse(callId, answer, tool, retryAfterMs) };
      }
    }
  }

  /** Lets the next attempt be the probe. */
  release(hold: CircuitHold): Promise<void> {
    return this.#deps.circuits.release(hold);
  }

  #refuse(callId: string, answer: OpenCircuit, tool: AnyTool, retryAfterMs: number): Promise<JobOutcome> {
    const { circuits, settler, onEvent } = this.#deps;
    const { fence, request, earlierAttempts } = answer;
    const { envelope } = request;
    const circuit = circuits.verified(answer.circuit, parseCircuit(answer.circuitRaw));
    const breakerState = circuit.state;
    // The lost attempt may have had its effect, and the tool would have been probed before another one.
    const inDoubt = tool.effects === 'probe' && hasAttemptInDoubt(earlierAttempts);
    const message = openText(envelope.toolName, circuit, answer.circuit);
    const failure = inDoubt ? failureOf('OUTCOME_UNKNOWN') : failureOf('CIRCUIT_OPEN', message, { retryAfterMs });
    const status = inDoubt ? 'error' : 'circuit_open';
    const outcome = outcomeWithoutRun(envelope.toolName, failure, { status, earlier: earlierAttempts, breakerState });
    const event = { callId, envelope, attempt: earlierAttempts.length, errorCode: failure.code, breakerState };
    onEvent({ type: 'tool_call_blocked', ...event });
    return settler.refuse({ callId, fence, outcome, attempts: earlierAttempts, call: { tool, envelope } });
  }
}

function openText(toolName: string, circuit: Circuit, circuitKey: string): string | undefined {
  if (circuit.state === 'FORCED_OPEN') return forcedOpenText(toolName, circuit.reason);
  const target = targetOfCircuit(circuitKey);
  return target && `${toolName} for ${target} keeps failing and is given time to recover.`;
}
