/**
 * The log lines of producer and worker events. No line holds parameters, outputs or a key; a key appears as its SHA-256.
 */
import { createHash } from 'node:crypto';
import type { CallState, Phase } from '../calls/call-state.ts';
import type { ToolCallEnvelope } from '../calls/envelope.ts';
import { outcomeState } from '../calls/outcome.ts';
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import type { ShadowKind } from '../config/switches.ts';
import { FAILURES, type FailureCode } from '../errors/failure-codes.ts';
import type { CircuitTransition, ProducerEvent, WorkerEvent } from './call-events.ts';
import type { Logger } from './log.ts';

export const LOG_EVENTS = [
  'tool_call_start',
  'tool_call_end',
  'tool_call_blocked',
  'tool_call_retry',
  'tool_call_circuit_state',
  'tool_call_shadow',
  'tool_call_retry_refused',
  'tool_call_loop',
] as const;
type LogEventName = (typeof LOG_EVENTS)[number];

/** A log line with its standard fields, and the fields that identify the call. */
interface LogLine {
  readonly level: 'debug' | 'info' | 'warn';
  readonly message: string;
  readonly fields: {
    readonly event: LogEventName;
    readonly side: 'worker' | 'producer';
    readonly callId?: string;
    readonly requestId?: string;
    readonly toolName?: string;
    readonly sessionKey?: string;
    readonly idempotencyKeyHash?: string;
    readonly correlationId?: string;
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

type EventFields = Omit<LogLine['fields'], 'event' | 'side'>;

/** The log line of a worker's event; undefined for an event that is not logged. */
export function workerLine(event: WorkerEvent): LogLine | undefined {
  if (event.type === 'tool_call_circuit_state') return circuitLine('worker', event);
  if (event.type === 'tool_call_shadow') return shadowLine('worker', event);
  const { attempt, envelope } = event;
  const { toolName } = envelope;
  const line = (level: LogLine['level'], message: string, fields: EventFields): LogLine => ({
    level,
    message,
    fields: { event: event.type, side: 'worker', ...identityOf(event), ...fields },
  });
  switch (event.type) {
    case 'tool_call_start':
      return line('info', `attempt ${attempt} of ${toolName} started`, {
        state: 'running',
        attempt,
        fence: event.fence,
      });
    case 'tool_call_end': {
      const { outcome, elapsedMs } = event;
      const level = outcome.error === undefined ? 'info' : 'warn';
      const fields = {
        state: outcomeState(outcome),
        attempt,
        elapsedMs,
        fromCache: false,
        ...errorFields(outcome.error),
      };
      return line(level, `${toolName} ended: ${outcome.error?.code ?? outcome.status}`, fields);
    }
    case 'tool_call_retry': {
      const { errorCode, delayMs } = event;
      const message = `${toolName} failed with ${errorCode} and is retried in ${delayMs} ms`;
      return line('warn', message, { state: 'waiting-retry', attempt, delayMs, errorCode, retriable: true });
    }
    case 'tool_call_retry_refused': {
      const { errorCode, bucket } = event;
      const message = `${toolName} failed with ${errorCode} and is not retried: retry budget exhausted`;
      return line('warn', message, { attempt, errorCode, bucket });
    }
    case 'tool_call_blocked': {
      const { errorCode, breakerState } = event;
      const retriable = isRetriable(errorCode);
      const message = `${toolName} was refused: ${errorCode}`;
      return line('warn', message, { state: 'failed', attempt, errorCode, retriable, breakerState });
    }
  }
}

/** The log line of a producer's event; undefined for an event that is not logged. */
export function producerLine(event: ProducerEvent): LogLine | undefined {
  switch (event.type) {
    case 'accepted':
      return submittedLine(event);
    case 'refused':
      return refusedLine(event);
    case 'loop':
      return loopLine(event);
    case 'ended':
      return returnedLine(event);
    case 'shadow':
      return shadowLine('producer', event);
    case 'tool_call_circuit_state':
      return circuitLine('producer', event);
  }
}

type ProducerEventOf<Type extends ProducerEvent['type']> = Extract<ProducerEvent, { type: Type }>;

function submittedLine({ callId, envelope, answer }: ProducerEventOf<'accepted'>): LogLine {
  // One key for two sets of parameters is always worth an alarm.
  return producerLog(answer === 'conflict' ? 'warn' : 'debug', `${envelope.toolName} was submitted: ${answer}`, {
    event: 'tool_call_start',
    ...identityOf({ callId, envelope }),
    ...(answer === 'claimed' ? { state: 'queued' } : {}),
    ...(answer === 'conflict' ? { errorCode: 'IDEMPOTENCY_CONFLICT' } : {}),
  });
}

function refusedLine({ envelope, code }: ProducerEventOf<'refused'>): LogLine {
  return producerLog('warn', `${envelope?.toolName ?? 'a call'} was refused: ${code}`, {
    event: 'tool_call_blocked',
    ...(envelope === undefined ? {} : identityOf({ envelope })),
    errorCode: code,
    retriable: isRetriable(code),
  });
}

function loopLine({ envelope, callId, action, repetitions }: ProducerEventOf<'loop'>): LogLine {
  const message = `${envelope.toolName} was called ${repetitions} times with the same parameters in one session: ${action}`;
  const identity = identityOf({ callId, envelope });
  return producerLog('warn', message, { event: 'tool_call_loop', ...identity, action, repetitions });
}

function returnedLine({ envelope, result }: ProducerEventOf<'ended'>): LogLine {
  return producerLog('debug', `${envelope.toolName} returned: ${result.error?.code ?? result.status}`, {
    event: 'tool_call_end',
    ...identityOf(result.callId === undefined ? { envelope } : { envelope, callId: result.callId }),
    state: result.status === 'success' ? 'done' : 'failed',
    attempt: result.attempts,
    elapsedMs: result.durationMs,
    fromCache: result.fromCache,
    ...errorFields(result.error),
  });
}

function producerLog(level: LogLine['level'], message: string, fields: Omit<LogLine['fields'], 'side'>): LogLine {
  return { level, message, fields: { side: 'producer', ...fields } };
}

type Side = LogLine['fields']['side'];

function circuitLine(side: Side, { circuit, from, to, reason }: CircuitTransition): LogLine {
  const change = { circuit, from, breakerState: to, ...(reason !== undefined && { reason }) };
  return {
    level: to === 'CLOSED' ? 'info' : 'warn',
    message: `the circuit ${circuit} went from ${from} to ${to}`,
    fields: { event: 'tool_call_circuit_state', side, ...change },
  };
}

/** The line of a change that shadow mode did not make. */
function shadowLine(
  side: Side,
  event: Extract<WorkerEvent, { type: 'tool_call_shadow' }> | ProducerEventOf<'shadow'>,
): LogLine {
  const { envelope, kind, detail } = event;
  const attempt = 'attempt' in event ? { attempt: event.attempt } : {};
  return {
    level: 'info',
    message: `${envelope.toolName} would have been ${kind} (${detail}), were the layer not in shadow mode`,
    fields: { event: 'tool_call_shadow', side, ...identityOf(event), ...attempt, kind, detail },
  };
}

export function writeLogLine(log: Logger, line: LogLine | undefined): void {
  if (line !== undefined) log[line.level](line.fields, line.message);
}

function identityOf({ callId, envelope }: { readonly callId?: string; readonly envelope: ToolCallEnvelope }) {
  const { target, payload } = envelope;
  // Without a caller's key, the tool's idempotency key is the call's ID.
  const key = payload.idempotencyKey ?? callId;
  return {
    ...(callId !== undefined && { callId }),
    requestId: envelope.requestId,
    toolName: envelope.toolName,
    sessionKey: target.sessionKey,
    ...(key !== undefined && { idempotencyKeyHash: keyHash(key) }),
    ...(target.correlationId !== undefined && { correlationId: target.correlationId }),
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
  return { errorCode: code, retriable, ...(breakerState !== undefined && { breakerState }) };
}

function isRetriable(code: string): boolean {
  return Object.hasOwn(FAILURES, code) && FAILURES[code as FailureCode].retriable;
}

/** The field that leads from a log line to the call's trace. */
export function traceField(traceparent: string | undefined): { readonly traceId?: string } {
  const traceId = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(traceparent ?? '')?.[1];
  return traceId === undefined ? {} : { traceId };
}

/** A key as logs and traces show it: SHA-256 in hexadecimal. */
export function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
