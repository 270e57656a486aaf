/** `/v1/plans`: graphs of calls that need each other's results. */
import { z } from 'zod';
import { ignoreCode } from '../../../shared/errors/failure.ts';
import { planSchema } from '../../../shared/groups/plan.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { callerName, submitterOf } from './approvals.ts';
import { keyHeader, withIdempotencyKey } from './create-call.ts';
import { findOrOpenSession, sessionFor } from './sessions.ts';

const session = z.string().min(1).max(256);
/** The other fields are checked against the tools, so that all issues are reported together. */
const newPlanSchema = z.looseObject({ session });

export const planRoutes: readonly Route[] = [
  route('post /v1/plans', {
    operationId: 'createPlan',
    permission: 'use',
    summary: 'Checks a plan and starts it; with `dryRun=true`, only checks it.',
    query: z.strictObject({ dryRun: z.enum(['true', 'false']).default('false') }),
    headers: z.object(keyHeader),
    body: newPlanSchema,
    bodySchema: z.toJSONSchema(planSchema.extend({ session }), { io: 'input' }),
    responses: {
      200: ['The order of its nodes, with `dryRun=true`', 'PlanOrder'],
      202: ['The plan has started', 'AcceptedPlan'],
    },
    async handle({ pawl, checkAccepting, query, headers, body, caller }) {
      const { session: sessionKey, ...plan } = withIdempotencyKey(body, headers['idempotency-key']);
      const dryRun = query.dryRun === 'true';
      if (!dryRun) await checkAccepting();
      const existing = await sessionFor(pawl, caller, sessionKey).catch(ignoreCode('UNKNOWN_SESSION'));
      const session =
        existing?.record ?? (await pawl.sessions.draft(defined({ sessionKey, tenantId: caller.tenantId })));
      // The plan is checked first, so that an invalid one opens no session.
      if (dryRun || existing === undefined) {
        const order = await pawl.plans.check({ session, isDraft: existing === undefined, plan });
        if (dryRun) return { status: 200, body: order };
      }
      const { record } = existing ?? (await findOrOpenSession(pawl, caller, { sessionKey }));
      const accepted = await pawl.plans.create({ session: record, plan, ...submitterOf(caller) });
      return { status: 202, headers: { Location: `/v1/plans/${accepted.planId}` }, body: accepted };
    },
  }),
  route('get /v1/plans', {
    operationId: 'listPlans',
    permission: 'use',
    summary: 'Plans, the newest first, without their nodes.',
    query: z.strictObject({ limit: queryNumber({ max: 200, fallback: 50, unit: 'plans' }) }),
    responses: { 200: ['The plans', 'PlanList'] },
    answer: async ({ pawl, query: { limit }, caller: { tenantId } }) => ({
      plans: await pawl.plans.list({ limit, tenantId }),
    }),
  }),
  route('get /v1/plans/{id}', {
    operationId: 'getPlan',
    permission: 'use',
    summary: 'A plan, with the current states of its nodes. `GET /v1/calls/{callId}` has the result of each call.',
    responses: { 200: ['The plan', 'Plan'] },
    answer: ({ pawl, path, caller: { tenantId } }) => pawl.plans.show(path.id, { tenantId }),
  }),
  route('delete /v1/plans/{id}', {
    operationId: 'cancelPlan',
    permission: 'use',
    summary: 'Starts no further call of a plan, and cancels the unfinished ones. Finished calls are not undone.',
    responses: { 200: ['The current plan', 'Plan'] },
    async answer({ pawl, path, caller }) {
      const { planId } = await pawl.plans.read(path.id, { tenantId: caller.tenantId });
      await pawl.plans.cancel(planId, callerName(caller));
      return pawl.plans.read(planId);
    },
  }),
];
