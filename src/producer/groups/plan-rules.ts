/** How plans are driven: their progress, with what it asks of the producer. */
import { type CompensatedCall, compensation } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type Issue, PawlError } from '../../shared/errors/failure.ts';
import type { PlanDefinition } from '../../shared/groups/plan.ts';
import { type PlanDeps, PlanProgress } from '../../shared/groups/plan-progress.ts';
import { resolveReferences } from '../../shared/groups/references.ts';
import { type BudgetLimits, costUnitsOf, sessionAccount } from '../../shared/limits/budget.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { TakenGroup } from '../../shared/store/groups/groups.ts';
import type { Clock } from '../../shared/util/time.ts';
import { callEnvelope, callTargetOf } from '../calls/call-envelope.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { GroupRules } from './group-runner.ts';
import type { PlanServiceDeps } from './plans.ts';

export interface PlanRulesDeps {
  readonly clock: Pick<Clock, 'now'>;
  /** A call's record, with the parameters that ran. */
  callOf(callId: string): Promise<CompensatedCall | undefined>;
  output(callId: string): Promise<unknown>;
}

export function planRules(deps: PlanRulesDeps): GroupRules {
  return {
    progressOf: (group) =>
      new PlanProgress(group.definition as PlanDefinition, group.fields, surroundings(deps, group)),
    envelopeOf: (_group, progress, key) => (progress as PlanProgress).envelopeOf(key),
  };
}

function surroundings({ clock, callOf, output }: PlanRulesDeps, { head, definition }: TakenGroup): PlanDeps {
  const { target } = definition as PlanDefinition;
  return {
    output,
    envelope: (key, { name, namespace, timeoutMs }, params) =>
      callEnvelope(
        target,
        name,
        params,
        { idempotencyKey: `${head.id}:${key}`, namespace, ...(timeoutMs === undefined ? {} : { timeoutMs }) },
        clock,
      ),
    async compensation(callId): Promise<ToolCallEnvelope> {
      const call = await callOf(callId);
      if (call === undefined) throw new PawlError('UNKNOWN_CALL', `There is no record of the call ${callId} any more.`);
      const { toolName, toolNamespace } = call.request.envelope;
      return compensation(call, callEnvelope(target, toolName, {}, { namespace: toolNamespace }, clock));
    },
  };
}

/** Whether policy forbids a call of a plan. References are open: the call itself is checked again when it is made. */
export function forbiddenBy(
  check: (envelope: ToolCallEnvelope, session: SessionRecord) => Promise<unknown>,
  clock: Pick<Clock, 'now'>,
): PlanServiceDeps['forbidden'] {
  return async (session, { namespace, name }, params) => {
    const open = resolveReferences(params, () => null);
    try {
      await check(callEnvelope(callTargetOf(session), name, open, { namespace }, clock), session);
    } catch (error) {
      if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE') throw error;
      return error.code === 'INVALID_PARAMS' ? undefined : error.message;
    }
    return undefined;
  };
}

/** Finds budgets of the session that all nodes of a plan together exceed; a `forEach` counts as one call. */
export function lackingIn(spentOf: (account: string) => Promise<Required<BudgetLimits>>): PlanServiceDeps['lacking'] {
  return async (session, nodes) => {
    const issues: Issue[] = [];
    const asked = {
      calls: nodes.length,
      costUnits: nodes.reduce((sum, { tool, params }) => sum + costOf(tool, params), 0),
    };
    for (const { sessionKey, budget = {} } of session.budgets ?? []) {
      const { name, title } = sessionAccount(sessionKey, {});
      const spent = await spentOf(name);
      for (const unit of ['calls', 'costUnits'] as const) {
        const limit = budget[unit];
        const used = spent[unit] ?? 0;
        if (limit !== undefined && used + asked[unit] > limit)
          issues.push({
            path: `budget.${unit}`,
            message: `${title}: ${used} of ${limit} spent, and the plan takes ${asked[unit]}`,
          });
      }
    }
    return issues;
  };
}

function costOf(tool: ResolvedTool, params: object): number {
  return costUnitsOf(tool, resolveReferences(params, () => null) as Readonly<Record<string, unknown>>);
}
