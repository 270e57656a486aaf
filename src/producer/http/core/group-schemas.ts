/** The response schemas of batches and plans. */
import { z } from 'zod';
import { BATCH_STATES } from '../../../shared/groups/batch.ts';
import { PLAN_STATES } from '../../../shared/groups/plan.ts';
import { atMs, count, issues, text } from './call-schemas.ts';

const failure = z.object({ code: text, message: text });
const entryError = failure.extend({ issues: issues.optional() });

const memberStatus = {
  state: text.describe('`waiting`, `inflight`, or how it ended: `done`, `failed`, `cancelled`, `refused`.'),
  phase: text,
  status: text.optional().describe('The status of its result.'),
  errorCode: text.optional(),
};

const planCall = z.object({
  callId: text.optional(),
  ...memberStatus,
  message: text.optional().describe('The message of a failure, truncated.'),
  summary: text.optional().describe('The beginning of its output, without secrets.'),
  unresolved: z.literal(true).optional().describe('It may have had its effect.'),
});

const progress = z.object({ ended: count, total: count });

const planSummary = z.object({
  planId: text,
  session: text,
  state: z.enum(PLAN_STATES),
  progress: progress.describe('How many of its nodes have ended.'),
  counts: z.record(text, count).describe('`total`, and how many nodes are in each state.'),
  because: text.optional().describe('The node whose failure ended the plan.'),
  approval: z
    .object({
      approvalId: text,
      callId: text,
      state: z.enum(['pending', 'approved', 'refused']),
      error: failure.optional().describe('Why it was refused.'),
    })
    .optional()
    .describe('Present when a node of the plan needs one.'),
  createdAtMs: atMs,
  endedAtMs: atMs.optional(),
});

const irreversible = z
  .array(text)
  .optional()
  .describe('The nodes whose calls stay when the plan is undone: their tools have no `compensate`.');

export const groupSchemas = {
  PlanOrder: z.object({
    order: z.array(text),
    needsApproval: z.array(text).optional().describe('The nodes that need the approval of a person.'),
    irreversible,
  }),
  AcceptedPlan: z.object({
    planId: text,
    order: z.array(text),
    irreversible,
    approvalId: text.optional().describe('The approval that it waits for.'),
  }),
  PlanList: z.object({ plans: z.array(planSummary) }),
  Plan: planSummary.extend({
    nodes: z.record(
      text,
      z.object({
        tool: text,
        namespace: text,
        state: z.enum(['waiting', 'running', 'success', 'error', 'skipped', 'cancelled']),
        needs: z.array(text),
        needsApproval: z.literal(true).optional(),
        progress: progress.optional().describe('How many calls of a `forEach` have ended.'),
        skipped: text.optional().describe('Why it did not run.'),
        error: failure.optional().describe('The node failed before it created a call.'),
        calls: z.array(planCall.extend({ undo: planCall.optional() })),
      }),
    ),
  }),
  AcceptedBatch: z.object({
    batchId: text,
    calls: z.array(z.union([z.object({ callId: text }), z.object({ error: entryError })])),
  }),
  Batch: z.object({
    batchId: text,
    state: z.enum(BATCH_STATES),
    counts: z.record(text, count).describe('`total`, and how many calls are in each state.'),
    concurrency: count.optional(),
    createdAtMs: atMs,
    endedAtMs: atMs.optional(),
    calls: z.array(
      z.object({
        callId: text.optional(),
        tool: text.optional(),
        session: text.optional(),
        ...memberStatus,
        attempts: count.optional(),
        message: text.optional(),
        error: entryError.optional().describe('The entry was refused, so it has no call.'),
      }),
    ),
  }),
} satisfies Readonly<Record<string, z.ZodType>>;
