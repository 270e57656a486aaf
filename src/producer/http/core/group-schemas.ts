/** The shapes of batches and plans: a part of the response schemas. */
import { z } from 'zod';
import { BATCH_STATES } from '../../../shared/groups/batch.ts';

const text = z.string();
const count = z.number().int().min(0);
/** Milliseconds since the epoch. */
const atMs = z.number();

const entryError = z.object({
  code: text,
  message: text,
  issues: z.array(z.object({ path: text, message: text })).optional(),
});

const memberStanding = {
  state: text.describe('`waiting`, `inflight`, or how it ended: `done`, `failed`, `cancelled`, `refused`.'),
  phase: text,
  status: text.optional().describe('Of its result.'),
  errorCode: text.optional(),
};

export const groupSchemas = {
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
        ...memberStanding,
        attempts: count.optional(),
        message: text.optional(),
        error: entryError.optional().describe('The entry was refused: it is no call.'),
      }),
    ),
  }),
} satisfies Readonly<Record<string, z.ZodType>>;
