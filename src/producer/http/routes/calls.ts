/** `/v1/calls`: submit, await, read, cancel and resolve calls. */
import { z } from 'zod';
import { phaseOf, SEARCHABLE_STATES } from '../../../shared/calls/call-state.ts';
import type { ToolResultEnvelope } from '../../../shared/calls/envelope.ts';
import { isRefusedForOther } from '../../../shared/calls/outcome.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import type { CallRecord } from '../../../shared/store/calls/call-record.ts';
import { isLost } from '../../../shared/store/segments/segments.ts';
import { DEFAULT_NAMESPACE } from '../../../shared/tools/tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { nearest } from '../../../shared/util/text/nearest.ts';
import { quoteValue } from '../../../shared/util/text/quote-value.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import { type CallFilter, findCalls } from '../../calls/find-calls.ts';
import { resolutionSchema } from '../../calls/resolution.ts';
import type { Submission } from '../../calls/submission.ts';
import type { Pawl } from '../../client.ts';
import { type Caller, seesTenant } from '../core/access.ts';
import { type ErrorCode, HttpError } from '../core/errors.ts';
import { queryNumber, type Route, type RouteRequest, type RouteResponse, route } from '../core/route.ts';
import { sendPieces, wrapAsContent } from '../core/stream-response.ts';
import { callSummary, callView } from '../core/views.ts';
import { callerName, submitterOf } from './approvals.ts';
import { sessionFor } from './sessions.ts';

export const DEFAULT_WAIT_MS = 30_000;
export const MAX_ANSWER_WAIT_MS = 5 * 60_000;

export const callRoutes: readonly Route[] = [
  route('get /v1/calls', {
    operationId: 'listCalls',
    permission: 'use',
    summary:
      'Calls, the newest first, filtered by `session`, `tool` and `state`; `truncated` when older ones were not searched.',
    query: z.strictObject({
      session: z.string().min(1).max(256).optional(),
      /** A part of `namespace.name`. */
      tool: z.string().min(1).max(256).optional(),
      /** `unresolved` selects calls in doubt. */
      state: z.enum(SEARCHABLE_STATES).optional(),
      limit: queryNumber({ max: 1_000, fallback: 50, unit: 'calls' }),
    }),
    responses: { 200: ['Calls, without their results', 'CallList'] },
    answer: list,
  }),
  route('get /v1/calls/{callId}', {
    operationId: 'getCall',
    permission: 'use',
    summary: 'One call, with its attempts and, once it has ended, its result; `wait` waits for the end.',
    query: z.strictObject({ wait: queryNumber({ max: MAX_ANSWER_WAIT_MS, fallback: 0, unit: 'milliseconds' }) }),
    responses: { 200: ['The call', 'Call'] },
    async answer({ pawl, longPolls, path, query, caller, onDisconnect }) {
      const record = await callFor(pawl, caller, path.callId);
      const { callId } = record;
      if (query.wait > 0 && record.state === 'inflight')
        await longPolls.waitFor(pawl.result(callId, { waitMs: query.wait }), query.wait, onDisconnect);
      const current = query.wait > 0 ? await callFor(pawl, caller, callId) : record;
      const reports = current.phase === 'running' || current.phase === 'pending';
      const progress = reports ? (await pawl.backend.ledger.progress(callId)).at(-1)?.event : undefined;
      return { ...callView(current), ...defined({ progress }) };
    },
  }),
  route('get /v1/calls/{callId}/output', {
    operationId: 'getCallOutput',
    permission: 'use',
    summary:
      'The full output of a call whose result has only a part of it (`output.metadata.whole`), streamed from the store.',
    responses: { 200: ['The output, as the tool returned it', 'WholeOutput'] },
    async handle({ pawl, path, caller }) {
      const { callId } = await callFor(pawl, caller, path.callId, 'readBrief');
      const content = wrapAsContent(await pawl.outputStream(callId));
      return {
        status: 200,
        headers: { 'Content-Type': 'application/json; charset=utf-8' },
        stream: (response) => sendPieces(response, content),
      };
    },
  }),
  route('delete /v1/calls/{callId}', {
    operationId: 'cancelCall',
    permission: 'use',
    summary: 'Cancels a call in any state, and returns the settlement.',
    responses: { 200: ['The settlement, and the result if there is one', 'Cancellation'] },
    async answer({ pawl, path, caller }) {
      const { callId } = await callFor(pawl, caller, path.callId, 'readBrief');
      return pawl.cancel(callId, callerName(caller));
    },
  }),
  route('post /v1/calls/{callId}/compensation', {
    operationId: 'compensateCall',
    permission: 'use',
    summary: 'Undoes a successful call, once, with its tool’s `compensate`. The compensation is a call of its own.',
    query: z.strictObject({
      wait: queryNumber({ max: MAX_ANSWER_WAIT_MS, fallback: DEFAULT_WAIT_MS, unit: 'milliseconds' }),
    }),
    responses: {
      200: ['The result envelope, whatever its status', 'ToolResultEnvelope'],
      202: ['The compensation goes on: its ID, state and phase', 'CallUnderWay'],
    },
    async handle({ pawl, longPolls, checkAccepting, path, query, caller, onDisconnect }) {
      await checkAccepting();
      const { callId, request } = await callFor(pawl, caller, path.callId, 'readBrief');
      const session = await sessionFor(pawl, caller, request.envelope.target.sessionKey);
      const submission = await pawl.submit(await session.compensation(callId), submitterOf(caller));
      if (submission.kind === 'answered') return answeredResponse(pawl, submission, {});
      const result = await longPolls.waitForResult(submission, query.wait, onDisconnect);
      return result === undefined ? pendingResponse(pawl, submission) : { status: 200, body: result };
    },
  }),
  route('post /v1/calls/{callId}/resolution', {
    operationId: 'resolveCall',
    permission: 'operate',
    summary: 'Sets the outcome of a call in doubt, or lets it run again.',
    body: resolutionSchema,
    responses: { 200: ['The call', 'Call'] },
    async answer({ pawl, path, body, caller }) {
      const { callId } = await callFor(pawl, caller, path.callId, 'readBrief');
      return callView(await pawl.resolve(callId, body, callerName(caller)));
    },
  }),
];

/** The result of a call is 200, that of an open circuit included. A refusal before the call existed is an error status. */
export async function answeredResponse(
  pawl: Pawl,
  { callId, result }: Extract<Submission, { readonly kind: 'answered' }>,
  body: Readonly<Record<string, unknown>>,
): Promise<RouteResponse> {
  if (!isRefusal(result, callId)) return { status: 200, body: result };
  const { code, message, issues, retryAfterMs } = result.error;
  throw new HttpError(code as ErrorCode, message, {
    issues,
    callId,
    ...(retryAfterMs !== undefined && { headers: { 'Retry-After': String(Math.ceil(retryAfterMs / 1_000)) } }),
    suggestions:
      code === 'UNKNOWN_TOOL' ? await suggestionsFor(pawl, String(body['tool'] ?? result.toolName)) : undefined,
  });
}

function isRefusal(
  result: ToolResultEnvelope,
  callId: string | undefined,
): result is Exclude<ToolResultEnvelope, { readonly status: 'success' }> {
  if (result.status === 'success' || result.status === 'circuit_open' || result.fromCache) return false;
  return callId === undefined || isRefusedForOther(result.error);
}

async function suggestionsFor(pawl: Pawl, tool: string): Promise<readonly string[]> {
  const { tools } = await pawl.catalogue();
  const names = tools.map(({ namespace, name }) => (namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`));
  return nearest(startOf(tool, 256), [...new Set(names)]);
}

/** The response when the wait ended before the call. */
export async function pendingResponse(
  pawl: Pawl,
  { callId, requestId }: Extract<Submission, { kind: 'pending' }>,
): Promise<RouteResponse> {
  const record = (await pawl.read(callId)) ?? { state: 'inflight' as const };
  return {
    status: 202,
    headers: { Location: `/v1/calls/${callId}` },
    body: { callId, requestId, state: record.state, phase: phaseOf(record) },
  };
}

/**
 * A call that this caller may see; `readBrief` leaves out its large fields. Throws `UNKNOWN_CALL`, also for another tenant's call, so that
 * an ID reveals nothing.
 */
export async function callFor(
  pawl: Pawl,
  caller: Caller,
  callId: string,
  readMethod: 'read' | 'readBrief' = 'read',
): Promise<CallRecord> {
  const record = await pawl.backend.ledger[readMethod](callId).catch((error: unknown) => {
    // A lost segment leaves the call's tenant unknown, so a tenant's token sees no such call.
    if (caller.tenantId === undefined || !isLost(error)) throw error;
  });
  if (record === undefined || !seesTenant(caller, record.request.envelope.target.tenantId))
    throw new PawlError('UNKNOWN_CALL', `There is no call ${quoteValue(callId)}, or its record has expired.`);
  return record;
}

async function list({
  pawl,
  query,
  caller,
}: RouteRequest<{ readonly session?: string | undefined; readonly limit: number } & CallFilter>): Promise<object> {
  const { session, tool, state, limit } = query;
  if (session !== undefined) await sessionFor(pawl, caller, session);
  const { records, complete } = await findCalls(pawl.backend.shards.partitions(), pawl.backend.ledger, {
    limit,
    ...defined({ sessionKey: session, tool, state }),
    isVisible: ({ request }) => seesTenant(caller, request.envelope.target.tenantId),
  });
  return { calls: records.map(callSummary), ...(complete ? {} : { truncated: true }) };
}
