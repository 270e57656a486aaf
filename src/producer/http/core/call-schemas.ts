/** The shapes of calls, dead letters, redrives and callbacks in responses, and what all shapes are made of. */
import { z } from 'zod';
import { CALLBACK_STATES } from '../../../shared/callbacks/callback-state.ts';
import { CALL_STATES, PHASES, SETTLEMENTS } from '../../../shared/calls/call-state.ts';
import { EFFECTS } from '../../../shared/retries/effects.ts';
import { TIERS } from '../../../shared/tools/tool.ts';

export const text = z.string();
export const flag = z.boolean();
export const count = z.number().int().min(0);
/** Milliseconds since the epoch. */
export const atMs = z.number();
export const tier = z.enum(TIERS);
export const json = z.record(z.string(), z.unknown());
export const issues = z.array(z.object({ path: text, message: text }));

const attempt = z.object({
  attempt: count,
  fence: count,
  worker: text,
  startedAtMs: atMs,
  finishedAtMs: atMs,
  status: z.enum(['success', 'error', 'lost', 'pending']),
  retriable: flag,
  errorCode: text.optional(),
  completedAtMs: atMs
    .optional()
    .describe('When an outside system completed the call, which this attempt had left pending.'),
  inDoubt: z.literal(true).optional(),
  vote: text.optional(),
  delayMs: z.number().optional(),
  traceparent: text.optional(),
  resolved: z.literal(true).optional().describe('An operator found that it had no effect.'),
  round: count.optional().describe('The number of an earlier round, from 1. The call was redriven after it.'),
});

const redriveMark = z.object({ id: text, by: text, atMs, code: text, attempts: count, fence: count });

export const stateAndPhase = {
  state: z.enum(CALL_STATES),
  phase: z.enum([...PHASES, ...CALL_STATES]).describe('For a finished call, its state.'),
};

export const callSummarySchema = z.object({
  callId: text,
  requestId: text,
  tool: text,
  namespace: text,
  toolVersion: text,
  effects: z.enum(EFFECTS).optional(),
  session: text,
  actorId: text,
  ...stateAndPhase,
  attempts: z.array(attempt),
  lostAttempts: count,
  redrives: z.array(redriveMark).optional().describe('Each redrive of the call, and the failure before it.'),
  worker: text.optional(),
  circuit: text,
  cancelRequested: flag,
  startAtMs: atMs.optional().describe('For a delayed call, the earliest time of its start.'),
  createdAtMs: atMs,
  updatedAtMs: atMs,
  expiresAtMs: atMs.optional(),
  freeAtMs: atMs.optional().describe('For a failed call, the time when its key is free to run again.'),
  status: text.optional().describe('The status of its result.'),
  errorCode: text.optional(),
  settlement: z.enum(SETTLEMENTS).optional(),
  pendingUntilMs: atMs.optional().describe('When a pending call expires.'),
  unresolved: z
    .literal(true)
    .optional()
    .describe('It may have had its effect, or was quarantined: an operator can resolve it.'),
});

const deadLetterFilter = z.object({
  tool: text.optional(),
  code: text.optional(),
  session: text.optional(),
  circuit: text.optional(),
  sinceMs: atMs.optional(),
  untilMs: atMs.optional(),
});

export const bulkResult = z.object({
  matched: count,
  started: count.describe('The number of calls redriven, discarded or resolved so far.'),
  skipped: z.array(z.object({ callId: text, code: text })).describe('The first 10,000, each with the reason.'),
});

export const redriveRecord = z.object({
  redriveId: text,
  state: z.enum(['running', 'done', 'stopped']),
  by: text,
  tenantId: text.optional(),
  reason: text.optional(),
  filter: deadLetterFilter.optional(),
  perSecond: count,
  matched: count,
  started: count,
  createdAtMs: atMs,
  updatedAtMs: atMs,
});

export const deadLetterList = z.object({
  deadLetters: z.array(
    callSummarySchema.extend({
      attempts: count,
      tenantId: text.optional(),
      failedAtMs: atMs,
      code: text.describe('The failure code of its result.'),
      message: text,
    }),
  ),
  next: text.optional(),
  counts: z.object({ total: count, codes: z.record(text, count), tools: z.record(text, count) }).optional(),
});

export const callbackSchema = z.object({
  id: text.describe('The `webhook-id`, the same each time that it is sent.'),
  callId: text,
  url: text,
  tool: text,
  session: text,
  tenantId: text.optional(),
  state: z.enum(CALLBACK_STATES),
  attempts: count,
  settledAtMs: atMs,
  nextAtMs: atMs.optional().describe('When it is sent again.'),
  lastAtMs: atMs.optional(),
  lastStatus: count.optional().describe('The HTTP status of the receiver.'),
  lastError: text.optional(),
});
