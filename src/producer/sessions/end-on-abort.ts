/** Ends a caller's wait when its signal is aborted. */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { refusal } from '../../shared/calls/outcome.ts';
import { onAbort } from '../../shared/util/wait.ts';
import type { PendingSubmission, Submission } from '../calls/submission.ts';

const CALLER_LEFT = {
  code: 'CANCELLED',
  message: 'The call goes on for those who asked before; this caller left.',
} as const;

/**
 * Cancels the caller's own call when the signal is aborted; a caller that joined another's call only stops waiting. The listener is
 * removed at the end: a signal may outlive thousands of calls.
 */
export function endOnAbort(
  submission: PendingSubmission,
  toolName: string,
  signal: AbortSignal,
  cancel: (callId: string) => Promise<unknown>,
): Submission {
  const { callId, merged = false } = submission;
  const abandoned = Promise.withResolvers<ToolResultEnvelope>();
  const stopListening = onAbort(signal, () => {
    if (!merged) return void cancel(callId).catch(() => {});
    submission.stop();
    abandoned.resolve(refusal(CALLER_LEFT, { ...submission, toolName }));
  });
  const result = Promise.race([submission.result, abandoned.promise]);
  result.finally(stopListening).catch(() => {});
  return { ...submission, result };
}
