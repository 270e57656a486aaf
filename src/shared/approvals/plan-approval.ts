/**
 * The approval of a plan: one decision on all its nodes. The request shows the whole plan, with references in place of the values that other
 * nodes will return. The digest covers what is shown, so a plan with another node, tool or parameter has another digest.
 */
import { irreversibleNodes } from '../groups/check-plan.ts';
import { nodeOf, UNDO } from '../groups/node-state.ts';
import { type AcceptedNode, conditionsOf, type PlanDefinition, type PlanNode } from '../groups/plan.ts';
import { matchesTemplate, pathOf } from '../groups/references.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import { plural } from '../util/text/plural.ts';
import { startOf } from '../util/text/text-cut.ts';
import { type ApprovalRequest, type Decision, decisionMismatch, type PendingRun } from './approval.ts';

/** The name under which the call of a plan's approval is listed. No worker has such a tool. */
export const PLAN_TOOL = { namespace: 'pawl', name: 'plan', version: '1' } as const;

/** A node as an approver sees it, and as the worker compares its call with it. */
interface ShownNode extends Omit<AcceptedNode, 'name' | 'tool' | 'asks'> {
  readonly tool: string;
  /** The reason for the approval. A node without one runs without an approval. */
  readonly needsApproval?: string;
  readonly unconfined?: true;
}

/** The parameters of the request: the plan. */
export interface ShownPlan {
  readonly planId: string;
  readonly nodes: Readonly<Record<string, ShownNode>>;
  readonly concurrency: number;
}

export function shownPlan(planId: string, { order, nodes, concurrency }: PlanDefinition): ShownPlan {
  const entries = order.map((name) => [name, shownNode(nodes[name] as AcceptedNode)] as const);
  return { planId, nodes: Object.fromEntries(entries), concurrency };
}

function shownNode({ name, asks, ...node }: AcceptedNode): ShownNode {
  return {
    ...node,
    tool: name,
    ...(asks !== undefined && { needsApproval: asks.reason }),
    ...(asks?.unconfined === true ? { unconfined: true } : {}),
  };
}

export function planOf({ params }: Pick<ApprovalRequest, 'params'>): ShownPlan {
  return params as unknown as ShownPlan;
}

/** Characters of one node's parameters in the preview. All of them are in the request's parameters. */
const MAX_PARAMS = 2_000;

/** The preview of a plan: what each node would do, in their order. */
export function planPreview(request: Pick<ApprovalRequest, 'params'>): {
  readonly summary: string;
  readonly details: string;
} {
  const plan = planOf(request);
  const nodes = Object.entries(plan.nodes);
  const irreversible = irreversibleNodes(Object.keys(plan.nodes), plan.nodes);
  const needingApproval = nodes.filter(([, { needsApproval }]) => needsApproval !== undefined).map(([name]) => name);
  const listedNames =
    needingApproval.length > 5
      ? `${needingApproval.slice(0, 5).join(', ')} and ${needingApproval.length - 5} more`
      : needingApproval.join(', ');
  const summary = `Run a plan of ${plural(nodes.length, 'node')}, of which ${needingApproval.length} need${needingApproval.length === 1 ? 's' : ''} this approval: ${listedNames}`;
  return {
    summary,
    details: nodes
      .map(([name, node], index) => nodeText(`${index + 1}. ${name}`, node, irreversible.has(name)))
      .join('\n'),
  };
}

function nodeText(head: string, node: ShownNode, isIrreversible: boolean): string {
  const { namespace, tool, version, tier, effects, needsApproval, params } = node;
  const asks = needsApproval === undefined ? '' : ', needs this approval';
  const json = JSON.stringify(params);
  const shown = json.length <= MAX_PARAMS ? json : `${startOf(json, MAX_PARAMS)}… (${json.length} characters in all)`;
  const lines = [
    `${head}: ${namespace}.${tool} ${version} (${tier}, effects ${effects})${asks}`,
    ...(node.forEach === undefined ? [] : [`for each of ${pathOf(node.forEach)}`]),
    ...(node.after === undefined || node.after.length === 0 ? [] : [`after ${node.after.join(', ')}`]),
    ...conditionsOf(node).map((condition) => `when ${condition.node} is ${condition.is}`),
    ...(node.onFailure === undefined ? [] : [`when it fails: ${FAILURES[node.onFailure]}`]),
    ...(isIrreversible ? ['cannot be undone: its tool has no compensate'] : []),
    `with ${shown}`,
  ];
  return lines.join('\n   ');
}

const FAILURES: Readonly<Record<NonNullable<PlanNode['onFailure']>, string>> = {
  stop: 'nothing further begins',
  continue: 'the others go on',
  undo: 'all that was done is undone, the last first',
};

/** A call that is about to run under the approval of its plan. */
export interface PlannedRun extends Omit<PendingRun, 'paramsDigest'> {
  readonly key: string;
  readonly params: Readonly<Record<string, unknown>>;
  /** The call's idempotency key; for a call that undoes another one, that of the undone call. */
  readonly idempotencyKey: string | undefined;
  /** The taint sources for which policy requires an approval. */
  readonly askedForTaint?: readonly string[] | undefined;
  /** This worker has no sandbox for its programs. */
  readonly unconfined?: boolean | undefined;
  /** Whether parameters ask to run outside of the sandbox. */
  escalates(params: Readonly<Record<string, unknown>>): boolean;
}

export function isPlanAsShown({ params, paramsDigest }: Pick<ApprovalRequest, 'params' | 'paramsDigest'>): boolean {
  return digest(canonicalJson(params)) === paramsDigest;
}

/** The reason why the decision on a plan, which is as it was shown, does not cover a call; undefined when it does. */
export function planMismatch(request: ApprovalRequest, decision: Decision, run: PlannedRun): string | undefined {
  const { session, tenantId, actorId, nowMs } = run;
  const { callId, tool, paramsDigest } = request;
  return (
    decisionMismatch(request, decision, { callId, tool, paramsDigest, session, tenantId, actorId, nowMs }) ??
    nodeMismatch(request, run)
  );
}

/** The reason why the request about a plan does not show a call; undefined when it does. */
function nodeMismatch(request: ApprovalRequest, run: PlannedRun): string | undefined {
  const { planId, nodes } = planOf(request);
  const { key, tool, askedForTaint = [] } = run;
  const isUndo = key.endsWith(UNDO);
  const nodeKey = isUndo ? key.slice(0, -UNDO.length) : key;
  const name = nodeOf(key);
  const node = Object.hasOwn(nodes, name) ? nodes[name] : undefined;
  if (request.plan !== planId || node === undefined) return 'it is about another plan';
  if (run.idempotencyKey !== `${planId}:${nodeKey}`) return `this is not the call of its node ${name}`;
  if (node.needsApproval === undefined) return `it was not asked about its node ${name}`;
  if (isUndo && !Object.values(nodes).some(({ onFailure }) => onFailure === 'undo')) return 'its plan undoes nothing';
  const isSame =
    node.namespace === tool.namespace &&
    node.tool === tool.name &&
    node.version === tool.version &&
    node.definition === tool.definition &&
    node.tier === tool.tier;
  if (!isSame) return `the tool of its node ${name} has changed since it was shown`;
  if (!matchesTemplate(node.params, run.params))
    return `the parameters of its node ${name} are not those that were shown`;
  if (askedForTaint.some((source) => !request.taint.includes(source)))
    return 'its parameters may come from sources that were not shown';
  if (run.escalates(run.params) && !run.escalates(node.params)) return 'it asks for more than its node shows';
  if (run.unconfined === true && node.unconfined !== true) return 'its programs would run outside of the sandbox';
  return undefined;
}

/** The request for one call of a node, for the case that it needs a decision of its own later. */
export function plannedNodeRequest(
  { plan: _, ...request }: ApprovalRequest,
  call: Pick<ApprovalRequest, 'callId' | 'tool' | 'params'>,
): ApprovalRequest {
  return { ...request, ...call, paramsDigest: digest(canonicalJson(call.params)) };
}
