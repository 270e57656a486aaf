/** `/v1/plans`: graphs of calls that need each other's results. */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';
import { planSchema } from '../../../shared/groups/plan.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import type { ApiDeps } from '../core/api-deps.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { nameOf, submitterOf } from './approvals.ts';
import { keyedBy, keyHeader } from './create-call.ts';
import { sessionFor, sessionOrNew } from './sessions.ts';

const MAX_LISTED = 200;
const session = z.string().min(1).max(256);
/** The rest is checked with the tools, so that all issues come at once. */
const newPlanSchema = z.looseObject({ session });

type PlanRouteDeps = Pick<ApiDeps, 'pawl' | 'checkAccepting'>;

export function planRoutes(deps: PlanRouteDeps): readonly Route[] {
  return [createPlan(deps), listPlans(deps), getPlan(deps), cancelPlan(deps)];
}

function createPlan({ pawl, checkAccepting }: PlanRouteDeps): Route {
  return route('post /v1/plans', {
    operationId: 'createPlan',
    permission: 'use',
    summary: 'Checks a plan and begins it; with `dryRun=true`, checks it alone.',
    query: z.strictObject({ dryRun: z.enum(['true', 'false']).default('false') }),
    headers: z.object(keyHeader),
    body: newPlanSchema,
    bodySchema: z.toJSONSchema(planSchema.extend({ session }), { io: 'input' }),
    responses: {
      200: ['The order of its nodes, with `dryRun=true`', 'PlanOrder'],
      202: ['The plan has begun', 'AcceptedPlan'],
    },
    async handle({ query, headers, body, caller }) {
      const { session: sessionKey, ...plan } = keyedBy(body, headers['idempotency-key']);
      const dryRun = query.dryRun === 'true';
      if (!dryRun) await checkAccepting();
      const known = await sessionFor(pawl, caller, sessionKey).catch(unlessUnknown);
      const session = known?.record ?? (await pawl.sessions.draft(defined({ sessionKey, tenantId: caller.tenantId })));
      // A plan that cannot run opens no session.
      if (dryRun || known === undefined) {
        const order = await pawl.plans.check({ session, isDraft: known === undefined, plan });
        if (dryRun) return { status: 200, body: order };
      }
      const { record } = known ?? (await sessionOrNew(pawl, caller, { sessionKey }));
      const accepted = await pawl.plans.create({ session: record, plan, ...submitterOf(caller) });
      return { status: 202, headers: { Location: `/v1/plans/${accepted.planId}` }, body: accepted };
    },
  });
}

function listPlans({ pawl }: PlanRouteDeps): Route {
  return route('get /v1/plans', {
    operationId: 'listPlans',
    permission: 'use',
    summary: 'Plans, the newest first, without their nodes.',
    query: z.strictObject({ limit: queryNumber({ max: MAX_LISTED, fallback: 50, unit: 'plans' }) }),
    responses: { 200: ['The plans', 'PlanList'] },
    async answer({ query, caller }) {
      const plans = await pawl.plans.list({ limit: query.limit, tenantId: caller.tenantId });
      return { plans };
    },
  });
}

function getPlan({ pawl }: PlanRouteDeps): Route {
  return route('get /v1/plans/{id}', {
    operationId: 'getPlan',
    permission: 'use',
    summary: 'A plan, with its nodes as they stand. `GET /v1/calls/{callId}` has the result of each call.',
    responses: { 200: ['The plan', 'Plan'] },
    answer: ({ path, caller: { tenantId } }) => pawl.plans.show(path['id'] ?? '', { tenantId }),
  });
}

function cancelPlan({ pawl }: PlanRouteDeps): Route {
  return route('delete /v1/plans/{id}', {
    operationId: 'cancelPlan',
    permission: 'use',
    summary: 'Begins no further call of a plan, and cancels those that have not ended. What was done stays.',
    responses: { 200: ['The plan, as it stands now', 'Plan'] },
    async answer({ path, caller }) {
      const { planId } = await pawl.plans.read(path['id'] ?? '', { tenantId: caller.tenantId });
      await pawl.plans.cancel(planId, nameOf(caller));
      return pawl.plans.read(planId);
    },
  });
}

function unlessUnknown(error: unknown): undefined {
  if (!(error instanceof PawlError) || error.code !== 'UNKNOWN_SESSION') throw error;
}
