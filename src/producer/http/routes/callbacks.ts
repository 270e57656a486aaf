/** `/v1/callbacks`: lists the callbacks of finished calls, and sends one again. */
import { z } from 'zod';
import { CALLBACK_STATES } from '../../../shared/callbacks/callback-state.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

export const callbackRoutes: readonly Route[] = [
  route('get /v1/callbacks', {
    operationId: 'listCallbacks',
    permission: 'use',
    summary: 'Callbacks of finished calls, the newest first; `truncated` when older ones were not searched.',
    query: z.strictObject({
      state: z.enum(CALLBACK_STATES).optional(),
      limit: queryNumber({ max: 1_000, fallback: 50, unit: 'callbacks' }),
    }),
    responses: { 200: ['Callbacks', 'CallbackList'] },
    answer: ({ pawl, query, caller }) => pawl.callbacks.list({ ...query, tenantId: caller.tenantId }),
  }),
  route('post /v1/callbacks/{id}', {
    operationId: 'replayCallback',
    permission: 'operate',
    summary: 'Sends a callback again, at once and for another day, under the same ID.',
    body: z.strictObject({ action: z.literal('replay') }),
    responses: { 200: ['The callback', 'Callback'] },
    answer: ({ pawl, path, caller }) =>
      pawl.callbacks.replay(path.id, { by: callerName(caller), tenantId: caller.tenantId }),
  }),
];
