/** Serializers of batches, for the API and the commands. */
import type { MemberEnd } from '../../../shared/groups/group.ts';
import type { CallRecord } from '../../../shared/store/calls/call-record.ts';
import type { Batch, BatchCall } from '../../groups/batches.ts';
import { memberEndView } from '../../groups/plan-view.ts';
import { phaseOf } from './views.ts';

/** The state of a group's call: from its own record, or from the group's note of its end. */
export function memberView(
  record: CallRecord | undefined,
  end: MemberEnd | undefined,
): { readonly state: string; readonly phase: string; readonly status?: string; readonly errorCode?: string } {
  if (record !== undefined) {
    const { state, outcome } = record;
    const isOver = outcome !== undefined && state !== 'inflight';
    return {
      state,
      phase: phaseOf(record),
      ...(isOver ? { status: outcome.status } : {}),
      ...(isOver && outcome.error !== undefined ? { errorCode: outcome.error.code } : {}),
    };
  }
  return memberEndView(end);
}

export function batchView({ head, definition, state, calls, endedAtMs }: Batch) {
  const isOver = endedAtMs !== undefined;
  const views = calls.map((call) => batchCallView(call, isOver));
  const counts: Record<string, number> = { total: views.length };
  for (const view of views) counts[view.state] = (counts[view.state] ?? 0) + 1;
  const { concurrency } = definition;
  return {
    batchId: head.id,
    state,
    counts,
    ...(concurrency === undefined ? {} : { concurrency }),
    createdAtMs: head.createdAtMs,
    ...(endedAtMs === undefined ? {} : { endedAtMs }),
    calls: views,
  };
}

function batchCallView({ entry, member, record }: BatchCall, isOver: boolean) {
  if (entry.error !== undefined) return { state: 'refused', phase: 'refused', error: entry.error };
  const { envelope, callId } = entry;
  const { message } = member?.end ?? {};
  const view = memberView(record, member?.end);
  // A waiting call of a batch that has ended was cancelled.
  const stateAndPhase = isOver && view.state === 'waiting' ? { state: 'cancelled', phase: 'cancelled' } : view;
  return {
    callId: member?.callId ?? callId,
    tool: envelope.toolName,
    session: envelope.target.sessionKey,
    ...stateAndPhase,
    ...(record?.attempts === undefined ? {} : { attempts: record.attempts.length }),
    ...(message === undefined ? {} : { message }),
  };
}
