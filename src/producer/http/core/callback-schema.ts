/** The schema of a callback in responses. */
import { z } from 'zod';
import { CALLBACK_STATES } from '../../../shared/callbacks/callback-state.ts';

export const callbackSchema = z.object({
  id: z.string().describe('The `webhook-id`, the same each time that it is sent.'),
  callId: z.string(),
  url: z.string(),
  tool: z.string(),
  session: z.string(),
  tenantId: z.string().optional(),
  state: z.enum(CALLBACK_STATES),
  attempts: z.number().int().min(0),
  settledAtMs: z.number(),
  nextAtMs: z.number().optional().describe('When it is sent again.'),
  lastAtMs: z.number().optional(),
  lastStatus: z.number().int().min(0).optional().describe('The HTTP status of the receiver.'),
  lastError: z.string().optional(),
});
