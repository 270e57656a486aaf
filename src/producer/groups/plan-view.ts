/** Serializers of plans, for programs, the API and the commands. */
import { phaseOf } from '../../shared/calls/call-state.ts';
import { isUnresolved } from '../../shared/calls/outcome.ts';
import { dependenciesOf, irreversibleNodes } from '../../shared/groups/check-plan.ts';
import type { Member, MemberEnd } from '../../shared/groups/group.ts';
import type { PlanDefinition } from '../../shared/groups/plan.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { truncateText } from '../../shared/util/text/truncate-json.ts';
import type { Plan } from './plan-state.ts';

/** Characters of a message in the list of a plan's calls. */
const MESSAGE_LENGTH = 500;
const IN_FLIGHT: MemberState = { state: 'inflight', phase: 'inflight' };

/** The state of a group's call: from its own record, or from the group's note of its end. */
export function memberView(record: CallRecord | undefined, end: MemberEnd | undefined): MemberState {
  if (record === undefined) return memberEndView(end);
  const { state } = record;
  const outcome = state === 'inflight' ? undefined : record.outcome;
  return { state, phase: phaseOf(record), ...defined({ status: outcome?.status, errorCode: outcome?.error?.code }) };
}

function memberEndView(end: MemberEnd | undefined): MemberState {
  if (end === undefined) return { state: 'waiting', phase: 'waiting' };
  const state = end.status === 'success' ? 'done' : end.code === 'CANCELLED' ? 'cancelled' : 'failed';
  return { state, phase: state, ...defined({ status: end.status, errorCode: end.code }) };
}

interface MemberState {
  readonly state: string;
  readonly phase: string;
  readonly status?: string;
  readonly errorCode?: string;
}

/** The response to a plan's check: the nodes in their order, those that need an approval, and those that could not be undone. */
export function planOrder({ order, nodes }: PlanDefinition) {
  const needsApproval = order.filter((name) => nodes[name]?.asks !== undefined);
  const irreversible = [...irreversibleNodes(order, nodes)];
  return {
    order,
    ...(needsApproval.length === 0 ? {} : { needsApproval }),
    ...(irreversible.length === 0 ? {} : { irreversible }),
  };
}

export function planSummary({ head, definition, state, because, approval, endedAtMs, nodes }: Plan) {
  const counts: Record<string, number> = { total: nodes.length };
  for (const node of nodes) counts[node.state] = (counts[node.state] ?? 0) + 1;
  const open = (counts['waiting'] ?? 0) + (counts['running'] ?? 0);
  return {
    planId: head.id,
    session: definition.target.sessionKey,
    state,
    progress: { ended: nodes.length - open, total: nodes.length },
    counts,
    ...defined({ because, approval }),
    createdAtMs: head.createdAtMs,
    ...defined({ endedAtMs }),
  };
}

export type PlanOrder = ReturnType<typeof planOrder>;
export type PlanSummary = ReturnType<typeof planSummary>;
export type PlanView = ReturnType<typeof planView>;

/** A plan with its nodes by name, as `session.plan`, `pawl.plans`, the API and the commands show it. */
export function planView(plan: Plan) {
  const nodes = plan.nodes.map(planNodeView);
  return { ...planSummary(plan), nodes: Object.fromEntries(nodes.map(({ name, ...node }) => [name, node])) };
}

function planNodeView({ name, node, state, note, calls }: Plan['nodes'][number]) {
  const endedCount = calls.filter(({ member }) => member?.end !== undefined).length;
  return {
    name,
    tool: node.name,
    namespace: node.namespace,
    state,
    needs: [...dependenciesOf(node)],
    ...(node.asks !== undefined && { needsApproval: true as const }),
    ...(note?.items !== undefined && { progress: { ended: endedCount, total: note.items } }),
    ...defined({ skipped: note?.skipped, error: note?.error }),
    calls: calls.map(({ member, undo, summary, resolved, resolvedUndo }) => ({
      ...planCallView(member, resolved),
      ...defined({ summary, undo: undo && planCallView(undo, resolvedUndo) }),
    })),
  };
}

/** `resolved`: the record of a call that the plan notes as one in doubt. */
function planCallView(member: Member | undefined, resolved: CallRecord | undefined) {
  const { callId, end } = member ?? {};
  const message = resolved === undefined ? end?.message : resolved.outcome?.error?.message;
  const isOpen = resolved === undefined ? end?.mayHaveHappened === true : isUnresolved(resolved.outcome);
  return {
    ...defined({ callId }),
    ...(member !== undefined && end === undefined ? IN_FLIGHT : memberView(resolved, end)),
    ...(message !== undefined && { message: truncateText(message, MESSAGE_LENGTH) }),
    ...(isOpen ? { unresolved: true as const } : {}),
  };
}
