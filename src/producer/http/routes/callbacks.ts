/** `/v1/callbacks`: the ends of calls that are posted to a URL, and sending one again. */
import { z } from 'zod';
import { CALLBACK_STATES } from '../../../shared/callbacks/callback-state.ts';
import type { Pawl } from '../../client.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { nameOf } from './approvals.ts';

const MAX_LISTED = 1_000;

export function callbackRoutes(pawl: Pawl): readonly Route[] {
  return [listCallbacks(pawl), replayCallback(pawl)];
}

function listCallbacks(pawl: Pawl): Route {
  return route('get /v1/callbacks', {
    operationId: 'listCallbacks',
    permission: 'use',
    summary: 'Callbacks of calls that have ended, the newest first; `truncated` when older ones were not looked at.',
    query: z.strictObject({
      state: z.enum(CALLBACK_STATES).optional(),
      limit: queryNumber({ max: MAX_LISTED, fallback: 50, unit: 'callbacks' }),
    }),
    responses: { 200: ['Callbacks', 'CallbackList'] },
    answer: ({ query, caller }) => pawl.callbacks.list({ ...query, tenantId: caller.tenantId }),
  });
}

function replayCallback(pawl: Pawl): Route {
  return route('post /v1/callbacks/{id}', {
    operationId: 'replayCallback',
    permission: 'operate',
    summary: 'Sends a callback again, at once and for another day, under the same ID.',
    body: z.strictObject({ action: z.literal('replay') }),
    responses: { 200: ['The callback', 'Callback'] },
    answer: ({ path, caller }) =>
      pawl.callbacks.replay(path['id'] ?? '', { by: nameOf(caller), tenantId: caller.tenantId }),
  });
}
