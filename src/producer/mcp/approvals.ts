/**
 * A call that waits for a person's approval (A4). The request is on the operator's page. On this machine, without tokens, the person
 * at the client may decide as well, and is asked; whoever holds a token cannot approve what they asked for themselves.
 */
import type { Result, ServerContext } from '@modelcontextprotocol/server';
import { formatForDisplay, shownLine } from '../../shared/util/text/visible-text.ts';
import type { CallEvent } from '../calls/timeline.ts';
import type { Pawl } from '../client.ts';
import type { McpClient } from './request.ts';
import type { McpTool } from './tools.ts';

const STATE = /^approval\|([^|]+)\|(.+)$/s;
const QUESTION = 'approval';
const BY = 'local operator';

/** Calls back once the call turns out to wait for approval. The answer ends the looking. */
export function whenAsked(pawl: Pawl, callId: string, then: () => void): () => void {
  return pawl.follow(callId, {
    onEvents(events) {
      const has = (wanted: CallEvent['type']) => events.some(({ type }) => type === wanted);
      // One that was decided on has gone on: to the queue, or to its end.
      if (has('approval-requested') && !has('queued') && !has('settled')) then();
    },
    onEnd() {},
  });
}

/** What the client gets in place of a result: the question, or that it has to wait. */
export async function approvalAnswer(
  pawl: Pawl,
  client: McpClient,
  callId: string,
  published: McpTool,
): Promise<Result> {
  if (!client.canAsk.includes('elicitation') || !client.isLocal) return pendingResult(callId, published);
  const { record, digest } = await pawl.approvals.show(callId);
  const { request, preview } = record;
  const message = `Approve ${published.mcpName}? ${shownLine(preview?.summary ?? request.reason)}\n${formatForDisplay(request.params)}`;
  const decision = { type: 'string', enum: ['approve', 'deny'], description: 'It runs only if you approve it.' };
  const requestedSchema = { type: 'object', properties: { decision }, required: ['decision'] };
  return {
    resultType: 'input_required',
    inputRequests: { [QUESTION]: { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } } },
    requestState: `approval|${callId}|${digest}`,
  };
}

interface Decided {
  readonly callId: string;
  /** The person closed the question without an answer, and it is still for others to decide. */
  readonly isOpen: boolean;
}

/** Carries out the decision that a repeated request brings, if it is one. */
export async function decided(pawl: Pawl, client: McpClient, { mcpReq }: ServerContext): Promise<Decided | undefined> {
  const state = mcpReq.requestState<unknown>();
  const [, callId, digest] = (typeof state === 'string' && STATE.exec(state)) || [];
  if (callId === undefined || digest === undefined) return undefined;
  const record = await pawl.read(callId);
  if (!client.isLocal || record?.request.envelope.target.sessionKey !== client.sessionKey) return undefined;
  const response = mcpReq.inputResponses?.[QUESTION] as
    | { readonly action?: unknown; readonly content?: { readonly decision?: unknown } }
    | undefined;
  const { record: approval } = await pawl.approvals.show(callId);
  if (approval.state !== 'pending') return { callId, isOpen: false };
  if (response?.action === 'cancel') return { callId, isOpen: true };
  const isApproved = response?.action === 'accept' && response.content?.decision === 'approve';
  await pawl.approvals.decide(approval.request.id, { decision: isApproved ? 'approve' : 'deny', digest, by: BY });
  return { callId, isOpen: false };
}

/** What a client gets whose call is for others to approve. */
export function pendingResult(callId: string, { mcpName }: McpTool): Result {
  const text =
    `${mcpName} needs a person's approval and has not run yet. The request is with the session's approvers (call ${callId}). ` +
    'Go on with other work; ask again with the same arguments and idempotency key to learn what became of it.';
  return {
    isError: true,
    content: [{ type: 'text', text }],
    _meta: { 'pawl/callId': callId, 'pawl/phase': 'awaiting-approval' },
  };
}
