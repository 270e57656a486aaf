/** `/v1/calls`: submit, await, read, cancel and resolve calls. */
import { z } from 'zod';
import { SOUGHT_STATES } from '../../../shared/calls/call-state.ts';
import {
  contractSchemas,
  idempotencyKeySchema,
  jsonObjectSchema,
  keyOfHeader,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
  toolCallEnvelopeSchema,
  traceparentIn,
  withEveryName,
} from '../../../shared/calls/envelope.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { nearest } from '../../../shared/schema/schema.ts';
import type { CallRecord } from '../../../shared/store/calls/call-record.ts';
import { DEFAULT_NAMESPACE, splitName } from '../../../shared/tools/tool.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import { type CallFilter, findCalls } from '../../calls/find-calls.ts';
import type { Submission } from '../../calls/submission.ts';
import type { Pawl } from '../../client.ts';
import { type Caller, checkTenant, seesTenant } from '../core/access.ts';
import type { ApiDeps } from '../core/api-deps.ts';
import { type ErrorCode, HttpError, invalidBody } from '../core/errors.ts';
import { queryNumber, type Route, type RouteRequest, type RouteResponse, route } from '../core/route.ts';
import { contentAround, sendParts } from '../core/stream-response.ts';
import { callSummary, callView, phaseOf } from '../core/views.ts';
import { nameOf, submitterOf } from './approvals.ts';
import { sessionFor, sessionOrNew } from './sessions.ts';

const DEFAULT_WAIT_MS = 30_000;
const MAX_WAIT_MS = 5 * 60_000;
const MAX_LISTED = 1_000;

/** The short form of a call. The session fills in the other fields. */
export const shortCallSchema = z.strictObject({
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

const keyHeaderSchema = z.string().transform(keyOfHeader).pipe(idempotencyKeySchema);

const resolutionSchema = z.discriminatedUnion('as', [
  z.strictObject({ as: z.literal('succeeded'), output: z.unknown().optional() }),
  z.strictObject({ as: z.literal('failed') }),
  z.strictObject({ as: z.literal('retry') }),
]);

type CallRouteDeps = Pick<ApiDeps, 'pawl' | 'longPolls' | 'checkAccepting'>;

export function callRoutes(deps: CallRouteDeps): readonly Route[] {
  return [
    createCall(deps),
    listCalls(deps),
    getCall(deps),
    getCallOutput(deps),
    cancelCall(deps),
    compensateCall(deps),
    resolveCall(deps),
  ];
}

function createCall({ pawl, longPolls, checkAccepting }: CallRouteDeps): Route {
  return route({
    method: 'post',
    path: '/v1/calls',
    operationId: 'createCall',
    permission: 'use',
    summary: 'Submits a call, as an envelope or in the short form, and waits for its end.',
    query: z.strictObject({
      wait: queryNumber({ max: MAX_WAIT_MS, fallback: DEFAULT_WAIT_MS, unit: 'milliseconds' }),
    }),
    headers: z.object({ 'idempotency-key': keyHeaderSchema.optional(), traceparent: z.string().optional() }),
    body: jsonObjectSchema,
    bodySchema: {
      oneOf: [z.toJSONSchema(shortCallSchema, { io: 'input' }), contractSchemas().toolCallEnvelope],
    },
    responses: {
      200: ['The result envelope, whatever its status', 'ToolResultEnvelope'],
      202: ['The call goes on: its ID, state and phase', 'CallUnderWay'],
    },
    async handle({ query, headers, body: sent, caller, onGone }) {
      await checkAccepting();
      const body = withTrace(withKey(sent, headers['idempotency-key']), headers.traceparent);
      const submission = await submit(pawl, caller, body);
      if (submission.kind === 'answered') return replyTo(pawl, submission, body);
      const result = await longPolls.until(submission, query.wait, onGone);
      return result === undefined ? underWay(pawl, submission) : { status: 200, body: result };
    },
  });
}

function listCalls({ pawl }: CallRouteDeps): Route {
  return route({
    method: 'get',
    path: '/v1/calls',
    operationId: 'listCalls',
    permission: 'use',
    summary:
      'Calls, the newest first; with `session`, `tool` or `state`, those alone; `truncated` when older ones were not looked at.',
    query: z.strictObject({
      session: z.string().min(1).max(256).optional(),
      /** A part of `namespace.name`. */
      tool: z.string().min(1).max(256).optional(),
      /** `unresolved`: those in doubt. */
      state: z.enum(SOUGHT_STATES).optional(),
      limit: queryNumber({ max: MAX_LISTED, fallback: 50, unit: 'calls' }),
    }),
    responses: { 200: ['Calls, without their results', 'CallList'] },
    handle: (request) => list(pawl, request),
  });
}

function getCall({ pawl, longPolls }: CallRouteDeps): Route {
  return route({
    method: 'get',
    path: '/v1/calls/{callId}',
    operationId: 'getCall',
    permission: 'use',
    summary: 'One call, with its attempts and, once it has ended, its result; `wait` waits for that.',
    query: z.strictObject({ wait: queryNumber({ max: MAX_WAIT_MS, fallback: 0, unit: 'milliseconds' }) }),
    responses: { 200: ['The call', 'Call'] },
    async handle({ path, query, caller, onGone }) {
      const record = await callFor(pawl, caller, path['callId'] ?? '');
      const { callId } = record;
      if (query.wait > 0 && record.state === 'inflight')
        await longPolls.within(pawl.result(callId, { waitMs: query.wait }), query.wait, onGone);
      const now = query.wait > 0 ? await callFor(pawl, caller, callId) : record;
      const progress = now.phase === 'running' ? (await pawl.backend.ledger.progress(callId)).at(-1)?.event : undefined;
      return { status: 200, body: { ...callView(now), ...(progress === undefined ? {} : { progress }) } };
    },
  });
}

function getCallOutput({ pawl }: CallRouteDeps): Route {
  return route({
    method: 'get',
    path: '/v1/calls/{callId}/output',
    operationId: 'getCallOutput',
    permission: 'use',
    summary:
      'The whole output of a call, where its result shows only a part (`output.metadata.whole`), as it comes from the store.',
    responses: { 200: ['The output, as the tool returned it', 'WholeOutput'] },
    async handle({ path, caller }) {
      const { callId } = await callFor(pawl, caller, path['callId'] ?? '', 'glance');
      const content = contentAround(await pawl.outputStream(callId));
      return {
        status: 200,
        headers: { 'Content-Type': 'application/json; charset=utf-8' },
        stream: (response) => sendParts(response, content),
      };
    },
  });
}

function cancelCall({ pawl }: CallRouteDeps): Route {
  return route({
    method: 'delete',
    path: '/v1/calls/{callId}',
    operationId: 'cancelCall',
    permission: 'use',
    summary: 'Cancels a call wherever it is, and says how that ended.',
    responses: { 200: ['The settlement, and the result if there is one', 'Cancellation'] },
    async handle({ path, caller }) {
      const { callId } = await callFor(pawl, caller, path['callId'] ?? '', 'glance');
      return { status: 200, body: await pawl.cancel(callId, nameOf(caller)) };
    },
  });
}

function compensateCall({ pawl, longPolls, checkAccepting }: CallRouteDeps): Route {
  return route({
    method: 'post',
    path: '/v1/calls/{callId}/compensation',
    operationId: 'compensateCall',
    permission: 'use',
    summary:
      'Undoes a call that succeeded, once, with its tool’s `compensate`: as a call of its own, waited for like one.',
    query: z.strictObject({
      wait: queryNumber({ max: MAX_WAIT_MS, fallback: DEFAULT_WAIT_MS, unit: 'milliseconds' }),
    }),
    responses: {
      200: ['The result envelope, whatever its status', 'ToolResultEnvelope'],
      202: ['The undoing goes on: its ID, state and phase', 'CallUnderWay'],
    },
    async handle({ path, query, caller, onGone }) {
      await checkAccepting();
      const { callId, request } = await callFor(pawl, caller, path['callId'] ?? '', 'glance');
      const session = await sessionFor(pawl, caller, request.envelope.target.sessionKey);
      const submission = await pawl.submit(await session.compensation(callId), submitterOf(caller));
      if (submission.kind === 'answered') return replyTo(pawl, submission, {});
      const result = await longPolls.until(submission, query.wait, onGone);
      return result === undefined ? underWay(pawl, submission) : { status: 200, body: result };
    },
  });
}

function resolveCall({ pawl }: CallRouteDeps): Route {
  return route({
    method: 'post',
    path: '/v1/calls/{callId}/resolution',
    operationId: 'resolveCall',
    permission: 'operate',
    summary: 'Gives a call with an unknown outcome a known one, or lets it run again.',
    body: resolutionSchema,
    responses: { 200: ['The call', 'Call'] },
    async handle({ path, body, caller }) {
      const { callId } = await callFor(pawl, caller, path['callId'] ?? '', 'glance');
      return { status: 200, body: callView(await pawl.resolve(callId, body, nameOf(caller))) };
    },
  });
}

/** Moves the header's key into the field that the contract has for it. Throws `CONTRACT_INVALID` when the body names another key. */
function withKey(body: Readonly<Record<string, unknown>>, key: string | undefined): Readonly<Record<string, unknown>> {
  if (key === undefined) return body;
  const payload = isShort(body) ? body : (body['payload'] as Readonly<Record<string, unknown>> | undefined);
  if (typeof payload !== 'object' || payload === null) return body;
  const { idempotencyKey: named = key } = payload;
  if (named !== key)
    throw invalidBody(
      'names another idempotencyKey than the header Idempotency-Key: give one of them, or the same twice',
    );
  return isShort(body) ? { ...body, idempotencyKey: key } : { ...body, payload: { ...payload, idempotencyKey: key } };
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

async function submit(pawl: Pawl, caller: Caller, body: Readonly<Record<string, unknown>>): Promise<Submission> {
  if (isShort(body)) return submitShort(pawl, caller, body);
  // A caller without a tenant may submit for any tenant; the producer checks the rest.
  if (caller.tenantId === undefined) return pawl.submit(body, submitterOf(caller));
  const parsed = toolCallEnvelopeSchema.safeParse(body);
  if (!parsed.success) return pawl.submit(body);
  const { target, payload } = parsed.data;
  const given = (body as ToolCallEnvelope).payload.params;
  if (target.tenantId !== undefined) checkTenant(caller, target.tenantId, 'The tenantId');
  await sessionOrNew(pawl, caller, target);
  return pawl.submit(
    {
      ...parsed.data,
      payload: { ...payload, params: withEveryName(payload.params, given) },
      target: { ...target, tenantId: caller.tenantId },
    },
    submitterOf(caller),
  );
}

const ENVELOPE_FIELDS = ['contractVersion', 'toolName', 'toolNamespace', 'target', 'payload', 'transport', 'control'];

function isShort(body: Readonly<Record<string, unknown>>): boolean {
  return !ENVELOPE_FIELDS.some((field) => Object.hasOwn(body, field));
}

async function submitShort(pawl: Pawl, caller: Caller, body: unknown): Promise<Submission> {
  return pawl.submit(await shortEnvelope(pawl, caller, body), submitterOf(caller));
}

/** The envelope of a call in its short form, whose session is opened if there is none. Throws `CONTRACT_INVALID`. */
export async function shortEnvelope(pawl: Pawl, caller: Caller, body: unknown): Promise<ToolCallEnvelope> {
  const parsed = shortCallSchema.safeParse(body);
  if (!parsed.success) {
    const issues = parsed.error.issues.map(({ path, message }) => ({ path: path.map(String).join('.'), message }));
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
  return session.envelope(named.name, params, { ...options, namespace: named.namespace });
}

/** The result of a call is 200, that of an open circuit included. A refusal before the call existed is an error status. */
async function replyTo(
  pawl: Pawl,
  { callId, result }: Extract<Submission, { readonly kind: 'answered' }>,
  body: Readonly<Record<string, unknown>>,
): Promise<RouteResponse> {
  if (!isRefusal(result, callId)) return { status: 200, body: result };
  const { code, message, issues, retryAfterMs } = result.error;
  throw new HttpError(code as ErrorCode, message, {
    issues,
    callId,
    ...(retryAfterMs === undefined ? {} : { headers: { 'Retry-After': String(Math.ceil(retryAfterMs / 1_000)) } }),
    suggestions:
      code === 'UNKNOWN_TOOL' ? await suggestionsFor(pawl, String(body['tool'] ?? result.toolName)) : undefined,
  });
}

function isRefusal(
  result: ToolResultEnvelope,
  callId: string | undefined,
): result is Exclude<ToolResultEnvelope, { readonly status: 'success' }> {
  if (result.status === 'success' || result.status === 'circuit_open' || result.fromCache) return false;
  return callId === undefined || result.error.code === 'IDEMPOTENCY_CONFLICT' || result.error.code === 'IN_FLIGHT';
}

async function suggestionsFor(pawl: Pawl, tool: string): Promise<readonly string[]> {
  const { tools } = await pawl.catalogue();
  const names = tools.map(({ namespace, name }) => (namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`));
  return nearest(startOf(tool, 256), [...new Set(names)]);
}

/** The response when the waiting has ended before the call. */
async function underWay(
  pawl: Pawl,
  { callId, requestId }: Extract<Submission, { kind: 'pending' }>,
): Promise<RouteResponse> {
  const record = (await pawl.read(callId)) ?? { state: 'inflight' as const };
  return {
    status: 202,
    headers: { Location: `/v1/calls/${callId}` },
    body: {
      callId,
      requestId,
      state: record.state,
      phase: phaseOf(record),
    },
  };
}

/**
 * A call that this caller may see; `glance` leaves out its large fields. Throws `UNKNOWN_CALL`, also for another tenant's call, so that
 * an ID reveals nothing.
 */
export async function callFor(
  pawl: Pawl,
  caller: Caller,
  callId: string,
  how: 'read' | 'glance' = 'read',
): Promise<CallRecord> {
  const record = await pawl.backend.ledger[how](callId);
  if (record === undefined || !seesTenant(caller, record.request.envelope.target.tenantId))
    throw new PawlError(
      'UNKNOWN_CALL',
      `There is no call ${JSON.stringify(startOf(callId, 100))}, or its record has expired.`,
    );
  return record;
}

async function list(
  pawl: Pawl,
  { query, caller }: RouteRequest<{ readonly session?: string | undefined; readonly limit: number } & CallFilter>,
): Promise<RouteResponse> {
  const { session, tool, state, limit } = query;
  if (session !== undefined) await sessionFor(pawl, caller, session);
  const { records, complete } = await findCalls(pawl.backend.shards.partitions(), pawl.backend.ledger, {
    limit,
    ...(session === undefined ? {} : { sessionKey: session }),
    ...(tool === undefined ? {} : { tool }),
    ...(state === undefined ? {} : { state }),
    isSeen: ({ request }) => seesTenant(caller, request.envelope.target.tenantId),
  });
  return { status: 200, body: { calls: records.map(callSummary), ...(complete ? {} : { truncated: true }) } };
}
