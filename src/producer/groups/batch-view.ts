/** The serializer of batches, for programs and the API. */
import type { BatchDefinition, BatchEntryRecord, BatchState } from '../../shared/groups/batch.ts';
import type { GroupHead, Member } from '../../shared/groups/group.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { memberView } from './plan-view.ts';

/** The current state of a batch's entry. `record` is absent before its call is claimed, and after it has expired. */
export interface BatchCall {
  readonly entry: BatchEntryRecord;
  readonly member?: Member;
  readonly record?: CallRecord;
}

export interface Batch {
  readonly head: GroupHead;
  readonly definition: BatchDefinition;
  readonly state: BatchState;
  readonly endedAtMs?: number;
  readonly calls: readonly BatchCall[];
}

export type BatchView = ReturnType<typeof batchView>;

/** A batch, as `pawl.batches` and the API show it. */
export function batchView({ head, definition, state, calls, endedAtMs }: Batch) {
  const isOver = endedAtMs !== undefined;
  const views = calls.map((call) => batchCallView(call, isOver));
  const counts: Record<string, number> = { total: views.length };
  for (const view of views) counts[view.state] = (counts[view.state] ?? 0) + 1;
  return {
    batchId: head.id,
    state,
    counts,
    ...defined({ concurrency: definition.concurrency }),
    createdAtMs: head.createdAtMs,
    ...defined({ endedAtMs }),
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
    ...defined({ attempts: record?.attempts.length, message }),
  };
}
