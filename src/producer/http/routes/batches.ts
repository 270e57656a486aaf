/** `/v1/batches`: many calls in one request, each with an outcome of its own. */
import { z } from 'zod';
import { idempotencyKeySchema, jsonObjectSchema } from '../../../shared/calls/envelope.ts';
import { isRefusalError } from '../../../shared/errors/failure.ts';
import { MAX_MEMBERS } from '../../../shared/groups/group.ts';
import type { Pawl } from '../../client.ts';
import type { BatchEntry } from '../../groups/batches.ts';
import type { Caller } from '../core/access.ts';
import { type Route, route } from '../core/route.ts';
import { callerName, submitterOf } from './approvals.ts';
import { batchEntry, documentedCallSchema, keyHeader, withIdempotencyKey } from './create-call.ts';

const newBatchSchema = z.strictObject({
  /** Each call is checked on its own: an invalid one does not refuse the others. */
  calls: z.array(jsonObjectSchema).min(1).max(MAX_MEMBERS),
  concurrency: z.number().int().min(1).max(MAX_MEMBERS).optional(),
  idempotencyKey: idempotencyKeySchema.optional(),
});

export const batchRoutes: readonly Route[] = [
  route('post /v1/batches', {
    operationId: 'createBatch',
    permission: 'use',
    summary: 'Submits many calls in their short form. An invalid call does not refuse the others.',
    headers: z.object(keyHeader),
    body: newBatchSchema,
    bodySchema: {
      type: 'object',
      properties: {
        calls: {
          type: 'array',
          items: z.toJSONSchema(documentedCallSchema, { io: 'input' }),
          minItems: 1,
          maxItems: MAX_MEMBERS,
        },
        concurrency: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_MEMBERS,
          description: 'The limit of calls in flight at once. Default: all.',
        },
        idempotencyKey: { type: 'string', description: 'The same key of the same tenant is the same batch.' },
      },
      required: ['calls'],
      additionalProperties: false,
    },
    responses: { 202: ['The batch, and the ID or the error of each call', 'AcceptedBatch'] },
    async handle({ pawl, checkAccepting, headers, body, caller }) {
      await checkAccepting();
      const { concurrency, idempotencyKey } = withIdempotencyKey(body, headers['idempotency-key']);
      const entries = await entriesOf(pawl, caller, body.calls);
      const { tenantId } = caller;
      const request = { entries, concurrency, idempotencyKey, tenantId, ...submitterOf(caller) };
      const accepted = await pawl.batches.create(request);
      return { status: 202, headers: { Location: `/v1/batches/${accepted.batchId}` }, body: accepted };
    },
  }),
  route('get /v1/batches/{id}', {
    operationId: 'getBatch',
    permission: 'use',
    summary: 'A batch, with the current states of its calls. `GET /v1/calls/{callId}` has the result of each.',
    responses: { 200: ['The batch', 'Batch'] },
    answer: ({ pawl, path, caller: { tenantId } }) => pawl.batches.read(path.id, { tenantId }),
  }),
  route('delete /v1/batches/{id}', {
    operationId: 'cancelBatch',
    permission: 'use',
    summary: 'Starts no further call of a batch, and cancels the unfinished ones.',
    responses: { 200: ['The current batch', 'Batch'] },
    async answer({ pawl, path, caller }) {
      const { batchId } = await pawl.batches.read(path.id, { tenantId: caller.tenantId });
      await pawl.batches.cancel(batchId, callerName(caller));
      return pawl.batches.read(batchId);
    },
  }),
];

/** One after the other: several entries may open the same session. */
async function entriesOf(
  pawl: Pawl,
  caller: Caller,
  calls: readonly Readonly<Record<string, unknown>>[],
): Promise<BatchEntry[]> {
  const entries: BatchEntry[] = [];
  for (const call of calls) {
    try {
      entries.push(await batchEntry(pawl, caller, call as Readonly<Record<string, unknown>>));
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      entries.push(error);
    }
  }
  return entries;
}
