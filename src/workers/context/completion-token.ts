/** `ctx.completionToken` and `ctx.pending` of one attempt. */
import { randomBytes } from 'node:crypto';
import { completionToken, TOKEN_BYTES } from '../../shared/calls/completion.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { PendingRecords } from '../../shared/store/ports.ts';
import { pendingResult } from '../../shared/tools/pending.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import { type Attempt, termsOf, timeLimitMs } from '../attempt/attempt-state.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';

export interface CompletionTokenDeps {
  readonly completions: Pick<PendingRecords, 'issue'>;
  readonly writes: Pick<AttemptWrites, 'retry'>;
}

/**
 * An attempt has one token, which is created at its first use. The write that registers it is sent before the tool can pass the token
 * on, and is repeated while Redis is unavailable. `ctx.pending` registers it as well.
 */
export function completionOf(
  attempt: Attempt,
  { completions, writes }: CompletionTokenDeps,
): Pick<ToolContext, 'completionToken' | 'pending'> {
  const { callId, started, tool, running } = attempt;
  let cachedToken: string | undefined;
  const getToken = () => {
    cachedToken ??= completionToken(callId, randomBytes(TOKEN_BYTES));
    return cachedToken;
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
      const token = getToken();
      // If this write fails, `ctx.pending` registers the token.
      if (!isIssued) issue(token).catch(() => {});
      isIssued = true;
      return token;
    },
    pending: (options) => pendingResult(tool, getToken(), options),
  };
}
