/**
 * The events of a call. Any process can rebuild them from the record and the retained progress. An event's ID is its position in the
 * call's life, so no process has to store what was sent.
 */
import { approvalId } from '../../shared/approvals/approval.ts';
import { envelopeOf } from '../../shared/calls/outcome.ts';
import type { CallRecord, StoredProgress } from '../../shared/store/calls/call-record.ts';

export const CALL_EVENT_TYPES = [
  'approval-requested',
  'queued',
  'attempt',
  'progress',
  'pending',
  'retrying',
  'redriven',
  'settled',
] as const;

/** Fence of the attempt, step within it, number within the step: later events have greater positions. */
export type Position = readonly [fence: number, step: number, number: number];

export interface CallEvent {
  readonly type: (typeof CALL_EVENT_TYPES)[number];
  readonly position: Position;
  readonly data: Readonly<Record<string, unknown>>;
}

// Before the first attempt the fence is 0.
const APPROVAL: Position = [0, 0, 0];
const QUEUED: Position = [0, 1, 0];
const ATTEMPT = 0;
const PROGRESS = 1;
const RETRYING = 2;
const SETTLED = 3;
// A redrive follows the end of the previous round.
const REDRIVEN = 4;

export function callEvents(record: CallRecord, progress: readonly StoredProgress[]): readonly CallEvent[] {
  const { callId, phase, state, fence } = record;
  const { envelope } = record.request;
  const events: CallEvent[] = [];
  const add = (type: CallEvent['type'], position: Position, data: object) =>
    void events.push({ type, position, data: { callId, ...data } });
  // An approved call has another generation than its approval.
  const unapproved = record.approvalId === approvalId(callId, record.generation);
  const isWaiting = unapproved || (state === 'inflight' && (phase === 'claimed' || phase === 'delayed'));
  if (record.approvalId !== undefined)
    add('approval-requested', APPROVAL, { tool: envelope.toolName, session: envelope.target.sessionKey });
  if (!isWaiting)
    add('queued', QUEUED, {
      tool: envelope.toolName,
      session: envelope.target.sessionKey,
      createdAtMs: record.createdAtMs,
    });
  for (const { attempt, fence: attemptFence, worker, startedAtMs, delayMs, errorCode } of record.attempts) {
    add('attempt', [attemptFence, ATTEMPT, 0], { attempt, worker, startedAtMs });
    if (delayMs !== undefined)
      add('retrying', [attemptFence, RETRYING, 0], { attempt, delayMs, reasonCode: errorCode });
  }
  for (const [number, { id, by, atMs, code, attempts, fence: attemptFence }] of (record.redrives ?? []).entries())
    add('redriven', [attemptFence, REDRIVEN, number], { redriveId: id, by, atMs, code, attempts });
  if (state === 'inflight' && phase === 'running')
    add('attempt', [fence, ATTEMPT, 0], {
      attempt: record.attempts.length + 1,
      worker: record.worker,
      startedAtMs: record.startedAtMs,
    });
  if (state === 'inflight' && phase === 'pending')
    add('pending', [fence, PROGRESS, record.pendingNumber ?? 0], {
      attempt: record.attempts.length,
      expiresAtMs: record.pendingUntilMs,
    });
  for (const { fence: attemptFence, number, event } of progress) {
    const { progress: completed, total, message } = event;
    // Progress of an attempt that is not in the record yet is emitted by the next read.
    if (attemptFence <= fence)
      add('progress', [attemptFence, PROGRESS, number], { progress: completed, total, message });
  }
  if (state !== 'inflight' && record.outcome !== undefined)
    add('settled', [fence, SETTLED, record.version], {
      state,
      result: envelopeOf(record.outcome, { requestId: envelope.requestId, toolName: envelope.toolName, callId }),
    });
  return events.sort((a, b) => compare(a.position, b.position));
}

export function compare(a: Position, b: Position): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
}

export function formatPosition(position: Position): string {
  return position.join('.');
}

const POSITION = /^(\d{1,15})\.(\d)\.(\d{1,15})$/;

/** Undefined when the text is not an event's ID. */
export function parsePosition(text: string): Position | undefined {
  const [, fence, step, number] = POSITION.exec(text) ?? [];
  return fence === undefined ? undefined : [Number(fence), Number(step), Number(number)];
}
