/** `/v1/dead-letters` and `/v1/resolutions`: redrive, discard and resolve many calls at once. */
import { z } from 'zod';
import { invalidArgument } from '../../../shared/schema/known-members.ts';
import type { DeadLetterFilter } from '../../../shared/store/dead-letters/dead-letter-index.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { sinceSchema } from '../../calls/audit.ts';
import type { Resolution } from '../../calls/resolution.ts';
import { MAX_PER_SECOND } from '../../dead-letters/redrive-runner.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { deadLetterView, redriveView } from '../core/views.ts';
import { callerName } from './approvals.ts';

const MAX_LISTED = 1_000;
const MAX_WAIT_MS = 60_000;
const name = z.string().min(1).max(512);
const wait = queryNumber({ max: MAX_WAIT_MS, fallback: 2_000, unit: 'milliseconds' });

/** A time in a body: text, or milliseconds since the epoch. */
const momentSchema = z.union([z.number().int().min(0), sinceSchema]);

const filterSchema = z
  .strictObject({
    tool: name.optional(),
    code: name.optional(),
    session: name.optional(),
    circuit: name.optional(),
    since: momentSchema.optional(),
    until: momentSchema.optional(),
  })
  .describe('All given conditions must match; without any, all dead letters match.');

const reason = z.string().min(1).max(1_000);

const selection = {
  ids: z.array(name).min(1).max(10_000).optional(),
  filter: filterSchema.optional(),
  dryRun: z.boolean().optional(),
  reason: reason.optional(),
};

const ONE_OF = { path: ['filter'], message: 'give either ids or filter; {} selects all' };
const hasOneOf = ({ ids, filter }: Selection) => (ids === undefined) !== (filter === undefined);

const actionSchema = z
  .strictObject({
    ...selection,
    action: z.enum(['redrive', 'discard']),
    perSecond: z.number().int().min(1).max(MAX_PER_SECOND).optional(),
  })
  .refine(hasOneOf, ONE_OF)
  .refine(({ action, perSecond }) => action === 'redrive' || perSecond === undefined, {
    path: ['perSecond'],
    message: 'belongs to the action redrive',
  });

const resolutionsSchema = z
  .strictObject({
    ...selection,
    as: z.enum(['succeeded', 'failed', 'retry']),
    reason,
    output: z.unknown().optional(),
  })
  .refine(hasOneOf, ONE_OF)
  .refine(({ as, output }) => as === 'succeeded' || output === undefined, {
    path: ['output'],
    message: 'belongs to as: succeeded',
  });

export const deadLetterRoutes: readonly Route[] = [
  route('get /v1/dead-letters', {
    operationId: 'listDeadLetters',
    permission: 'operate',
    summary:
      'Failed calls of tools that change something, the newest failure first. The first page has `counts`; `next` selects the next page.',
    query: z.strictObject({
      tool: name.optional(),
      code: name.optional(),
      session: name.optional(),
      circuit: name.optional(),
      since: sinceSchema.optional(),
      until: sinceSchema.optional(),
      limit: queryNumber({ max: MAX_LISTED, fallback: 50, unit: 'dead letters' }),
      /** `next` of the page before. */
      next: name.optional(),
    }),
    responses: { 200: ['Dead letters', 'DeadLetterList'] },
    async answer({ pawl, query: { limit, next, ...filter }, caller: { tenantId } }) {
      const request = { ...filterOf(filter, 'until'), tenantId, limit: Math.max(1, limit), next };
      const { deadLetters, ...rest } = await pawl.deadLetters.list(request);
      return { deadLetters: deadLetters.map(deadLetterView), ...rest };
    },
  }),
  route('post /v1/dead-letters', {
    operationId: 'changeDeadLetters',
    permission: 'operate',
    summary:
      'Redrives dead letters, at most `perSecond` (50), or discards them. A redrive goes on after `wait`, under its `redriveId`.',
    query: z.strictObject({ wait }),
    body: actionSchema,
    responses: { 200: ['The progress so far', 'BulkAnswer'] },
    async answer({ pawl, body, query, caller }) {
      const { action, perSecond } = body;
      const request = { ...selectionOf(body), by: callerName(caller), tenantId: caller.tenantId };
      if (action === 'discard') return pawl.deadLetters.discard(request);
      return pawl.deadLetters.redrive({ ...request, perSecond, waitMs: query.wait });
    },
  }),
  route('get /v1/dead-letters/redrives', {
    operationId: 'listRedrives',
    permission: 'operate',
    summary: 'Redrives of the last week, the newest first.',
    query: z.strictObject({ limit: queryNumber({ max: MAX_LISTED, fallback: 50, unit: 'redrives' }) }),
    responses: { 200: ['Redrives', 'RedriveList'] },
    async answer({ pawl, query: { limit }, caller: { tenantId } }) {
      const redrives = await pawl.deadLetters.redrives(defined({ limit, tenantId }));
      return { redrives: redrives.map(redriveView) };
    },
  }),
  route('get /v1/dead-letters/redrives/{id}', {
    operationId: 'getRedrive',
    permission: 'operate',
    summary: 'The progress of a redrive; `wait` waits for its end.',
    query: z.strictObject({ wait: queryNumber({ max: MAX_WAIT_MS, fallback: 0, unit: 'milliseconds' }) }),
    responses: { 200: ['The redrive', 'Redrive'] },
    answer: async ({ pawl, path, query, caller: { tenantId } }) =>
      redriveView(await pawl.deadLetters.progress(path.id, { waitMs: query.wait, tenantId })),
  }),
  route('delete /v1/dead-letters/redrives/{id}', {
    operationId: 'stopRedrive',
    permission: 'operate',
    summary: 'Stops a redrive. The calls that it has not reached stay dead letters.',
    responses: { 200: ['The redrive', 'Redrive'] },
    answer: async ({ pawl, path, caller }) =>
      redriveView(await pawl.deadLetters.stop(path.id, { by: callerName(caller), tenantId: caller.tenantId })),
  }),
  route('post /v1/resolutions', {
    operationId: 'resolveCalls',
    permission: 'operate',
    summary:
      'Resolves calls in doubt, at most 1,000 in one request. Repeat the request for calls that are neither started nor skipped.',
    body: resolutionsSchema,
    responses: { 200: ['The result', 'BulkAnswer'] },
    async answer({ pawl, body, caller }) {
      const { as, output, reason } = body;
      const resolution: Resolution = as === 'succeeded' ? { as, output } : { as };
      const by = callerName(caller);
      const request = { ...selectionOf(body), ...resolution, reason, by, tenantId: caller.tenantId };
      return pawl.calls.resolveMany(request);
    },
  }),
];

type Selection = { readonly [Name in keyof typeof selection]?: z.output<(typeof selection)[Name]> | undefined };

function selectionOf({ ids, filter, dryRun, reason }: Selection) {
  return { ...(ids === undefined ? { filter: filterOf(filter ?? {}, 'filter.until') } : { ids }), dryRun, reason };
}

/** @param untilPath the path of `until` in the request */
function filterOf({ since, until, ...rest }: z.output<typeof filterSchema>, untilPath: string): DeadLetterFilter {
  if (since !== undefined && until !== undefined && until < since)
    throw invalidArgument(untilPath, 'must not be before since: nothing can match');
  return defined({ ...rest, sinceMs: since, untilMs: until });
}
