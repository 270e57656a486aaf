/** `ctx.completionToken` and `ctx.pending` of one attempt. */
import { randomBytes } from 'node:crypto';
import { completionToken, TOKEN_BYTES } from '../../shared/calls/completion.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { PendingRecords } from '../../shared/store/ports.ts';
import { pendingResult } from '../../shared/tools/pending.ts';
import type { ToolContext } from '../../shared/tools/tool.ts';
import { type Attempt, timeLimitMs } from '../attempt/attempt-state.ts';
import { termsOf } from '../attempt/completion-terms.ts';

/** An attempt has one token, which is made when it is first needed. */
export function completionOf(
  attempt: Attempt,
  records: Pick<PendingRecords, 'issue'>,
): Pick<ToolContext, 'completionToken' | 'pending'> {
  const { callId, started, tool } = attempt;
  let made: string | undefined;
  let issued: Promise<string> | undefined;
  const token = () => {
    made ??= completionToken(callId, randomBytes(TOKEN_BYTES));
    return made;
  };
  const issue = async () => {
    const attemptMs = timeLimitMs(attempt, tool);
    const answer = await records.issue({
      callId,
      fence: started.fence,
      token: token(),
      terms: termsOf(attempt),
      attemptMs,
    });
    if (answer !== 'issued')
      throw new PawlError('LEASE_LOST', 'The attempt no longer holds its call: it has no token.');
    return token();
  };
  return {
    completionToken: () => {
      // One that failed, because Redis was away, is tried again.
      issued ??= issue().catch((error: unknown) => {
        issued = undefined;
        throw error;
      });
      return issued;
    },
    pending: (options) => pendingResult(tool, token(), options),
  };
}
