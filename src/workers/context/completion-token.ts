/** `ctx.completionToken` and `ctx.pending` of one attempt. */
import { randomBytes } from 'node:crypto';
import { completionToken, TOKEN_BYTES } from '../../shared/calls/completion.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { PendingRecords } from '../../shared/store/ports.ts';
import { pendingResult } from '../../shared/tools/pending.ts';
import type { ToolContext } from '../../shared/tools/tool.ts';
import { type Attempt, timeLimitMs } from '../attempt/attempt-state.ts';
import { termsOf } from '../attempt/completion-terms.ts';
import type { LeaseWrites } from '../attempt/retry-write.ts';

export interface CompletionTokenDeps {
  readonly completions: Pick<PendingRecords, 'issue'>;
  readonly writes: Pick<LeaseWrites, 'retry'>;
}

/**
 * An attempt has one token, which is made when it is first needed. The write that makes it known goes out before the tool can pass the
 * token on, and is repeated while Redis is away. `ctx.pending` makes it known, too.
 */
export function completionOf(
  attempt: Attempt,
  { completions, writes }: CompletionTokenDeps,
): Pick<ToolContext, 'completionToken' | 'pending'> {
  const { callId, started, tool, running } = attempt;
  let made: string | undefined;
  const make = () => {
    made ??= completionToken(callId, randomBytes(TOKEN_BYTES));
    return made;
  };
  let isIssued = false;
  const issue = async (token: string) => {
    const attemptMs = timeLimitMs(attempt, tool);
    const issued = { callId, fence: started.fence, token, terms: termsOf(attempt), attemptMs };
    const answer = await writes.retry(running, async () => (running.isOver ? 'ended' : completions.issue(issued)));
    if (answer === 'fenced')
      running.abort(new PawlError('LEASE_LOST', 'Another attempt holds the call: its token is void.'));
  };
  return {
    completionToken: () => {
      const token = make();
      // A write that fails leaves the token to `ctx.pending`.
      if (!isIssued) issue(token).catch(() => {});
      isIssued = true;
      return token;
    },
    pending: (options) => pendingResult(tool, make(), options),
  };
}
