/** `POST /v1/calls`: submits a call, as an envelope or in the short form, now or for later. */
import { z } from 'zod';
import { callbackUrlSchema } from '../../../shared/callbacks/callback.ts';
import {
  contractInvalid,
  contractSchemas,
  idempotencyKeySchema,
  jsonObjectSchema,
  keyOfHeader,
  type ToolCallEnvelope,
  toolCallEnvelopeSchema,
  traceparentIn,
  withEveryName,
} from '../../../shared/calls/envelope.ts';
import {
  isDelayed,
  type StartOptions,
  type StartTime,
  startIsPast,
  startingAt,
  startTimeOf,
} from '../../../shared/calls/start-time.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { EXPLAINED, zodIssues } from '../../../shared/schema/zod-issues.ts';
import { splitName } from '../../../shared/tools/tool.ts';
import { MAX_DELAY_MS } from '../../../shared/util/time.ts';
import type { Submission, SubmitOptions } from '../../calls/submission.ts';
import type { Pawl } from '../../client.ts';
import type { BatchSubmission } from '../../groups/batches.ts';
import { type Caller, checkTenant } from '../core/access.ts';
import { invalidBody } from '../core/errors.ts';
import { optionalQueryNumber, type Route, route } from '../core/route.ts';
import { submitterOf } from './approvals.ts';
import { type CallRouteDeps, DEFAULT_WAIT_MS, MAX_ANSWER_WAIT_MS, replyTo, underWay } from './calls.ts';
import { sessionOrNew } from './sessions.ts';

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

/** The start in the short form's body, which is taken out before: `startTimeOf` says more than a type does. */
export const describedCallSchema = shortCallSchema.extend({
  callbackUrl: callbackUrlSchema.optional(),
  startAfterMs: z.number().int().min(0).max(MAX_DELAY_MS).optional(),
  startAt: z.iso.datetime({ offset: true }).optional(),
});

/** The envelope may have the URL of a callback beside it. */
function describedEnvelope(): object {
  const { $id: _own, ...schema } = contractSchemas().toolCallEnvelope as { $id: string; properties: object };
  const callbackUrl = { type: 'string', description: 'The end of the call is posted there.' };
  return { ...schema, properties: { ...schema.properties, callbackUrl } };
}

const startQuery = {
  startAfterMs: z
    .string()
    .optional()
    .meta({ type: 'integer', minimum: 0, maximum: MAX_DELAY_MS, description: 'The call starts so many ms from now.' }),
  startAt: z
    .string()
    .optional()
    .meta({ format: 'date-time', description: 'The call starts at this time: ISO 8601, with Z or an offset.' }),
};

/** The header that names what a request makes. */
export const keyHeader = { 'idempotency-key': z.string().transform(keyOfHeader).pipe(idempotencyKeySchema).optional() };

export function createCall({ pawl, longPolls, checkAccepting }: CallRouteDeps): Route {
  return route('post /v1/calls', {
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
      oneOf: [z.toJSONSchema(describedCallSchema, { io: 'input' }), describedEnvelope()],
    },
    responses: {
      200: ['The result envelope, whatever its status', 'ToolResultEnvelope'],
      202: ['The call goes on: its ID, state and phase', 'CallUnderWay'],
    },
    async handle({ query, headers, body: sent, caller, onDisconnect }) {
      await checkAccepting();
      const { start, ...named } = takeStart(sent, query);
      const { callback, ...own } = takeCallback(named.body);
      const body = withTrace(withKey(own.body, headers['idempotency-key']), headers.traceparent);
      const options = { ...submitterOf(caller), start: startFor(pawl, start, body), ...callback };
      const submission = await submit(pawl, caller, body, options);
      if (submission.kind === 'answered') return replyTo(pawl, submission, body);
      // A caller that delays a call seldom waits for its end.
      const waitMs = query.wait ?? (isDelayed(start) ? 0 : DEFAULT_WAIT_MS);
      const result = await longPolls.until(submission, waitMs, onDisconnect);
      return result === undefined ? underWay(pawl, submission) : { status: 200, body: result };
    },
  });
}

/** Moves the header's key into the field that the contract has for it. Throws `CONTRACT_INVALID` when the body names another key. */
function withKey(body: Readonly<Record<string, unknown>>, key: string | undefined): Readonly<Record<string, unknown>> {
  if (isShort(body)) return keyedBy(body, key);
  const payload = body['payload'] as Readonly<Record<string, unknown>> | undefined;
  return typeof payload !== 'object' || payload === null ? body : { ...body, payload: keyedBy(payload, key) };
}

/** A body with the header's key. Throws `CONTRACT_INVALID` when the body names another key. */
export function keyedBy<Body extends object>(body: Body, key: string | undefined): Body {
  if (key === undefined) return body;
  const { idempotencyKey: named = key } = body as { readonly idempotencyKey?: unknown };
  if (named === key) return { ...body, idempotencyKey: key };
  throw invalidBody(
    'names another idempotencyKey than the header Idempotency-Key: give one of them, or the same twice',
  );
}

/** Adds the `traceparent` header to the body, unless the body has one. */
function withTrace(
  body: Readonly<Record<string, unknown>>,
  header: string | undefined,
): Readonly<Record<string, unknown>> {
  const traceparent = traceparentIn(header);
  if (traceparent === undefined) return body;
  if (isShort(body)) return { traceparent, ...body };
  const { trace } = body;
  return typeof trace === 'object' && trace !== null ? { ...body, trace: { traceparent, ...trace } } : body;
}

/**
 * The start of the call, from the query or, in the short form, from the body, and the body without it. The types are claimed, not known:
 * `startTimeOf` checks them.
 */
function takeStart(
  sent: Readonly<Record<string, unknown>>,
  query: { readonly startAfterMs?: string | undefined; readonly startAt?: string | undefined },
): { readonly start: StartOptions; readonly body: Readonly<Record<string, unknown>> } {
  const { startAfterMs: text, startAt: at } = query;
  const asked = {
    ...(text === undefined ? {} : { startAfterMs: /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text }),
    // A plus sign that was not escaped arrives as a space.
    ...(at === undefined ? {} : { startAt: at.replace(/ (?=\d{2}:?\d{2}$)/, '+') }),
  };
  if (!isShort(sent)) return { start: asked as StartOptions, body: sent };
  const { startAfterMs, startAt, ...body } = sent;
  const own = {
    ...(startAfterMs === undefined ? {} : { startAfterMs }),
    ...(startAt === undefined ? {} : { startAt }),
  };
  const [twice] = Object.keys(own).filter((name) => Object.hasOwn(asked, name));
  if (twice !== undefined)
    throw contractInvalid([{ path: twice, message: 'is given in the query and in the body: give it once' }]);
  return { start: { ...asked, ...own } as StartOptions, body };
}

/** The URL of the call's callback, and the body without it. Throws `CONTRACT_INVALID` for a URL that cannot be one. */
function takeCallback({ callbackUrl, ...body }: Readonly<Record<string, unknown>>): {
  readonly callback: Pick<SubmitOptions, 'callbackUrl'>;
  readonly body: Readonly<Record<string, unknown>>;
} {
  if (callbackUrl === undefined) return { callback: {}, body };
  const { data, error } = callbackUrlSchema.safeParse(callbackUrl);
  if (error !== undefined)
    throw contractInvalid([{ path: 'callbackUrl', message: error.issues[0]?.message ?? 'must be a URL' }]);
  return { callback: { callbackUrl: data }, body };
}

/** Throws `CONTRACT_INVALID` for a start that is none, and for one in the past, unless the call may have been made before. */
function startFor(pawl: Pawl, options: StartOptions, body: Readonly<Record<string, unknown>>): StartTime | undefined {
  const nowMs = pawl.backend.clock.now();
  const start = startTimeOf(options, nowMs);
  const { idempotencyKey } = isShort(body) ? body : ((body['payload'] ?? {}) as Readonly<Record<string, unknown>>);
  const isNamed = idempotencyKey !== undefined || body['toolCallId'] !== undefined || body['requestId'] !== undefined;
  if (start?.isPast === true && !isNamed) throw startIsPast(start.atMs, nowMs);
  return start;
}

async function submit(
  pawl: Pawl,
  caller: Caller,
  body: Readonly<Record<string, unknown>>,
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
  await sessionOrNew(pawl, caller, target);
  return pawl.submit(
    {
      ...parsed.data,
      payload: { ...payload, params: withEveryName(payload.params, params) },
      target: { ...target, tenantId: caller.tenantId },
    },
    options,
  );
}

const ENVELOPE_FIELDS = ['contractVersion', 'toolName', 'toolNamespace', 'target', 'payload', 'transport', 'control'];

function isShort(body: Readonly<Record<string, unknown>>): boolean {
  return !ENVELOPE_FIELDS.some((field) => Object.hasOwn(body, field));
}

/** The envelope of a call in its short form, whose session is opened if there is none. Throws `CONTRACT_INVALID`. */
async function shortEnvelope(pawl: Pawl, caller: Caller, body: unknown, start?: StartTime): Promise<ToolCallEnvelope> {
  const parsed = shortCallSchema.safeParse(body, EXPLAINED);
  if (!parsed.success) {
    const issues = zodIssues(parsed.error);
    const listed = issues.map(({ path, message }) => `${path === '' ? 'the call' : path}: ${message}`).join('; ');
    throw new PawlError('CONTRACT_INVALID', `The call is neither an envelope nor its short form: ${listed}.`, {
      issues,
    });
  }
  const { tool, params: parsedParams, session: sessionKey, namespace, ...given } = parsed.data;
  const params = withEveryName(parsedParams, (body as { readonly params?: unknown }).params);
  const session = await sessionOrNew(pawl, caller, { sessionKey });
  const named = namespace === undefined ? splitName(tool) : { namespace, name: tool };
  const options = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return session.envelope(named.name, params, startingAt({ ...options, namespace: named.namespace }, start));
}

/** An entry of a batch, in the short form. Throws `CONTRACT_INVALID`. */
export async function batchEntry(
  pawl: Pawl,
  caller: Caller,
  sent: Readonly<Record<string, unknown>>,
): Promise<BatchSubmission> {
  const { start: named, ...rest } = takeStart(sent, {});
  const { callback, body } = takeCallback(rest.body);
  const start = startFor(pawl, named, body);
  const envelope = await shortEnvelope(pawl, caller, body, start);
  return { envelope, ...callback, ...(start === undefined ? {} : { startAtMs: start.atMs }) };
}
