/** `/v1/tool-clients`: programs of any language that run tools themselves. */
import { z } from 'zod';
import { CLIENT_LEASE, clientAnswerSchema, MAX_CLIENT_TOOLS } from '../../../shared/connectors/client-tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

const runningSchema = z.array(z.string().regex(/^[\w.:-]{1,256}$/, 'must be call IDs')).max(10_000);

export const toolClientRoutes: readonly Route[] = [
  route('post /v1/tool-clients', {
    operationId: 'registerToolClient',
    permission: 'oversee',
    summary: 'Registers a client that runs calls of declared dynamic tools, until its lease expires.',
    body: z.strictObject({
      tools: z.array(z.string().min(1).max(256)).min(1).max(MAX_CLIENT_TOOLS),
      leaseMs: z.number().default(CLIENT_LEASE.defaultMs),
    }),
    responses: { 201: ['The client. Its ID is its credential', 'ToolClient'] },
    answer: ({ pawl, body, caller }) =>
      pawl.toolClients.join(body.tools, { leaseMs: body.leaseMs, by: callerName(caller) }),
  }),
  route('post /v1/tool-clients/{clientId}/next', {
    operationId: 'nextToolClientCall',
    permission: 'oversee',
    summary: 'The next call for the client; waits for one up to `?wait=MS`, and renews the lease.',
    query: z.strictObject({ wait: queryNumber({ max: 300_000, fallback: 30_000, unit: 'milliseconds' }) }),
    body: z.strictObject({ running: runningSchema }),
    responses: { 200: ['A call, or none; and calls to stop', 'ToolClientNews'] },
    async answer({ pawl, longPolls, path, query, body, onDisconnect }) {
      const waitEnd = new AbortController();
      const nextCall = pawl.toolClients.next(path.clientId, {
        running: body.running,
        waitMs: query.wait,
        signal: waitEnd.signal,
      });
      // A closing server ends the wait and answers with the current state.
      await longPolls.waitFor(nextCall, query.wait, onDisconnect).finally(() => waitEnd.abort());
      return nextCall;
    },
  }),
  route('post /v1/tool-clients/{clientId}/heartbeat', {
    operationId: 'renewToolClient',
    permission: 'oversee',
    summary: 'Renews the lease of the client, and returns the calls that it must stop.',
    body: z.strictObject({ running: runningSchema }),
    responses: { 200: ['Calls to stop', 'ToolClientNews'] },
    answer: ({ pawl, path, body }) => pawl.toolClients.heartbeat(path.clientId, body.running),
  }),
  route('post /v1/tool-clients/{clientId}/calls/{callId}/progress', {
    operationId: 'reportToolClientProgress',
    permission: 'oversee',
    summary: 'Reports the progress of a call.',
    body: z.strictObject({
      fence: z.number().int().min(1),
      progress: z.number(),
      total: z.number().optional(),
      message: z.string().max(2_000).optional(),
    }),
    responses: { 200: ['Whether a caller still waits for the call', 'ProgressWanted'] },
    async answer({ pawl, path, body: { fence, progress, total, message } }) {
      const report = { progress, ...defined({ total, message }) };
      return { wanted: await pawl.toolClients.progress(path.clientId, path.callId, fence, report) };
    },
  }),
  route('post /v1/tool-clients/{clientId}/calls/{callId}/result', {
    operationId: 'reportToolClientResult',
    permission: 'oversee',
    summary:
      'The result of a call, once: `output`, `contentItems` with `success`, or `error`. 409 when it is too late.',
    body: clientAnswerSchema,
    responses: { 204: 'Accepted' },
    answer: ({ pawl, path, body }) => pawl.toolClients.answer(path.clientId, path.callId, body),
  }),
  route('delete /v1/tool-clients/{clientId}', {
    operationId: 'removeToolClient',
    permission: 'oversee',
    summary: 'Removes the client. Its running calls end at once.',
    responses: { 204: 'Removed' },
    answer: ({ pawl, path, caller }) => pawl.toolClients.leave(path.clientId, callerName(caller)),
  }),
];
