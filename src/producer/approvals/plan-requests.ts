/** Builds the approval request of a plan. */
import { type ApprovalRequest, type ApprovalRoute, approvalId } from '../../shared/approvals/approval.ts';
import { PLAN_TOOL, shownPlan } from '../../shared/approvals/plan-approval.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { AcceptedNode, ApprovalReason, PlanDefinition } from '../../shared/groups/plan.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import { EFFECTS } from '../../shared/retries/effects.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { TIERS, type Tier } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';

/** A plan that a person has to decide on. */
export interface PlanToRequest {
  readonly planId: string;
  readonly plan: PlanDefinition;
  readonly session: SessionRecord;
  /** The call that waits for the decision. */
  readonly callId: string;
  readonly envelope: ToolCallEnvelope;
  /** The tools whose output may bring text from outside into parameters of the plan. */
  readonly outside: readonly string[];
  readonly submittedBy?: string | undefined;
  readonly route: ApprovalRoute;
  readonly createdAtMs: number;
  readonly limitMs: number;
}

type GatedNode = AcceptedNode & { readonly asks: ApprovalReason };

function gatedNodes({
  order,
  nodes,
}: Pick<PlanDefinition, 'order' | 'nodes'>): readonly (readonly [string, GatedNode])[] {
  return order.flatMap((name) => {
    const node = nodes[name];
    return node?.asks === undefined ? [] : [[name, node as GatedNode] as const];
  });
}

/** The highest tier of the nodes that need the approval: its workers announce it. */
export function tierOfApproval(plan: Pick<PlanDefinition, 'order' | 'nodes'>): Tier {
  const tiers = gatedNodes(plan).map(([, { tier }]) => TIERS.indexOf(tier));
  return TIERS[Math.max(...tiers)] ?? 'elevated';
}

export function planRequestFor(planToRequest: PlanToRequest): ApprovalRequest {
  const { planId, plan, session, callId, envelope, submittedBy, route, createdAtMs, limitMs, outside } = planToRequest;
  const params = shownPlan(planId, plan);
  const paramsDigest = digest(canonicalJson(params));
  const gated = gatedNodes(plan);
  const [[first, { asks }] = ['', { asks: { rule: '', reason: '' } }]] = gated;
  const rest = gated.length > 1 ? `, and ${gated.length - 1} more` : '';
  const effects = Math.max(...gated.map(([, node]) => EFFECTS.indexOf(node.effects)));
  const generation = String(createdAtMs);
  return {
    id: approvalId(callId, generation),
    callId,
    generation,
    plan: planId,
    tool: {
      ...PLAN_TOOL,
      definition: paramsDigest,
      tier: tierOfApproval(plan),
      effects: EFFECTS[effects] ?? 'once',
      annotations: {},
    },
    params: params as unknown as ApprovalRequest['params'],
    paramsDigest,
    ...originOf(session, envelope, submittedBy),
    taint: [...new Set([...taintOf(undefined, session), ...outside])],
    rule: asks.rule,
    reason: `node ${first}: ${asks.reason}${rest}`,
    route,
    createdAtMs,
    expiresAtMs: createdAtMs + limitMs,
  };
}

export function originOf(session: SessionRecord, { target }: ToolCallEnvelope, submittedBy: string | undefined) {
  const { sessionKey: key, kind, workspaceRoot, actorId, tenantId, agentId } = session;
  return {
    session: { key, kind, workspaceRoot, actorId },
    actorId: target.actorId,
    ...defined({ tenantId, agentId, submittedBy }),
  };
}
