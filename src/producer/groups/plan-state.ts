/** How a plan and its nodes stand, from the plan's record. */
import { decodeMembers, type GroupHead, type Member } from '../../shared/groups/group.ts';
import {
  APPROVAL_KEY,
  type NodeNote,
  type NodeState,
  nodeField,
  nodeState,
  PHASE_FIELD,
  type PlanPhase,
  UNDO,
  undoKey,
} from '../../shared/groups/node-state.ts';
import type { AcceptedNode, PlanDefinition, PlanState } from '../../shared/groups/plan.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { GroupRecord } from '../../shared/store/groups/groups.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { approvalOf } from './plan-approvals.ts';

export interface PlanApproval {
  readonly approvalId: string;
  /** The call that waits for the decision. */
  readonly callId: string;
  readonly state: 'pending' | 'approved' | 'refused';
  /** Why the plan was not approved. */
  readonly error?: { readonly code: string; readonly message: string };
}

/** A call of a node. */
export interface PlanCall {
  readonly key: string;
  readonly member: Member | undefined;
  /** The call that undoes it. */
  readonly undo?: Member;
  /** The beginning of its output, where `show` has read it. */
  readonly summary?: string;
  /** The records of the call and of its undoing where the plan notes them as in doubt and `show` has read them. */
  readonly resolved?: CallRecord;
  readonly resolvedUndo?: CallRecord;
}

export interface PlanNodeView {
  readonly name: string;
  readonly node: AcceptedNode;
  readonly state: NodeState | 'cancelled';
  readonly note?: NodeNote;
  readonly calls: readonly PlanCall[];
}

export interface Plan {
  readonly head: GroupHead;
  readonly definition: PlanDefinition;
  readonly state: PlanState;
  /** The node whose failure ended the plan. */
  readonly because?: string;
  readonly approval?: PlanApproval;
  readonly endedAtMs?: number;
  readonly nodes: readonly PlanNodeView[];
}

export function planFrom(record: GroupRecord): Plan {
  const { head, definition, fields, endedAtMs } = record;
  const plan = definition as PlanDefinition;
  const members = decodeMembers(fields);
  const because = phaseOf(record)?.because;
  const isOver = endedAtMs !== undefined;
  const nodes = plan.order.map((name): PlanNodeView => {
    const node = plan.nodes[name] as AcceptedNode;
    const note = fields[nodeField(name)] as NodeNote | undefined;
    const { state, keys } = nodeState(node, name, note, members);
    const calls = keys.map((key): PlanCall => {
      return { key, member: members.get(key), ...defined({ undo: members.get(undoKey(key)) }) };
    });
    const isCancelledNode = isOver && (state === 'waiting' || state === 'running');
    return { name, node, state: isCancelledNode ? 'cancelled' : state, calls, ...defined({ note }) };
  });
  const approval = planApproval(record, members);
  const state = stateOf(record, members);
  return { head, definition: plan, state, nodes, ...defined({ approval, because, endedAtMs }) };
}

function phaseOf({ fields }: GroupRecord): PlanPhase | undefined {
  return fields[PHASE_FIELD] as PlanPhase | undefined;
}

function planApproval(record: GroupRecord, members: ReadonlyMap<string, Member>): PlanApproval | undefined {
  const request = approvalOf(record);
  if (request === undefined) return undefined;
  const { id, callId } = request;
  const end = members.get(APPROVAL_KEY)?.end;
  const state = end === undefined ? 'pending' : end.status === 'success' ? 'approved' : 'refused';
  const { code, message } = end ?? {};
  const error = code === undefined || message === undefined ? {} : { error: { code, message } };
  return { approvalId: id, callId, state, ...error };
}

function stateOf(record: GroupRecord, members: ReadonlyMap<string, Member>): PlanState {
  const isOver = record.endedAtMs !== undefined;
  const phase = phaseOf(record);
  if (record.cancelledBy !== undefined) return isOver ? 'cancelled' : 'cancelling';
  const approval = members.get(APPROVAL_KEY);
  if (!isOver)
    return phase?.phase ?? (approval !== undefined && approval.end === undefined ? 'awaiting-approval' : 'running');
  if (phase === undefined) return 'done';
  // With a call in doubt, or one that could not be undone, the plan counts as not undone.
  const isUndone = [...members].every(
    ([key, { end }]) => end?.mayHaveHappened !== true && (!key.endsWith(UNDO) || end?.status === 'success'),
  );
  return phase.phase === 'undoing' && isUndone ? 'undone' : 'failed';
}
