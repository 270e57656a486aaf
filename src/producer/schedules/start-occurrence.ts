/** Submits the call of an occurrence: an ordinary call of the schedule's session, whose idempotency key is the schedule and the time. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import type { ScheduleRecord } from '../../shared/schedules/schedule.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { systemClock } from '../../shared/util/time.ts';
import { callEnvelope, callTargetOf } from '../calls/call-envelope.ts';
import type { PendingSubmission, Submission } from '../calls/submission.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import type { SessionService } from '../sessions/session-service.ts';

export interface StartDeps {
  readonly sessions: Pick<SessionService, 'find'>;
  readonly submitter: Pick<CallSubmitter, 'submit'>;
}

/** The started call, or the refusal. */
export type StartedOccurrence =
  | { readonly kind: 'started'; readonly callId: string; readonly pending?: PendingSubmission }
  | { readonly kind: 'refused'; readonly error: PawlError };

/** The envelope of a schedule's call in its session. The tool finds the schedule and the time in `ctx.values`. */
export function scheduledEnvelope(
  session: SessionRecord,
  { id, tool, params }: ScheduleRecord,
  key: string,
  atMs: number,
): ToolCallEnvelope {
  const baggage = { schedule: id, scheduledAt: new Date(atMs).toISOString() };
  const options = { namespace: tool.namespace, idempotencyKey: key, baggage };
  return callEnvelope(callTargetOf(session), tool.name, params, options, systemClock);
}

/** Throws `BACKEND_UNAVAILABLE` when Redis did not answer: the call may exist, and is submitted again under the same key. */
export async function startOccurrence(
  deps: StartDeps,
  record: ScheduleRecord,
  key: string,
  atMs: number,
): Promise<StartedOccurrence> {
  try {
    const session = await deps.sessions.find(record.sessionKey);
    const options = defined({ session: session.record, submittedBy: record.submittedBy });
    return startedBy(await deps.submitter.submit(scheduledEnvelope(session.record, record, key, atMs), options));
  } catch (error) {
    if (!isRefusalError(error)) throw error;
    return { kind: 'refused', error };
  }
}

function startedBy(submission: Submission): StartedOccurrence {
  const { callId } = submission;
  if (submission.kind === 'pending') return { kind: 'started', callId: submission.callId, pending: submission };
  const { status, error, fromCache } = submission.result;
  const isConflict = error?.code === 'IDEMPOTENCY_CONFLICT';
  if (callId !== undefined && !isConflict && (status === 'success' || fromCache)) return { kind: 'started', callId };
  if (error === undefined) return { kind: 'started', callId: callId ?? '' };
  const { code, message, issues } = error;
  return { kind: 'refused', error: new PawlError(code as PawlError['code'], message, defined({ issues })) };
}
