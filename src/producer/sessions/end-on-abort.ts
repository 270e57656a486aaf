/** Ends a caller's wait when its signal is aborted. */

import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { refusal } from '../../shared/calls/outcome.ts';
import type { PendingSubmission, Submission } from '../calls/submission.ts';

const LEFT = { code: 'CANCELLED', message: 'The call goes on for those who asked before; this caller left.' } as const;

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
  const left = Promise.withResolvers<ToolResultEnvelope>();
  const end = () => {
    if (!merged) return void cancel(callId).catch(() => {});
    submission.stop();
    left.resolve(refusal(LEFT, { ...submission, toolName }));
  };
  if (signal.aborted) end();
  else signal.addEventListener('abort', end, { once: true });
  const result = Promise.race([submission.result, left.promise]);
  result.finally(() => signal.removeEventListener('abort', end)).catch(() => {});
  return { ...submission, result };
}
