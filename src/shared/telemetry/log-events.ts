/**
 * The seeds' log events (R27): which line an event of a producer or a worker becomes. Nothing here holds parameters, outputs
 * or a key: a key appears as its SHA-256.
 */
import { createHash } from 'node:crypto';
import type { CallState, Phase } from '../calls/call-state.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../calls/envelope.ts';
import { type Outcome, stateOf } from '../calls/outcome.ts';
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import type { ShadowKind } from '../config/switches.ts';
import { FAILURES, type FailureCode } from '../errors/failure-codes.ts';
import type { Logger } from './log.ts';

export const CALL_EVENTS = [
  'tool_call_start',
  'tool_call_end',
  'tool_call_blocked',
  'tool_call_retry',
  'tool_call_circuit_state',
  'tool_call_shadow',
  'tool_call_retry_refused',
  'tool_call_loop',
] as const;
export type CallEventName = (typeof CALL_EVENTS)[number];

/** Of what an attempt's events tell. */
export interface AttemptEvent {
  readonly callId: string;
  readonly envelope: ToolCallEnvelope;
  readonly attempt: number;
}

export interface CircuitChange {
  readonly circuit: string;
  readonly from: CircuitState;
  readonly to: CircuitState;
  readonly reason?: string;
}

/** What a worker tells about its attempts. */
export type WorkerEvent =
  | ({
      readonly type: 'tool_call_start';
      readonly fence: number;
      /** In the queue; of a first attempt. */
      readonly waitedMs?: number;
    } & AttemptEvent)
  | ({ readonly type: 'tool_call_end'; readonly outcome: Outcome; readonly elapsedMs: number } & AttemptEvent)
  | ({ readonly type: 'tool_call_retry'; readonly delayMs: number; readonly errorCode: string } & AttemptEvent)
  /** A retry that the tool's budget does not allow. */
  | ({
      readonly type: 'tool_call_retry_refused';
      readonly errorCode: string;
      readonly bucket: string;
    } & AttemptEvent)
  | ({
      readonly type: 'tool_call_blocked';
      readonly errorCode: string;
      readonly breakerState: CircuitState;
    } & AttemptEvent)
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitChange)
  /** What the reliability layer would have done, were it not in shadow mode. */
  | ({ readonly type: 'tool_call_shadow'; readonly kind: ShadowKind; readonly detail: string } & AttemptEvent);

/** What a producer tells about the calls that were handed to it. `ResolvedTool` is the tool as its fleet offers it. */
export type ProducerEvent<ResolvedTool = unknown> =
  | {
      readonly type: 'accepted';
      readonly envelope: ToolCallEnvelope;
      readonly callId: string;
      readonly answer: 'claimed' | 'inflight' | 'ended' | 'conflict';
    }
  /** A session makes the same call again and again (R26). */
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
      /** Where the refusal is the tool's own. */
      readonly published?: ResolvedTool;
      readonly code: string;
      readonly message: string;
    }
  /** What the reliability layer would have done, were it not in shadow mode. */
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
  /** Somebody has forced a circuit open, or reset it, here. */
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitChange);

/** A log line: the seeds' fields, and what finds the call again. */
export interface CallLine {
  readonly level: 'debug' | 'info' | 'warn';
  readonly message: string;
  readonly fields: {
    readonly event: CallEventName;
    readonly side: 'worker' | 'producer';
    readonly callId?: string;
    readonly requestId?: string;
    readonly toolName?: string;
    readonly sessionKey?: string;
    readonly idempotencyKeyHash?: string;
    readonly correlationId?: string;
    /** Of the call's trace, where it has one. */
    readonly traceId?: string;
    readonly state?: CallState | Phase;
    readonly attempt?: number;
    readonly fence?: number;
    readonly elapsedMs?: number;
    readonly delayMs?: number;
    readonly fromCache?: boolean;
    readonly errorCode?: string;
    readonly retriable?: boolean;
    readonly breakerState?: CircuitState;
    readonly circuit?: string;
    readonly from?: CircuitState;
    readonly reason?: string;
    readonly kind?: ShadowKind;
    readonly detail?: string;
    readonly bucket?: string;
    readonly action?: 'warned' | 'refused';
    readonly repetitions?: number;
  };
}

/** The line of a worker's event. */
export function workerLine(event: WorkerEvent): CallLine {
  const { type } = event;
  const side = 'worker';
  switch (type) {
    case 'tool_call_start':
      return {
        level: 'info',
        message: `attempt ${event.attempt} of ${event.envelope.toolName} began`,
        fields: {
          event: type,
          side,
          ...identityOf(event),
          state: 'running',
          attempt: event.attempt,
          fence: event.fence,
        },
      };
    case 'tool_call_end': {
      const { outcome, attempt, elapsedMs } = event;
      return {
        level: outcome.error === undefined ? 'info' : 'warn',
        message: `${event.envelope.toolName} ended: ${outcome.error?.code ?? outcome.status}`,
        fields: {
          event: type,
          side,
          ...identityOf(event),
          state: stateOf(outcome),
          attempt,
          elapsedMs,
          fromCache: false,
          ...errorFields(outcome.error),
        },
      };
    }
    case 'tool_call_retry':
      return {
        level: 'warn',
        message: `${event.envelope.toolName} failed with ${event.errorCode} and is tried again in ${event.delayMs} ms`,
        fields: {
          event: type,
          side,
          ...identityOf(event),
          state: 'waiting-retry',
          attempt: event.attempt,
          delayMs: event.delayMs,
          errorCode: event.errorCode,
          retriable: true,
        },
      };
    case 'tool_call_blocked':
      return {
        level: 'warn',
        message: `${event.envelope.toolName} was refused: ${event.errorCode}`,
        fields: {
          event: type,
          side,
          ...identityOf(event),
          state: 'failed',
          attempt: event.attempt,
          errorCode: event.errorCode,
          retriable: isRetriable(event.errorCode),
          breakerState: event.breakerState,
        },
      };
    case 'tool_call_circuit_state':
      return circuitLine(side, event);
    case 'tool_call_shadow':
      return shadowLine(side, event);
    case 'tool_call_retry_refused':
      return {
        level: 'warn',
        message: `${event.envelope.toolName} failed with ${event.errorCode} and is not tried again: retry budget exhausted`,
        fields: {
          event: type,
          side,
          ...identityOf(event),
          attempt: event.attempt,
          errorCode: event.errorCode,
          bucket: event.bucket,
        },
      };
  }
}

/** The line of a producer's event. */
export function producerLine(event: ProducerEvent): CallLine {
  const side = 'producer';
  switch (event.type) {
    case 'accepted': {
      const { callId, envelope, answer } = event;
      return {
        // R17: one key for two sets of parameters is an alarm, whatever becomes of the call.
        level: answer === 'conflict' ? 'warn' : 'debug',
        message: `${envelope.toolName} was handed in: ${answer}`,
        fields: {
          event: 'tool_call_start',
          side,
          ...identityOf({ callId, envelope }),
          ...(answer === 'claimed' ? { state: 'queued' } : {}),
          ...(answer === 'conflict' ? { errorCode: 'IDEMPOTENCY_CONFLICT' } : {}),
        },
      };
    }
    case 'refused': {
      const { envelope, code } = event;
      return {
        level: 'warn',
        message: `${envelope?.toolName ?? 'a call'} was refused: ${code}`,
        fields: {
          event: 'tool_call_blocked',
          side,
          ...(envelope === undefined ? {} : identityOf({ envelope })),
          errorCode: code,
          retriable: isRetriable(code),
        },
      };
    }
    case 'loop': {
      const { envelope, callId, action, repetitions } = event;
      return {
        level: 'warn',
        message: `${envelope.toolName} was called ${repetitions} times with the same parameters in one session: ${action}`,
        fields: { event: 'tool_call_loop', side, ...identityOf({ callId, envelope }), action, repetitions },
      };
    }
    case 'shadow':
      return shadowLine(side, event);
    case 'tool_call_circuit_state':
      return circuitLine(side, event);
    case 'ended': {
      const { envelope, result } = event;
      return {
        level: 'debug',
        message: `${envelope.toolName} came back: ${result.error?.code ?? result.status}`,
        fields: {
          event: 'tool_call_end',
          side,
          ...identityOf(result.callId === undefined ? { envelope } : { envelope, callId: result.callId }),
          state: result.status === 'success' ? 'done' : 'failed',
          attempt: result.attempts,
          elapsedMs: result.durationMs,
          fromCache: result.fromCache,
          ...errorFields(result.error),
        },
      };
    }
  }
}

function circuitLine(side: 'worker' | 'producer', { circuit, from, to, reason }: CircuitChange): CallLine {
  return {
    level: to === 'CLOSED' ? 'info' : 'warn',
    message: `the circuit ${circuit} went from ${from} to ${to}`,
    fields: {
      event: 'tool_call_circuit_state',
      side,
      circuit,
      from,
      breakerState: to,
      ...(reason === undefined ? {} : { reason }),
    },
  };
}

/** What shadow mode would have done. */
function shadowLine(
  side: 'worker' | 'producer',
  event: {
    readonly envelope: ToolCallEnvelope;
    readonly callId: string;
    readonly attempt?: number;
    readonly kind: ShadowKind;
    readonly detail: string;
  },
): CallLine {
  const { envelope, kind, detail, attempt } = event;
  return {
    level: 'info',
    message: `${envelope.toolName} would have been ${kind} (${detail}), were the layer not in shadow mode`,
    fields: {
      event: 'tool_call_shadow',
      side,
      ...identityOf(event),
      ...(attempt === undefined ? {} : { attempt }),
      kind,
      detail,
    },
  };
}

/** Writes a line where logs go. */
export function logLine(log: Logger, line: CallLine): void {
  log[line.level](line.fields, line.message);
}

function identityOf({ callId, envelope }: { readonly callId?: string; readonly envelope: ToolCallEnvelope }) {
  const { target, payload } = envelope;
  // A call without a key of its own is known downstream by its ID: that is the key that its tool sees.
  const key = payload.idempotencyKey ?? callId;
  return {
    ...(callId === undefined ? {} : { callId }),
    requestId: envelope.requestId,
    toolName: envelope.toolName,
    sessionKey: target.sessionKey,
    ...(key === undefined ? {} : { idempotencyKeyHash: keyHash(key) }),
    ...(target.correlationId === undefined ? {} : { correlationId: target.correlationId }),
    ...traceField(envelope.trace.traceparent),
  };
}

function errorFields(
  error:
    | { readonly code: string; readonly retriable: boolean; readonly breakerState?: CircuitState | undefined }
    | undefined,
) {
  if (error === undefined) return {};
  const { code, retriable, breakerState } = error;
  return { errorCode: code, retriable, ...(breakerState === undefined ? {} : { breakerState }) };
}

function isRetriable(code: string): boolean {
  return Object.hasOwn(FAILURES, code) && FAILURES[code as FailureCode].retriable;
}

/** What leads from a log line to the call's trace. */
export function traceField(traceparent: string | undefined): { readonly traceId?: string } {
  const traceId = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(traceparent ?? '')?.[1];
  return traceId === undefined ? {} : { traceId };
}

/** A key as logs and traces show it: SHA-256 in hexadecimal. */
export function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
