/**
 * What an executor tells of its attempts.
 */
import type { CircuitState } from '../shared/breaker.ts';
import type { ToolCallEnvelope } from '../shared/envelope.ts';
import type { Outcome } from '../shared/outcome.ts';
import type { Mode, ShadowKind } from '../shared/switches.ts';
import type { ExecuteParts } from './executor-parts.ts';
import type { CircuitChange } from './fleet-circuit.ts';

export interface CallEvent {
  readonly callId: string;
  readonly envelope: ToolCallEnvelope;
  readonly attempt: number;
}

/** The seeds' log events (R27), as values. */
export type ExecuteEvent =
  | ({
      readonly type: 'tool_call_start';
      readonly fence: number;
      /** In the queue; of a first attempt. */
      readonly waitedMs?: number;
    } & CallEvent)
  | ({ readonly type: 'tool_call_end'; readonly outcome: Outcome; readonly elapsedMs: number } & CallEvent)
  | ({ readonly type: 'tool_call_retry'; readonly delayMs: number; readonly errorCode: string } & CallEvent)
  /** A retry that the tool's budget does not allow. */
  | ({
      readonly type: 'tool_call_retry_refused';
      readonly errorCode: string;
      readonly bucket: string;
    } & CallEvent)
  | ({
      readonly type: 'tool_call_blocked';
      readonly errorCode: string;
      readonly breakerState: CircuitState;
    } & CallEvent)
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitChange)
  /** What the reliability layer would have done, were it not in shadow mode. */
  | ({ readonly type: 'tool_call_shadow'; readonly kind: ShadowKind; readonly detail: string } & CallEvent);

/** Where a part of the reliability layer is in shadow mode: what it would have done. */
export function tellShadow(
  { onEvent }: Pick<ExecuteParts, 'onEvent'>,
  mode: Mode,
  event: CallEvent,
  kind: ShadowKind,
  detail: string,
): void {
  if (mode === 'shadow') onEvent({ type: 'tool_call_shadow', ...event, kind, detail });
}
