/** Builds and checks the envelope of a session's call. Parts that many calls share are built and checked once. */
import { callbackUrlSchema } from '../../shared/callbacks/callback.ts';
import {
  CONTRACT_VERSION,
  contractInvalid,
  type DedupeMode,
  isIdempotencyKey,
  LARGEST_RETRY_BUDGET,
  parseEnvelope,
  type ToolCallEnvelope,
  turnTag,
} from '../../shared/calls/envelope.ts';
import { type StartOptions, startTimeOf } from '../../shared/calls/start-time.ts';
import { invalidPart } from '../../shared/errors/failure.ts';
import { checkObject } from '../../shared/schema/known-members.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { type AnyTool, DEFAULT_NAMESPACE } from '../../shared/tools/tool.ts';
import { didYouMean } from '../../shared/util/text/nearest.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { type Clock, uuidv7 } from '../../shared/util/time.ts';
import { jsonParams } from './params.ts';

export interface CallOptions extends StartOptions {
  /** Names the call: the same key gives the same call. Any text up to 1 KiB. */
  readonly idempotencyKey?: string;
  /** For the whole call from its start on, queue time and retries included; also the limit of each attempt. */
  readonly timeoutMs?: number;
  readonly deadlineAtMs?: number;
  readonly dedupeMode?: DedupeMode;
  /** The model's ID of this call; with a derived key, the same ID replays the same call. */
  readonly toolCallId?: string;
  readonly requestId?: string;
  /** Bounds what tool and operator allow: the smallest wins. */
  readonly retryBudget?: { readonly maxAttempts?: number; readonly maxElapsedMs?: number };
  readonly circuitBreakerHint?: 'tool' | 'dependency' | 'global';
  /** The caller vouches that a second run does no harm. */
  readonly expectedRetrySafe?: boolean;
  readonly correlationId?: string;
  /** The model's turn that makes the call, up to 120 characters: `ctx.turnId`. */
  readonly turnId?: string;
  /** Tags of the call, such as `importance:background` or `taint:mail`. At most 32 of up to 128 characters, the turn's included. */
  readonly requestTags?: readonly string[];
  /** Makes the call `critical`: under overload it is refused last. */
  readonly safetyCritical?: boolean;
  readonly traceparent?: string;
  /** Travels with the call, and is found in `ctx.values`. */
  readonly baggage?: Readonly<Record<string, string>>;
  /** The call's end is posted there (docs/callbacks.md). It is no part of the call's identity: the first submission's holds. */
  readonly callbackUrl?: string;
  /** For a tool that is called by name. Default `tools`. */
  readonly namespace?: string;
  /** Aborting cancels the call. */
  readonly signal?: AbortSignal;
}

export function callTargetOf({ sessionKey, actorId, agentId, tenantId }: SessionRecord): ToolCallEnvelope['target'] {
  return Object.freeze({
    sessionKey,
    actorId,
    ...(agentId !== undefined && { agentId }),
    ...(tenantId !== undefined && { tenantId }),
  });
}

/** Throws `CONTRACT_INVALID` for parameters that are not JSON-serializable, and for invalid options. */
export function callEnvelope(
  target: ToolCallEnvelope['target'],
  tool: AnyTool | string,
  params: unknown,
  options: CallOptions,
  clock: Pick<Clock, 'now'>,
): ToolCallEnvelope {
  checkTool(tool);
  checkObject('options', options);
  checkSignal(options.signal);
  checkCallbackUrl(options.callbackUrl);
  const deadlineAtMs = options.deadlineAtMs ?? deadlineOf(options, clock.now());
  return {
    contractVersion: CONTRACT_VERSION,
    requestId: options.requestId ?? uuidv7(),
    toolName: toolNameOf(tool),
    toolNamespace: typeof tool === 'string' ? (options.namespace ?? DEFAULT_NAMESPACE) : tool?.namespace,
    target: options.correlationId === undefined ? target : { ...target, correlationId: options.correlationId },
    payload: {
      version: '1.0',
      params: jsonParams(params),
      ...(options.idempotencyKey !== undefined && { idempotencyKey: options.idempotencyKey }),
      ...hintsOf(options),
    },
    transport: transportOf(options),
    control: {
      ...(deadlineAtMs !== undefined && { deadlineAtMs }),
      ...tagsOf(options),
    },
    trace: traceOf(options),
    // The spread comes last: V8 adds properties after a spread slowly, and every call is built here.
    ...(options.toolCallId !== undefined && { toolCallId: options.toolCallId }),
  };
}

/** Throws `CONTRACT_INVALID` for an invalid start. */
function deadlineOf(options: CallOptions, nowMs: number): number | undefined {
  const start = startTimeOf(options, nowMs);
  const { timeoutMs = Number.NaN } = options;
  // The schema of the call reports any other value.
  return Number.isInteger(timeoutMs) ? (start?.atMs ?? nowMs) + timeoutMs : undefined;
}

/** Throws `CONTRACT_INVALID`. */
function checkCallbackUrl(url: string | undefined): void {
  if (url === undefined) return;
  const { error } = callbackUrlSchema.safeParse(url);
  if (error !== undefined)
    throw contractInvalid([{ path: 'options.callbackUrl', message: error.issues[0]?.message ?? 'must be a URL' }]);
}

/** Accepts signals of other realms and of libraries as well. */
/** Throws `CONTRACT_INVALID`. It comes first: after the submission, a wrong signal would fail what runs. */
export function checkSignal(signal: AbortSignal | null | undefined): void {
  if (!isSignal(signal))
    throw contractInvalid([{ path: 'options.signal', message: `must be an AbortSignal; got ${typeof signal}` }]);
}

function isSignal(signal: AbortSignal | null | undefined): boolean {
  return signal === undefined || signal === null || typeof signal.addEventListener === 'function';
}

/** Plain JavaScript may pass anything, such as a name that a module does not export. */
function checkTool(tool: unknown): void {
  if (typeof tool === 'string' || typeof (tool as Partial<AnyTool> | null | undefined)?.name === 'string') return;
  throw invalidPart('The tool', 'tool', `must be what defineTool returns, or a name; got ${quoteValue(tool)}`);
}

/** The tool's name; '' for a value that is no tool, which untyped callers may pass. */
export function toolNameOf(tool: AnyTool | string | undefined): string {
  return typeof tool === 'string' ? tool : String(tool?.name ?? '');
}

/** The transport of most calls. */
const PLAIN_TRANSPORT: ToolCallEnvelope['transport'] = Object.freeze({
  dedupeMode: 'enforced',
  retryBudget: LARGEST_RETRY_BUDGET,
});

function transportOf({ dedupeMode, retryBudget, circuitBreakerHint }: CallOptions): ToolCallEnvelope['transport'] {
  if (dedupeMode === undefined && retryBudget === undefined && circuitBreakerHint === undefined) return PLAIN_TRANSPORT;
  return {
    dedupeMode: dedupeMode ?? PLAIN_TRANSPORT.dedupeMode,
    retryBudget: {
      maxAttempts: retryBudget?.maxAttempts ?? LARGEST_RETRY_BUDGET.maxAttempts,
      maxElapsedMs: retryBudget?.maxElapsedMs ?? LARGEST_RETRY_BUDGET.maxElapsedMs,
    },
    ...(circuitBreakerHint !== undefined && { circuitBreakerHint }),
  };
}

function hintsOf({
  timeoutMs,
  expectedRetrySafe,
  safetyCritical,
}: CallOptions): Pick<ToolCallEnvelope['payload'], 'callHints'> | undefined {
  if (timeoutMs === undefined && expectedRetrySafe === undefined && safetyCritical === undefined) return undefined;
  return {
    callHints: {
      ...(safetyCritical !== undefined && { safetyCritical }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(expectedRetrySafe !== undefined && { expectedRetrySafe }),
    },
  };
}

/** The turn's tag comes first, so that a tag of the caller cannot replace it. */
function tagsOf({ turnId, requestTags }: CallOptions): Pick<ToolCallEnvelope['control'], 'requestTags'> | undefined {
  if (turnId === undefined && requestTags === undefined) return undefined;
  return { requestTags: [...(turnId === undefined ? [] : [turnTag(turnId)]), ...(requestTags ?? [])] };
}

function traceOf({ traceparent, baggage }: CallOptions): ToolCallEnvelope['trace'] {
  if (baggage === undefined) return traceparent === undefined ? {} : { traceparent };
  return traceparent === undefined ? { baggage } : { traceparent, baggage };
}

/** Limits of the cache: models invent names of tools and namespaces. */
const MAX_NAMES = 1_000;
const MAX_NAMESPACES = 20;

/** Caches the tools whose plain envelopes were checked. A plain envelope has no option except a key. */
export class FormCache {
  readonly #checkedNames = new Map<string, Set<string>>();

  /** Throws `CONTRACT_INVALID`. For a cached tool, only the key of a plain envelope is checked. */
  check(envelope: ToolCallEnvelope, options: CallOptions): void {
    const { toolNamespace, toolName, payload } = envelope;
    const plain = isPlain(options);
    const { idempotencyKey: key } = payload;
    const isKnown = plain && this.#checkedNames.get(toolNamespace)?.has(toolName) === true;
    if (isKnown && (key === undefined || isIdempotencyKey(key))) return;
    if (!plain) checkNames(options);
    parseEnvelope(envelope);
    if (plain) this.#addChecked(toolNamespace, toolName);
  }

  #addChecked(namespace: string, name: string): void {
    const checked = this.#checkedNames;
    if (checked.size > MAX_NAMESPACES || (checked.get(namespace)?.size ?? 0) >= MAX_NAMES) checked.clear();
    checked.set(namespace, (checked.get(namespace) ?? new Set()).add(name));
  }
}

const OPTIONS: Readonly<Record<keyof CallOptions, true>> = {
  idempotencyKey: true,
  timeoutMs: true,
  deadlineAtMs: true,
  dedupeMode: true,
  toolCallId: true,
  requestId: true,
  retryBudget: true,
  circuitBreakerHint: true,
  expectedRetrySafe: true,
  correlationId: true,
  turnId: true,
  requestTags: true,
  safetyCritical: true,
  traceparent: true,
  baggage: true,
  callbackUrl: true,
  namespace: true,
  signal: true,
  startAfterMs: true,
  startAt: true,
};

/** Refuses unknown options: an untyped caller that misspells `idempotencyKey` would have no key. */
function checkNames(options: CallOptions): void {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(OPTIONS, name));
  if (unknown === undefined) return;
  const hint = didYouMean(unknown, Object.keys(OPTIONS));
  throw contractInvalid([{ path: `options.${unknown}`, message: `is not an option of a call${hint && ` (${hint})`}` }]);
}

/** Whether no option except the key becomes part of the envelope. */
function isPlain(options: CallOptions): boolean {
  for (const name of Object.keys(options))
    if (name !== 'idempotencyKey' && name !== 'signal' && options[name as keyof CallOptions] !== undefined)
      return false;
  return true;
}
