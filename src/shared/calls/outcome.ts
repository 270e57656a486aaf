/** The outcome of a call, as the ledger keeps it: written once, replayed byte for byte. A caller's envelope adds that caller's request. */
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import { type Failure, failureOf, type PawlError } from '../errors/failure.ts';
import type { FailureStatus } from '../errors/result-status.ts';
import type { ToolAnnotations } from '../tools/tool.ts';
import { isLong, jsonText } from '../util/json/json-stream.ts';
import { type LargeText, LargeTextWriter } from '../util/json/large-json.ts';
import { capOutput } from '../util/text/truncate-output.ts';
import type { AttemptRecord, CallState, Settlement } from './call-state.ts';
import type { ResultError, RetriedBy, ToolResultEnvelope } from './envelope.ts';

interface OutcomeBase {
  readonly toolName: string;
  /** From the first attempt's start to the end. */
  readonly durationMs: number;
  readonly attempts: number;
  readonly retriedBy?: readonly RetriedBy[];
  /** The bytes of the output that callers see; the record holds the whole. */
  readonly shownBytes?: number;
  /** The bytes of a long content's JSON, of which callers see a part. The count saves a second serialization. */
  readonly contentBytes?: number;
  /** The way in which a cancelled call ended. */
  readonly settlement?: Settlement;
}

export interface Output {
  readonly content: unknown;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** The reason of a soft failure whose output is empty. Providers refuse a request with an error that has no text. */
export function reasonOfSoftFailure({ metadata }: Output): string {
  return String(metadata?.['display'] ?? 'The tool answered that it failed, and gave no reason.');
}

/** `status === 'success'` narrows to the one variant with `output`. */
export type Outcome =
  | (OutcomeBase & { readonly status: 'success'; readonly output: Output; readonly error?: never })
  | (OutcomeBase & { readonly status: FailureStatus; readonly error?: ResultError; readonly output?: never });

/** The error of an outcome or an envelope. An `error` is terminal unless another call could succeed; used-up attempts always are. */
export function resultError(failure: Failure, status: FailureStatus, breakerState?: CircuitState): ResultError {
  const error: ResultError = {
    code: failure.code,
    message: failure.message,
    retriable: failure.retriable || status === 'circuit_open',
    terminal: status === 'retry_exhausted' || (status === 'error' && !failure.retriable),
    ...(breakerState !== undefined && { breakerState }),
    ...(failure.issues !== undefined && { issues: [...failure.issues] }),
    ...(failure.retryAfterMs !== undefined && { retryAfterMs: failure.retryAfterMs }),
  };
  return failure.code === 'OUTCOME_UNKNOWN' ? markInDoubt(error) : error;
}

const IN_DOUBT_ADVICE = 'It may have had its effect: find out before you call it again.';

/** The error of a call that may have had its effect. It is not retriable, so that neither a model nor a `bestEffort` caller runs it again. */
export function markInDoubt(error: ResultError): ResultError {
  if (error.mayHaveHappened === true) return error;
  const message = `${error.message}${/[.!?…]$/.test(error.message) ? '' : '.'} ${IN_DOUBT_ADVICE}`;
  return { ...error, message, retriable: false, mayHaveHappened: true };
}

/**
 * Whether an operator can resolve a call with this outcome: it may have had its effect, or it was quarantined. `isUnresolved` of the
 * Lua scripts is the same rule.
 */
export function isUnresolved(outcome: Pick<Outcome, 'error'> | undefined): boolean {
  const error = outcome?.error;
  return error?.mayHaveHappened === true || error?.code === 'POISONED';
}

/** Whether a result holds text from outside: its tool says so, or an open-world tool ended with an error. */
export function isTainted(
  { output, error, attempts }: Pick<Outcome | ToolResultEnvelope, 'output' | 'error' | 'attempts'>,
  { annotations }: { readonly annotations: ToolAnnotations },
): boolean {
  if (error !== undefined) return attempts > 0 && annotations.openWorldHint === true;
  return output?.metadata?.['tainted'] === true;
}

/**
 * A success as it is stored: its duration, its content, and the fields that most successes do not have. The record's state and request hold
 * the rest. Other outcomes are stored as they are.
 */
type StoredSuccess = readonly [
  number,
  unknown,
  (Partial<Omit<OutcomeBase, 'toolName' | 'durationMs'>> & Pick<Output, 'metadata'>)?,
];

/** The stored form of an outcome, which `decodeOutcome` reads. */
function encodeOutcome(outcome: Outcome): object {
  if (outcome.status !== 'success') return outcome;
  const { toolName: _tool, durationMs, attempts, status: _status, error: _error, output, ...extraFields } = outcome;
  const { content, metadata } = output;
  const rest = { ...(attempts === 1 ? {} : { attempts }), ...extraFields, ...(metadata !== undefined && { metadata }) };
  const stored: StoredSuccess = Object.keys(rest).length === 0 ? [durationMs, content] : [durationMs, content, rest];
  return stored;
}

/** An outcome from its stored form. The stored form of a success has no `toolName`. */
export function decodeOutcome(stored: unknown): Outcome {
  if (!Array.isArray(stored)) return stored as Outcome;
  const [durationMs, content, { metadata, attempts = 1, ...rest } = {}] = stored as unknown as StoredSuccess;
  const output = metadata === undefined ? { content } : { content, metadata };
  return { toolName: '', durationMs, status: 'success', attempts, output, ...rest };
}

/**
 * The text of a long outcome (`isLong`), with its output at the end; undefined when it has more than `maxBytes`. Throws what
 * `JSON.stringify` throws.
 */
export async function longOutcomeText({ output, ...rest }: Outcome, maxBytes: number): Promise<LargeText | undefined> {
  const writer = new LargeTextWriter(maxBytes);
  writer.add(`${JSON.stringify(rest).slice(0, -1)},"output":{"content":`);
  const contentStart = writer.bytes;
  await writer.addJson(output?.content);
  const contentEnd = writer.bytes;
  if (output?.metadata !== undefined) {
    writer.add(',"metadata":');
    await writer.addJson(output.metadata);
  }
  writer.add(rest.shownBytes === undefined ? '}}' : `},"contentBytes":${contentEnd - contentStart}}`);
  return writer.isFull ? undefined : writer.end([contentStart, contentEnd]);
}

/** The text of an outcome; undefined when it has more than `maxBytes`. Throws what `JSON.stringify` throws. */
export function outcomeText(outcome: Outcome, maxBytes: number): string | undefined | Promise<LargeText | undefined> {
  if (isLong(outcome)) return longOutcomeText(outcome, maxBytes);
  const text = jsonText(encodeOutcome(outcome));
  // Bytes are counted only where the length in characters does not decide.
  return text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes ? text : undefined;
}

export function outcomeState(outcome: Outcome): Exclude<CallState, 'inflight'> {
  if (outcome.status === 'success') return 'done';
  return outcome.settlement === undefined ? 'failed' : 'cancelled';
}

interface AnsweredRequest {
  readonly requestId: string;
  /** The name of the call's tool. An outcome that replaces an unverified one has no name. */
  readonly toolName: string;
  readonly callId: string;
  readonly cache?: { readonly matchedOn: 'inflight' | 'completed'; readonly ageMs: number };
}

/** The envelope for one of the callers. */
export function envelopeOf(outcome: Outcome, request: AnsweredRequest): ToolResultEnvelope {
  const { settlement, shownBytes, contentBytes, status, output, error, toolName, ...rest } = outcome;
  const { requestId, callId, cache } = request;
  // Every call passes here, and an object literal with the spread at its end is built fastest.
  const callerFields = {
    toolName: toolName || request.toolName,
    ...(cache !== undefined && { cache: { keyFingerprint: callId, ...cache } }),
    ...rest,
  };
  const fromCache = cache !== undefined;
  if (status === 'success')
    return { requestId, callId, status, output: visibleOutput(outcome, callId), fromCache, ...callerFields };
  return {
    requestId,
    callId,
    status,
    error: error ?? resultError(failureOf('RESULT_INVALID'), status),
    fromCache,
    ...callerFields,
  };
}

function visibleOutput({ output, shownBytes, contentBytes }: Outcome, callId: string) {
  if (output === undefined) return { content: null };
  const { content, whole } = capOutput(output.content, shownBytes, callId, contentBytes);
  return whole === undefined ? output : { content, metadata: { ...output.metadata, whole } };
}

/** The envelope of a call that was refused before it existed. It takes no `Error`, because a frequent refusal needs no stack. */
export function refusal(
  error: Pick<PawlError, 'code' | 'message' | 'issues' | 'details'>,
  request: { readonly requestId: string; readonly toolName: string; readonly callId?: string },
  status: FailureStatus = 'error',
  breakerState?: CircuitState,
): Exclude<ToolResultEnvelope, { readonly status: 'success' }> {
  const failure = failureOf(error.code, error.message, error.issues === undefined ? {} : { issues: error.issues });
  const retryAfterMs = error.details?.['retryAfterMs'];
  const refusalError = resultError(
    typeof retryAfterMs === 'number' ? { ...failure, retryAfterMs } : failure,
    status,
    breakerState,
  );
  return {
    requestId: request.requestId,
    ...(request.callId !== undefined && { callId: request.callId }),
    status,
    fromCache: false,
    toolName: request.toolName,
    durationMs: 0,
    attempts: 0,
    error: refusalError,
  };
}

/** The outcome of a call that ends without another attempt. `earlier`: its attempts. */
export function outcomeWithoutRun(
  toolName: string,
  failure: Failure,
  {
    status = 'error',
    earlier = [],
    breakerState,
  }: {
    readonly status?: FailureStatus;
    readonly earlier?: readonly AttemptRecord[];
    readonly breakerState?: CircuitState;
  } = {},
): Outcome {
  const error = resultError(failure, status, breakerState);
  return { status, toolName, durationMs: 0, attempts: earlier.length, error, ...retriedBy(earlier) };
}

/** Whether a call was refused because another one has its key: the call ID of the refusal names that other call. */
export function isRefusedForOther(error: Pick<ResultError, 'code'> | undefined): boolean {
  return error?.code === 'IDEMPOTENCY_CONFLICT' || error?.code === 'IN_FLIGHT';
}

/** The reasons why the attempts before the last one failed. */
export function retriedBy(earlier: readonly AttemptRecord[]): Pick<Outcome, 'retriedBy'> {
  // An attempt that left a vote did not fail.
  const failed = earlier.filter(({ vote }) => vote === undefined);
  if (failed.length === 0) return {};
  return {
    retriedBy: failed.map((attempt) => ({
      attempt: attempt.attempt,
      delayMs: attempt.delayMs ?? 0,
      reasonCode: attempt.errorCode ?? 'LEASE_LOST',
      latencyMs: attempt.finishedAtMs - attempt.startedAtMs,
    })),
  };
}
