/**
 * The events of a call, as its subscribers get them. They are rebuilt from the record and the kept progress, by any process. An event's ID
 * is its position in the call's life, so no process needs to remember what was sent.
 */
import { approvalId } from '../../shared/approvals/approval.ts';
import { envelopeOf } from '../../shared/calls/outcome.ts';
import type { CallRecord, KeptProgress } from '../../shared/store/calls/call-record.ts';

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
// Behind the end of the round before.
const REDRIVEN = 4;

export function callEvents(record: CallRecord, progress: readonly KeptProgress[]): readonly CallEvent[] {
  const { callId, phase, state, fence } = record;
  const { envelope } = record.request;
  const events: CallEvent[] = [];
  const add = (type: CallEvent['type'], position: Position, data: object) =>
    void events.push({ type, position, data: { callId, ...data } });
  // A decision that lets the call pass gives it another generation.
  const unapproved = record.approvalId === approvalId(callId, record.generation);
  const waits = unapproved || (state === 'inflight' && (phase === 'claimed' || phase === 'delayed'));
  if (record.approvalId !== undefined)
    add('approval-requested', APPROVAL, { tool: envelope.toolName, session: envelope.target.sessionKey });
  if (!waits)
    add('queued', QUEUED, {
      tool: envelope.toolName,
      session: envelope.target.sessionKey,
      createdAtMs: record.createdAtMs,
    });
  for (const { attempt, fence: own, worker, startedAtMs, delayMs, errorCode } of record.attempts) {
    add('attempt', [own, ATTEMPT, 0], { attempt, worker, startedAtMs });
    if (delayMs !== undefined) add('retrying', [own, RETRYING, 0], { attempt, delayMs, reasonCode: errorCode });
  }
  for (const [number, { id, by, atMs, code, attempts, fence: own }] of (record.redrives ?? []).entries())
    add('redriven', [own, REDRIVEN, number], { redriveId: id, by, atMs, code, attempts });
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
  for (const { fence: own, number, event } of progress) {
    const { progress: done, total, message } = event;
    // Progress of an attempt that the record does not know yet waits for the next reading.
    if (own <= fence) add('progress', [own, PROGRESS, number], { progress: done, total, message });
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

/** Undefined for what is not the ID of an event. */
export function parsePosition(text: string): Position | undefined {
  const [, fence, step, number] = POSITION.exec(text) ?? [];
  return fence === undefined ? undefined : [Number(fence), Number(step), Number(number)];
}
