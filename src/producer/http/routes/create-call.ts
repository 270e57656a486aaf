/** `POST /v1/calls`: submits a call, as an envelope or in the short form, now or for later. */
import { z } from 'zod';
import { callbackUrlSchema } from '../../../shared/callbacks/callback.ts';
import {
  contractInvalid,
  contractSchemas,
  idempotencyKeySchema,
  jsonObjectSchema,
  parseKeyHeader,
  restoreProtoMember,
  type ToolCallEnvelope,
  toolCallEnvelopeSchema,
  validTraceparent,
} from '../../../shared/calls/envelope.ts';
import {
  isDelayed,
  type StartOptions,
  type StartTime,
  startInPast,
  startTimeOf,
  withStartTime,
} from '../../../shared/calls/start-time.ts';
import { invalidInput } from '../../../shared/errors/failure.ts';
import { WITH_RECEIVED, zodIssues } from '../../../shared/schema/zod-issues.ts';
import { splitName } from '../../../shared/tools/tool.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { MAX_DELAY_MS } from '../../../shared/util/time.ts';
import type { Submission, SubmitOptions } from '../../calls/submission.ts';
import type { Pawl } from '../../client.ts';
import type { BatchSubmission } from '../../groups/batches.ts';
import { type Caller, checkTenant } from '../core/access.ts';
import { invalidBody } from '../core/errors.ts';
import { optionalQueryNumber, route } from '../core/route.ts';
import { submitterOf } from './approvals.ts';
import { answeredResponse, DEFAULT_WAIT_MS, MAX_ANSWER_WAIT_MS, pendingResponse } from './calls.ts';
import { findOrOpenSession } from './sessions.ts';

/** The short form of a call. The session fills in the other fields. */
const shortCallSchema = z.strictObject({
  /** `name` or `namespace.name`. */
  tool: z.string().min(1).max(256),
  params: jsonObjectSchema.default({}),
  session: z.string().min(1).max(256),
  idempotencyKey: idempotencyKeySchema.optional(),
  timeoutMs: z
    .number()
    .int()
    .positive()
    .max(7 * 24 * 3_600_000)
    .optional(),
  dedupeMode: z.enum(['enforced', 'bestEffort', 'disabled']).optional(),
  namespace: z.string().min(1).max(256).optional(),
  toolCallId: z.string().min(1).max(256).optional(),
  turnId: z.string().min(1).max(120).optional(),
  /** The turn is one of the contract's 32. */
  requestTags: z.array(z.string().max(128)).max(31).optional(),
  safetyCritical: z.boolean().optional(),
  traceparent: z.string().max(128).optional(),
  baggage: z.record(z.string(), z.string()).optional(),
});

/** The short form with the fields that are extracted before it is parsed, for the documentation. `startTimeOf` explains a wrong start better. */
export const documentedCallSchema = shortCallSchema.extend({
  callbackUrl: callbackUrlSchema.optional(),
  startAfterMs: z.number().int().min(0).max(MAX_DELAY_MS).optional(),
  startAt: z.iso.datetime({ offset: true }).optional(),
});

/** The envelope may have the URL of a callback beside it. */
function documentedEnvelope(): object {
  const { $id: _id, ...schema } = contractSchemas().toolCallEnvelope as { $id: string; properties: object };
  const callbackUrl = { type: 'string', description: 'The end of the call is posted there.' };
  return { ...schema, properties: { ...schema.properties, callbackUrl } };
}

const startQuery = {
  startAfterMs: z.string().optional().meta({
    type: 'integer',
    minimum: 0,
    maximum: MAX_DELAY_MS,
    description: 'The call starts this many milliseconds from now.',
  }),
  startAt: z
    .string()
    .optional()
    .meta({ format: 'date-time', description: 'The call starts at this time: ISO 8601, with Z or an offset.' }),
};

/** The header with the idempotency key of the call, batch or plan that a request creates. */
export const keyHeader = {
  'idempotency-key': z.string().transform(parseKeyHeader).pipe(idempotencyKeySchema).optional(),
};

export const createCall = route('post /v1/calls', {
  operationId: 'createCall',
  permission: 'use',
  summary: 'Submits a call, as an envelope or in the short form, and waits for its end.',
  query: z.strictObject({
    wait: optionalQueryNumber({
      max: MAX_ANSWER_WAIT_MS,
      fallback: `${DEFAULT_WAIT_MS}, or 0 for a delayed call`,
      unit: 'milliseconds',
    }),
    ...startQuery,
  }),
  headers: z.object({ ...keyHeader, traceparent: z.string().optional() }),
  body: jsonObjectSchema,
  bodySchema: {
    oneOf: [z.toJSONSchema(documentedCallSchema, { io: 'input' }), documentedEnvelope()],
  },
  responses: {
    200: ['The result envelope, whatever its status', 'ToolResultEnvelope'],
    202: ['The call goes on: its ID, state and phase', 'CallUnderWay'],
  },
  async handle({ pawl, longPolls, checkAccepting, query, headers, body: requestBody, caller, onDisconnect }) {
    await checkAccepting();
    const { start, ...withoutStart } = extractStart(requestBody, query);
    const { callback, ...withoutCallback } = extractCallback(withoutStart.body);
    const body = withTrace(withHeaderKey(withoutCallback.body, headers['idempotency-key']), headers.traceparent);
    const options = { ...submitterOf(caller), start: parseStart(pawl, start, body), ...callback };
    const submission = await submit(pawl, caller, body, options);
    if (submission.kind === 'answered') return answeredResponse(pawl, submission, body);
    // A caller that delays a call seldom waits for its end.
    const waitMs = query.wait ?? (isDelayed(start) ? 0 : DEFAULT_WAIT_MS);
    const result = await longPolls.waitForResult(submission, waitMs, onDisconnect);
    return result === undefined ? pendingResponse(pawl, submission) : { status: 200, body: result };
  },
});

type Body = Readonly<Record<string, unknown>>;

/** Copies the header's key into the contract's field for it. Throws `CONTRACT_INVALID` when the body has another key. */
function withHeaderKey(body: Body, key: string | undefined): Body {
  if (isShort(body)) return withIdempotencyKey(body, key);
  const { payload } = body;
  return isObject(payload) ? { ...body, payload: withIdempotencyKey(payload, key) } : body;
}

/** A body with the header's key. Throws `CONTRACT_INVALID` when the body names another key. */
export function withIdempotencyKey<Keyed extends object>(body: Keyed, key: string | undefined): Keyed {
  if (key === undefined) return body;
  const { idempotencyKey: bodyKey = key } = body as { readonly idempotencyKey?: unknown };
  if (bodyKey === key) return { ...body, idempotencyKey: key };
  throw invalidBody(
    'names another idempotencyKey than the header Idempotency-Key: give one of them, or the same twice',
  );
}

/** Adds the `traceparent` header to the body, unless the body has one. */
function withTrace(body: Body, header: string | undefined): Body {
  const traceparent = validTraceparent(header);
  if (traceparent === undefined) return body;
  if (isShort(body)) return { traceparent, ...body };
  const { trace } = body;
  return isObject(trace) ? { ...body, trace: { traceparent, ...trace } } : body;
}

/**
 * Extracts the start of the call from the query or, in the short form, from the body. The types of the start are unchecked:
 * `startTimeOf` checks them.
 */
function extractStart(
  requestBody: Body,
  query: { readonly startAfterMs?: string | undefined; readonly startAt?: string | undefined },
): { readonly start: StartOptions; readonly body: Body } {
  const { startAfterMs: afterText, startAt: atText } = query;
  const queryStart = {
    ...(afterText !== undefined && { startAfterMs: /^-?\d+(\.\d+)?$/.test(afterText) ? Number(afterText) : afterText }),
    // A plus sign that was not escaped arrives as a space.
    ...(atText !== undefined && { startAt: atText.replace(/ (?=\d{2}:?\d{2}$)/, '+') }),
  };
  if (!isShort(requestBody)) return { start: queryStart as StartOptions, body: requestBody };
  const { startAfterMs, startAt, ...body } = requestBody;
  const bodyStart = defined({ startAfterMs, startAt });
  const [duplicate] = Object.keys(bodyStart).filter((name) => Object.hasOwn(queryStart, name));
  if (duplicate !== undefined)
    throw contractInvalid([{ path: duplicate, message: 'is in the query and in the body: give it once' }]);
  return { start: { ...queryStart, ...bodyStart } as StartOptions, body };
}

/** Extracts the URL of the call's callback from the body. Throws `CONTRACT_INVALID` for an unusable URL. */
function extractCallback({ callbackUrl, ...body }: Body): {
  readonly callback: Pick<SubmitOptions, 'callbackUrl'>;
  readonly body: Body;
} {
  if (callbackUrl === undefined) return { callback: {}, body };
  const { data, error } = callbackUrlSchema.safeParse(callbackUrl);
  if (error !== undefined)
    throw contractInvalid([{ path: 'callbackUrl', message: error.issues[0]?.message ?? 'must be a URL' }]);
  return { callback: { callbackUrl: data }, body };
}

/** Throws `CONTRACT_INVALID` for an invalid start, and for one in the past, unless the request may repeat an earlier one. */
function parseStart(pawl: Pawl, options: StartOptions, body: Body): StartTime | undefined {
  const nowMs = pawl.backend.clock.now();
  const start = startTimeOf(options, nowMs);
  const { idempotencyKey } = isShort(body) ? body : ((body['payload'] ?? {}) as Body);
  const isNamed = idempotencyKey !== undefined || body['toolCallId'] !== undefined || body['requestId'] !== undefined;
  if (start?.isPast === true && !isNamed) throw startInPast(start.atMs, nowMs);
  return start;
}

async function submit(
  pawl: Pawl,
  caller: Caller,
  body: Body,
  options: SubmitOptions & { readonly start: StartTime | undefined },
): Promise<Submission> {
  if (isShort(body)) return pawl.submit(await shortEnvelope(pawl, caller, body, options.start), options);
  // A caller without a tenant may submit for any tenant; the producer checks the rest.
  if (caller.tenantId === undefined) return pawl.submit(body, options);
  const parsed = toolCallEnvelopeSchema.safeParse(body);
  if (!parsed.success) return pawl.submit(body);
  const { target, payload } = parsed.data;
  const params = (body as ToolCallEnvelope).payload.params;
  if (target.tenantId !== undefined) checkTenant(caller, target.tenantId, 'The tenantId');
  await findOrOpenSession(pawl, caller, target);
  return pawl.submit(
    {
      ...parsed.data,
      payload: { ...payload, params: restoreProtoMember(payload.params, params) },
      target: { ...target, tenantId: caller.tenantId },
    },
    options,
  );
}

const ENVELOPE_FIELDS = ['contractVersion', 'toolName', 'toolNamespace', 'target', 'payload', 'transport', 'control'];

function isShort(body: Body): boolean {
  return !ENVELOPE_FIELDS.some((field) => Object.hasOwn(body, field));
}

/** The envelope of a call in its short form, whose session is opened if there is none. Throws `CONTRACT_INVALID`. */
async function shortEnvelope(pawl: Pawl, caller: Caller, body: unknown, start?: StartTime): Promise<ToolCallEnvelope> {
  const parsed = shortCallSchema.safeParse(body, WITH_RECEIVED);
  if (!parsed.success)
    throw invalidInput('The call is neither an envelope nor its short form', zodIssues(parsed.error), 'the call');
  const { tool, params: parsedParams, session: sessionKey, namespace, ...optionalFields } = parsed.data;
  const params = restoreProtoMember(parsedParams, (body as { readonly params?: unknown }).params);
  const session = await findOrOpenSession(pawl, caller, { sessionKey });
  const toolName = namespace === undefined ? splitName(tool) : { namespace, name: tool };
  const options = { ...defined(optionalFields), namespace: toolName.namespace };
  return session.envelope(toolName.name, params, withStartTime(options, start));
}

/** An entry of a batch, in the short form. Throws `CONTRACT_INVALID`. */
export async function batchEntry(pawl: Pawl, caller: Caller, requestBody: Body): Promise<BatchSubmission> {
  const { start: startOptions, ...rest } = extractStart(requestBody, {});
  const { callback, body } = extractCallback(rest.body);
  const start = parseStart(pawl, startOptions, body);
  const envelope = await shortEnvelope(pawl, caller, body, start);
  return { envelope, ...callback, ...(start !== undefined && { startAtMs: start.atMs }) };
}
