/** A call that waits for a person's approval (A4): the client is told so at once, and the call goes on without it. */
import type { Result } from '@modelcontextprotocol/server';
import type { Pawl } from '../client.ts';
import type { McpOffer } from './tools.ts';

/** Answers as soon as the call turns out to wait for approval. The answer ends the looking. */
export function awaitApproval(
  pawl: Pawl,
  callId: string,
  offer: McpOffer,
  answer: (result: Result) => void,
): () => void {
  return pawl.follow(callId, {
    onEvents(events) {
      if (events.some(({ type }) => type === 'approval-requested')) answer(pendingResult(callId, offer));
    },
    onEnd() {},
  });
}

function pendingResult(callId: string, { mcpName }: McpOffer): Result {
  const text =
    `${mcpName} needs a person's approval and has not run yet. The request is with the session's approvers (call ${callId}). ` +
    'Go on with other work; ask again with the same arguments and idempotency key to learn what became of it.';
  return {
    isError: true,
    content: [{ type: 'text', text }],
    _meta: { 'pawl/callId': callId, 'pawl/phase': 'awaiting-approval' },
  };
}
