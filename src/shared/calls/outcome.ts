/**
 * How a call ended, as the ledger keeps it: written once, replayed byte for byte. The envelope that a caller gets adds who asked.
 */

import type { CircuitState } from '../circuits/circuit-breaker.ts';
import { type Failure, failureOf, type PawlError } from '../errors/failure.ts';
import type { FailureStatus } from '../errors/result-status.ts';
import type { ToolAnnotations } from '../tools/tool.ts';
import { type LargeText, LargeTextWriter } from '../util/json/large-json.ts';
import { capOutput } from '../util/text/truncate-output.ts';
import type { CallState, Settlement } from './call-state.ts';
import type { ResultError, RetriedBy, ToolResultEnvelope } from './envelope.ts';

interface OutcomeBase {
  readonly toolName: string;
  /** From the first attempt's start to the end. */
  readonly durationMs: number;
  readonly attempts: number;
  readonly retriedBy?: readonly RetriedBy[];
  /** What callers are shown of the output, in bytes; the record holds the whole. */
  readonly shownBytes?: number;
  /** Of the content's JSON, where it is long and a part of it is shown: nobody has to write it again to count them. */
  readonly contentBytes?: number;
  /** How a cancelled call ended. */
  readonly settlement?: Settlement;
}

export interface Output {
  readonly content: unknown;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** `status === 'success'` narrows to the one variant with `output`. */
export type Outcome =
  | (OutcomeBase & { readonly status: 'success'; readonly output: Output; readonly error?: never })
  | (OutcomeBase & { readonly status: FailureStatus; readonly error?: ResultError; readonly output?: never });

/** The error part of an outcome or an envelope. An `error` ends things unless another call could succeed; used-up attempts always do. */
export function resultError(failure: Failure, status: FailureStatus, breakerState?: CircuitState): ResultError {
  return {
    code: failure.code,
    message: failure.message,
    retriable: failure.retriable || status === 'circuit_open',
    terminal: status === 'retry_exhausted' || (status === 'error' && !failure.retriable),
    ...(breakerState === undefined ? {} : { breakerState }),
    ...(failure.issues === undefined ? {} : { issues: [...failure.issues] }),
    ...(failure.retryAfterMs === undefined ? {} : { retryAfterMs: failure.retryAfterMs }),
    ...(failure.code === 'OUTCOME_UNKNOWN' ? { mayHaveHappened: true } : {}),
  };
}

const FIND_OUT = 'It may have had its effect: find out before you call it again.';

/** The error of a call that may have had its effect: neither a model nor a `bestEffort` caller is told that another try could help. */
export function doubtful(error: ResultError): ResultError {
  if (error.mayHaveHappened === true) return error;
  const message = `${error.message}${/[.!?…]$/.test(error.message) ? '' : '.'} ${FIND_OUT}`;
  return { ...error, message, retriable: false, mayHaveHappened: true };
}

/**
 * Whether an operator can resolve a call that ended so: it may have had its effect, or it was quarantined. `isUnresolved` of the
 * Lua scripts is the same rule.
 */
export function isUnresolved(outcome: Pick<Outcome, 'error'> | undefined): boolean {
  const error = outcome?.error;
  return error?.mayHaveHappened === true || error?.code === 'POISONED';
}

/** Whether a result holds text from outside (I23): its tool says so, or the tool works outside and came back with an error. */
export function bringsTaint(
  { output, error, attempts }: Pick<Outcome | ToolResultEnvelope, 'output' | 'error' | 'attempts'>,
  { annotations }: { readonly annotations: ToolAnnotations },
): boolean {
  if (error !== undefined) return attempts > 0 && annotations.openWorldHint === true;
  return output?.metadata?.['tainted'] === true;
}

/**
 * The text of an outcome that is long (`isLong`), with its output behind all else; undefined when it has more than `maxBytes`. Throws
 * what `JSON.stringify` throws.
 */
export async function longOutcomeText({ output, ...rest }: Outcome, maxBytes: number): Promise<LargeText | undefined> {
  const writer = new LargeTextWriter(maxBytes);
  writer.add(`${JSON.stringify(rest).slice(0, -1)},"output":{"content":`);
  const from = writer.bytes;
  await writer.addJson(output?.content);
  const to = writer.bytes;
  if (output?.metadata !== undefined) {
    writer.add(',"metadata":');
    await writer.addJson(output.metadata);
  }
  writer.add(rest.shownBytes === undefined ? '}}' : `},"contentBytes":${to - from}}`);
  return writer.isFull ? undefined : writer.end([from, to]);
}

/** The record's end state for an outcome. */
export function stateOf(outcome: Outcome): Exclude<CallState, 'inflight'> {
  if (outcome.status === 'success') return 'done';
  return outcome.settlement === undefined ? 'failed' : 'cancelled';
}

export interface Asked {
  readonly requestId: string;
  /** Of the call: an outcome that stands in for one that nobody believes has none. */
  readonly toolName: string;
  readonly callId: string;
  readonly cache?: { readonly matchedOn: 'inflight' | 'completed'; readonly ageMs: number };
}

/** The envelope for one of those who asked. */
export function envelopeOf(outcome: Outcome, asked: Asked): ToolResultEnvelope {
  const { settlement, shownBytes, contentBytes, status, output, error, toolName, ...rest } = outcome;
  const { requestId, callId, cache } = asked;
  // What is spread stands last: every call comes through here.
  const more = {
    toolName: toolName || asked.toolName,
    ...(cache === undefined ? {} : { cache: { keyFingerprint: callId, ...cache } }),
    ...rest,
  };
  const fromCache = cache !== undefined;
  if (status === 'success')
    return { requestId, callId, status, output: shownOutput(outcome, callId), fromCache, ...more };
  return {
    requestId,
    callId,
    status,
    error: error ?? resultError(failureOf('RESULT_INVALID'), status),
    fromCache,
    ...more,
  };
}

function shownOutput({ output, shownBytes, contentBytes }: Outcome, callId: string) {
  if (output === undefined) return { content: null };
  const { content, whole } = capOutput(output.content, shownBytes, callId, contentBytes);
  return whole === undefined ? output : { content, metadata: { ...output.metadata, whole } };
}

/** The envelope of a call that was refused before it existed. What is refused often needs no error with a stack. */
export function refusal(
  error: Pick<PawlError, 'code' | 'message' | 'issues' | 'details'>,
  asked: { readonly requestId: string; readonly toolName: string; readonly callId?: string },
  status: FailureStatus = 'error',
  breakerState?: CircuitState,
): ToolResultEnvelope {
  const failure = failureOf(error.code, error.message, error.issues === undefined ? {} : { issues: error.issues });
  const retryAfterMs = error.details?.['retryAfterMs'];
  const told = resultError(
    typeof retryAfterMs === 'number' ? { ...failure, retryAfterMs } : failure,
    status,
    breakerState,
  );
  return {
    requestId: asked.requestId,
    ...(asked.callId === undefined ? {} : { callId: asked.callId }),
    status,
    fromCache: false,
    toolName: asked.toolName,
    durationMs: 0,
    attempts: 0,
    error: told,
  };
}
