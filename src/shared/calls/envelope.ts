/** The contract: `ToolCallEnvelope` 1.1 goes in, `ToolResultEnvelope` comes out. */
import { z } from 'zod';
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import { type Issue, invalidInput, PawlError } from '../errors/failure.ts';
import { RESULT_STATUSES, type ResultStatus } from '../errors/result-status.ts';
import { canonicalJson } from '../schema/canonical-json.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { isObject } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_WAIT_MS } from '../util/time.ts';

export const CONTRACT_VERSION = '1.1';
/** The longest idempotency key, in UTF-8 bytes. */
export const MAX_KEY_BYTES = 1_024;

const OBJECT = { type: 'object' as const, propertyNames: { type: 'string' as const }, additionalProperties: {} };

/** An object as it was sent. zod's own records lose a member that is called `__proto__`. */
export const jsonObjectSchema = z
  .unknown()
  .refine((value) => isObject(value), { error: 'must be an object', abort: true })
  .meta(OBJECT) as unknown as z.ZodType<Record<string, unknown>>;

/** Parameters of a call that is made later: a value that no call may have is found at once. */
export function laterParamsSchema(maxLength = Number.POSITIVE_INFINITY): z.ZodType<Record<string, unknown>> {
  return jsonObjectSchema
    .superRefine((params, context) => {
      const { length, fault } = canonicalLength(params);
      const isTooLong = length > maxLength;
      const message = isTooLong ? `is ${length} characters long as JSON; at most ${maxLength} are allowed` : fault;
      if (message !== undefined) context.addIssue({ code: 'custom', message });
    })
    .meta(OBJECT);
}

function canonicalLength(params: unknown): { readonly length: number; readonly fault?: string } {
  try {
    return { length: canonicalJson(params).length };
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    return { length: 0, fault: error.issues?.[0]?.message ?? error.message };
  }
}

const UUIDV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;
const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i;
/** The form of every name of a record. Texts without a UTF-8 form of their own would share one record. */
export const identifierSchema = z
  .string()
  .min(1)
  .max(256)
  .refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' });
/** A `traceparent` of W3C's Trace Context; undefined for any other value, which the standard says to ignore. */
export function validTraceparent(original: unknown): string | undefined {
  const isValid = typeof original === 'string' && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(original);
  return isValid ? original : undefined;
}

const milliseconds = z.number().int().positive().max(MAX_WAIT_MS);

export const idempotencyKeySchema = z
  .string()
  .min(1, 'must not be empty')
  .refine((key) => Buffer.byteLength(key) <= MAX_KEY_BYTES, {
    error: `must be at most ${MAX_KEY_BYTES} bytes of UTF-8`,
  });

/** Reads a string in quotes as RFC 9651 writes it (draft-ietf-httpapi-idempotency-key-header). A bare one is taken as it is. */
export function parseKeyHeader(text: string): string {
  return /^"(?:[^"\\]|\\["\\])*"$/.test(text) ? text.slice(1, -1).replaceAll(/\\(.)/g, '$1') : text;
}

/** The check of `idempotencyKeySchema`, without a list of faults. */
export function isIdempotencyKey(key: unknown): key is string {
  return typeof key === 'string' && key !== '' && Buffer.byteLength(key) <= MAX_KEY_BYTES;
}

/** The largest budget of the contract. It is the default, so that a caller without a budget does not lower the tool's and operator's bounds. */
export const LARGEST_RETRY_BUDGET = Object.freeze({ maxAttempts: 100, maxElapsedMs: 24 * 3_600_000 });

export const toolCallEnvelopeSchema = z.strictObject({
  contractVersion: z.literal(CONTRACT_VERSION),
  requestId: z.string().refine((id) => UUIDV7.test(id) || ULID.test(id), { error: 'must be a UUIDv7 or a ULID' }),
  toolCallId: identifierSchema.optional(),
  toolName: identifierSchema,
  toolNamespace: identifierSchema,
  target: z.strictObject({
    agentId: identifierSchema.optional(),
    sessionKey: identifierSchema,
    actorId: identifierSchema,
    workspaceId: identifierSchema.optional(),
    correlationId: identifierSchema.optional(),
    tenantId: identifierSchema.optional(),
  }),
  payload: z.strictObject({
    version: z.literal('1.0'),
    params: jsonObjectSchema,
    idempotencyKey: idempotencyKeySchema.optional(),
    callHints: z
      .strictObject({
        safetyCritical: z.boolean().optional(),
        expectedRetrySafe: z.boolean().optional(),
        timeoutMs: milliseconds.optional(),
      })
      .optional(),
  }),
  transport: z.strictObject({
    dedupeMode: z.enum(['enforced', 'bestEffort', 'disabled']),
    retryBudget: z.strictObject({
      maxAttempts: z.number().int().min(1).max(LARGEST_RETRY_BUDGET.maxAttempts),
      maxElapsedMs: z.number().int().min(0).max(LARGEST_RETRY_BUDGET.maxElapsedMs),
    }),
    circuitBreakerHint: z.enum(['tool', 'dependency', 'global']).optional(),
  }),
  control: z.strictObject({
    deadlineAtMs: z.number().int().positive().optional(),
    requestTags: z.array(z.string().max(128)).max(32).optional(),
    fromHook: z.string().max(256).optional(),
  }),
  trace: z.strictObject({
    traceparent: z.string().max(128).optional(),
    baggage: z.record(z.string(), z.string()).optional(),
  }),
});
export type ToolCallEnvelope = z.output<typeof toolCallEnvelopeSchema>;
export type DedupeMode = ToolCallEnvelope['transport']['dedupeMode'];

const circuitStateSchema = z.enum(['CLOSED', 'OPEN', 'HALF_OPEN', 'FORCED_OPEN']) satisfies z.ZodType<CircuitState>;

const resultErrorSchema = z.object({
  code: z.string(),
  message: z.string(),
  /** True when another try could help. */
  retriable: z.boolean(),
  /** True when Pawl used up the attempts, or the same call would fail again. */
  terminal: z.boolean(),
  breakerState: circuitStateSchema.optional(),
  /** The faults of the request. */
  issues: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
  retryAfterMs: z.number().optional(),
  /** The call failed and may have had its effect all the same: calling again could have it twice. */
  mayHaveHappened: z.literal(true).optional(),
});

export const toolResultEnvelopeSchema = z.object({
  requestId: z.string(),
  callId: z.string().optional(),
  status: z.enum(RESULT_STATUSES),
  fromCache: z.boolean(),
  cache: z
    .object({ matchedOn: z.enum(['inflight', 'completed']), ageMs: z.number(), keyFingerprint: z.string() })
    .optional(),
  toolName: z.string(),
  durationMs: z.number(),
  attempts: z.number().int(),
  output: z.object({ content: z.unknown(), metadata: z.record(z.string(), z.unknown()).optional() }).optional(),
  error: resultErrorSchema.optional(),
  retriedBy: z
    .array(z.object({ attempt: z.number().int(), delayMs: z.number(), reasonCode: z.string(), latencyMs: z.number() }))
    .optional(),
});

export type ResultError = z.output<typeof resultErrorSchema>;
export type RetriedBy = NonNullable<z.output<typeof toolResultEnvelopeSchema>['retriedBy']>[number];

interface ResultBase {
  readonly requestId: string;
  /** The name of the call in every command and URL; absent when the call was refused before it existed. */
  readonly callId?: string;
  readonly fromCache: boolean;
  readonly cache?: {
    readonly matchedOn: 'inflight' | 'completed';
    readonly ageMs: number;
    readonly keyFingerprint: string;
  };
  readonly toolName: string;
  readonly durationMs: number;
  readonly attempts: number;
  readonly retriedBy?: readonly RetriedBy[];
}

/** The result of a call. `status === 'success'` narrows to the one variant with `output`. */
export type ToolResultEnvelope<Output = unknown> =
  | (ResultBase & {
      readonly status: 'success';
      readonly output: { readonly content: Output; readonly metadata?: Readonly<Record<string, unknown>> };
      readonly error?: never;
    })
  | (ResultBase & {
      readonly status: Exclude<ResultStatus, 'success'>;
      readonly error: ResultError;
      readonly output?: never;
    });

/** Validates an envelope; throws `CONTRACT_INVALID` with the path of every fault. */
export function parseEnvelope(value: unknown): ToolCallEnvelope {
  const parsed = toolCallEnvelopeSchema.safeParse(value, WITH_RECEIVED);
  if (!parsed.success) throw contractInvalid(zodIssues(parsed.error));
  const { data } = parsed;
  const params = restoreProtoMember(data.payload.params, (value as ToolCallEnvelope).payload.params);
  return params === data.payload.params ? data : { ...data, payload: { ...data.payload, params } };
}

/** Restores a member that is called `__proto__`, which the schema library leaves out. */
export function restoreProtoMember<Params extends Readonly<Record<string, unknown>>>(
  parsed: Params,
  original: unknown,
): Params {
  return typeof original === 'object' && original !== null && Object.hasOwn(original, '__proto__')
    ? { ...(original as Params) }
    : parsed;
}

const TURN_TAG = 'turn:';
/** A longer turn would not fit into a tag. */
export const MAX_TURN_ID = 120;

/** The tag of `control.requestTags` that names the conversation turn of a call: `turn:ID`. */
export function turnTag(turnId: string): string {
  return `${TURN_TAG}${turnId}`;
}

/** The conversation turn of a call, where its caller names one. */
export function turnOf({ control }: Pick<ToolCallEnvelope, 'control'>): string | undefined {
  return control.requestTags?.find((tag) => tag.startsWith(TURN_TAG))?.slice(TURN_TAG.length);
}

/** Whether the caller vouches that a second run of the call does no harm. */
export function isExpectedRetrySafe({ payload }: Pick<ToolCallEnvelope, 'payload'>): boolean {
  return payload.callHints?.expectedRetrySafe ?? false;
}

export function hookCallerOf(envelope: Pick<ToolCallEnvelope, 'requestId' | 'target' | 'control'>) {
  const { sessionKey, actorId, agentId, tenantId } = envelope.target;
  const optional = defined({ agentId, tenantId, turnId: turnOf(envelope) });
  return { requestId: envelope.requestId, sessionKey, actorId, ...optional };
}

export function contractInvalid(issues: readonly Issue[]): PawlError {
  return invalidInput(`The call does not follow contract ${CONTRACT_VERSION}`, issues, 'the envelope');
}

/** The contract's JSON Schemas, as published with the package. */
export function contractSchemas(): { toolCallEnvelope: object; toolResultEnvelope: object } {
  return {
    toolCallEnvelope: {
      $id: 'https://pawl.dev/schemas/tool-call-envelope-1.1.json',
      title: 'ToolCallEnvelope',
      ...z.toJSONSchema(toolCallEnvelopeSchema, { target: 'draft-2020-12', io: 'input' }),
    },
    toolResultEnvelope: {
      $id: 'https://pawl.dev/schemas/tool-result-envelope-1.1.json',
      title: 'ToolResultEnvelope',
      ...z.toJSONSchema(toolResultEnvelopeSchema, { target: 'draft-2020-12' }),
    },
  };
}
