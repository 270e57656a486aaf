/** The events that workers and producers emit about calls. */
import type { ToolCallEnvelope, ToolResultEnvelope } from '../calls/envelope.ts';
import type { Outcome } from '../calls/outcome.ts';
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import type { ShadowKind } from '../config/switches.ts';

interface AttemptSubject {
  readonly callId: string;
  readonly envelope: ToolCallEnvelope;
  readonly attempt: number;
}

export interface CircuitTransition {
  readonly circuit: string;
  readonly from: CircuitState;
  readonly to: CircuitState;
  readonly reason?: string;
}

/** The events that a worker emits about its attempts. */
export type WorkerEvent =
  | ({
      readonly type: 'tool_call_start';
      readonly fence: number;
      /** The time in the queue; only for a first attempt. */
      readonly waitedMs?: number;
    } & AttemptSubject)
  | ({ readonly type: 'tool_call_end'; readonly outcome: Outcome; readonly elapsedMs: number } & AttemptSubject)
  | ({ readonly type: 'tool_call_retry'; readonly delayMs: number; readonly errorCode: string } & AttemptSubject)
  /** The tool's budget does not allow a retry. */
  | ({
      readonly type: 'tool_call_retry_refused';
      readonly errorCode: string;
      readonly bucket: string;
    } & AttemptSubject)
  | ({
      readonly type: 'tool_call_blocked';
      readonly errorCode: string;
      readonly breakerState: CircuitState;
    } & AttemptSubject)
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitTransition)
  /** Shadow mode: the change that the reliability layer would have made. */
  | ({ readonly type: 'tool_call_shadow'; readonly kind: ShadowKind; readonly detail: string } & AttemptSubject);

/** The events that a producer emits about submitted calls. `ResolvedTool` is the tool as the fleet publishes it. */
export type ProducerEvent<ResolvedTool = unknown> =
  | {
      readonly type: 'accepted';
      readonly envelope: ToolCallEnvelope;
      readonly callId: string;
      readonly answer: 'claimed' | 'inflight' | 'ended' | 'conflict';
    }
  /** A session makes the same call again and again. */
  | {
      readonly type: 'loop';
      readonly envelope: ToolCallEnvelope;
      readonly callId: string;
      readonly action: 'warned' | 'refused';
      readonly repetitions: number;
    }
  | {
      readonly type: 'refused';
      readonly envelope?: ToolCallEnvelope;
      /** The tool, where the refusal is the tool's own. */
      readonly published?: ResolvedTool;
      readonly code: string;
      readonly message: string;
    }
  /** Shadow mode: the change that the reliability layer would have made. */
  | {
      readonly type: 'shadow';
      readonly envelope: ToolCallEnvelope;
      readonly callId: string;
      readonly kind: ShadowKind;
      readonly detail: string;
    }
  | {
      readonly type: 'ended';
      readonly envelope: ToolCallEnvelope;
      readonly published: ResolvedTool;
      readonly result: ToolResultEnvelope;
    }
  /** An operator forced a circuit open, or reset it, in this process. */
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitTransition);
