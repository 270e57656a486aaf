/** The rules by which plans are driven. */
import { type CompensatedCall, compensation } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type Issue, PawlError } from '../../shared/errors/failure.ts';
import type { NextCall, PlannedCall } from '../../shared/groups/group.ts';
import { APPROVAL_KEY } from '../../shared/groups/node-state.ts';
import type { AcceptedNode, PlanDefinition } from '../../shared/groups/plan.ts';
import { type PlanDeps, PlanProgress } from '../../shared/groups/plan-progress.ts';
import { referencesIn, resolveReferences } from '../../shared/groups/references.ts';
import { type BudgetLimits, costUnitsOf, sessionAccount } from '../../shared/limits/budget.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { asksToEscalate } from '../../shared/policy/sandbox-policy.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { LeasedGroup } from '../../shared/store/groups/groups.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import { callEnvelope, callTargetOf } from '../calls/call-envelope.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { GroupRules } from './group-runner.ts';
import { approvalOf, fullApproval } from './plan-approvals.ts';
import type { PlanServiceDeps } from './plans.ts';

export type UndoneCall = CompensatedCall & { readonly request: { readonly planned?: PlannedCall } };

export interface PlanRulesDeps {
  readonly clock: Pick<Clock, 'now'>;
  /** A call's record, with the parameters that ran. */
  callOf(callId: string): Promise<UndoneCall | undefined>;
  output(callId: string): Promise<unknown>;
}

export function planRules(deps: PlanRulesDeps): GroupRules {
  return {
    progressOf: (group) => new PlanProgress(group.definition as PlanDefinition, group.fields, planDeps(deps, group)),
    callOf(group, progress, key) {
      const approval = key === APPROVAL_KEY ? approvalOf(group) : undefined;
      if (approval === undefined) return (progress as PlanProgress).callOf(key);
      const request = fullApproval(approval, group);
      const { target } = group.definition as PlanDefinition;
      const { namespace, name } = request.tool;
      // The envelope is not submitted. It identifies the call when its approval cannot be requested.
      return { key, envelope: callEnvelope(target, name, {}, { namespace }, deps.clock), approval: request };
    },
  };
}

function planDeps({ clock, callOf, output }: PlanRulesDeps, group: LeasedGroup): PlanDeps {
  const { id } = group.head;
  const { target } = group.definition as PlanDefinition;
  const plannedOf = approvedCalls(group);
  return {
    output,
    call(key, node, params) {
      const { name, namespace, timeoutMs } = node;
      const options = { idempotencyKey: `${id}:${key}`, namespace, ...(timeoutMs !== undefined && { timeoutMs }) };
      const envelope = callEnvelope(target, name, params, options, clock);
      return { key, envelope, ...plannedOf(key, node, envelope) };
    },
    async compensation(key, node, callId) {
      const call = await callOf(callId);
      if (call === undefined) throw new PawlError('UNKNOWN_CALL', `There is no record of the call ${callId} any more.`);
      const { toolName, toolNamespace } = call.request.envelope;
      const envelope = compensation(call, callEnvelope(target, toolName, {}, { namespace: toolNamespace }, clock));
      return { key, envelope, ...(call.request.planned === undefined ? {} : plannedOf(key, node, envelope)) };
    },
  };
}

type PlannedOf = (key: string, node: AcceptedNode, envelope: ToolCallEnvelope) => Pick<NextCall, 'planned'>;

function approvedCalls(group: LeasedGroup): PlannedOf {
  const approval = approvalOf(group);
  return (key, { asks, params }, envelope) => {
    if (approval === undefined || asks === undefined) return {};
    // A reference must not add permissions that the approver has not seen.
    if (asksToEscalate(envelope.payload.params) && !asksToEscalate(params)) return {};
    return { planned: { approvalId: approval.id, key, taint: approval.taint } };
  };
}

/** Policy's reason to ask a person about a node; undefined when it needs no approval. References count as null. */
export function askReasonOf(
  permit: (envelope: ToolCallEnvelope, session: SessionRecord, isDraft: boolean) => Promise<PolicyResult>,
  isGranted: ApprovalService['isGranted'],
  clock: Pick<Clock, 'now'>,
): PlanServiceDeps['askReason'] {
  return async ({ session, isDraft = false }, tool, params) => {
    const { namespace, name } = tool;
    const withNulls = resolveReferences(params, () => null);
    const envelope = callEnvelope(callTargetOf(session), name, withNulls, { namespace }, clock);
    const result = await permit(envelope, session, isDraft);
    if (result.decision !== 'ask') return undefined;
    const isKnown = referencesIn(params).references.length === 0;
    if (isKnown && (await isGranted(session, tool, envelope, result))) return undefined;
    const { rule, reason, unconfined } = result;
    return { rule, reason, ...(unconfined === true ? { unconfined } : {}) };
  };
}

/** Finds budgets of the session that all nodes of a plan together exceed; a `forEach` counts as one call. */
export function budgetChecker(
  spentOf: (account: string) => Promise<Required<BudgetLimits>>,
): PlanServiceDeps['budgetIssues'] {
  return async (session, nodes) => {
    const issues: Issue[] = [];
    if (session.budgets === undefined) return issues;
    const needed = {
      calls: nodes.length,
      costUnits: nodes.reduce((sum, { tool, params }) => sum + costOf(tool, params), 0),
    };
    for (const { sessionKey, budget = {} } of session.budgets) {
      const { name, title } = sessionAccount(sessionKey, {});
      const spent = await spentOf(name);
      for (const unit of ['calls', 'costUnits'] as const) {
        const limit = budget[unit];
        const used = spent[unit] ?? 0;
        if (limit !== undefined && used + needed[unit] > limit)
          issues.push({
            path: `budget.${unit}`,
            message: `${title}: ${used} of ${limit} spent, and the plan takes ${needed[unit]}`,
          });
      }
    }
    return issues;
  };
}

function costOf(tool: ResolvedTool, params: object): number {
  return costUnitsOf(tool, resolveReferences(params, () => null) as Readonly<Record<string, unknown>>);
}
