/**
 * A call that waits for a person's approval. The operator's page shows the request. Without tokens, the client asks the person at this
 * machine as well. A client with a token cannot approve its own calls.
 */
import type { Result, ServerContext } from '@modelcontextprotocol/server';
import { escapeLine, formatForDisplay } from '../../shared/util/text/visible-text.ts';
import type { CallEvent } from '../calls/timeline.ts';
import type { Pawl } from '../client.ts';
import type { McpClient } from './request.ts';
import type { McpTool } from './tools.ts';

const STATE = /^approval\|([^|]+)\|(.+)$/s;
const QUESTION = 'approval';
const DECIDED_BY = 'local operator';

/** Calls back once the call waits for approval. The returned function ends the subscription. */
export function onApprovalRequested(pawl: Pawl, callId: string, callback: () => void): () => void {
  return pawl.follow(callId, {
    onEvents(events) {
      const has = (eventType: CallEvent['type']) => events.some(({ type }) => type === eventType);
      // A call that was decided on has been queued or settled since.
      if (has('approval-requested') && !has('queued') && !has('settled')) callback();
    },
    onEnd() {},
  });
}

/** The reply in place of a result: the question whether to approve the call, or a text that says to wait. */
export async function approvalReply(pawl: Pawl, client: McpClient, callId: string, tool: McpTool): Promise<Result> {
  if (!client.canAsk.includes('elicitation') || !client.isLocal) return awaitingApprovalReply(callId, tool);
  const { record, digest } = await pawl.approvals.show(callId);
  const { request, preview } = record;
  const message = `Approve ${tool.mcpName}? ${escapeLine(preview?.summary ?? request.reason)}\n${formatForDisplay(request.params)}`;
  const decision = { type: 'string', enum: ['approve', 'deny'], description: 'It runs only if you approve it.' };
  const requestedSchema = { type: 'object', properties: { decision }, required: ['decision'] };
  return {
    resultType: 'input_required',
    inputRequests: { [QUESTION]: { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } } },
    requestState: `approval|${callId}|${digest}`,
  };
}

interface AppliedDecision {
  readonly callId: string;
  /** The person closed the question without an answer, so the approval is still pending. */
  readonly isOpen: boolean;
}

/** Applies the decision that a repeated request carries; undefined for any other request. */
export async function applyDecision(
  pawl: Pawl,
  client: McpClient,
  { mcpReq }: ServerContext,
): Promise<AppliedDecision | undefined> {
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
  await pawl.approvals.decide(approval.request.id, {
    decision: isApproved ? 'approve' : 'deny',
    digest,
    by: DECIDED_BY,
  });
  return { callId, isOpen: false };
}

/** The reply to a client that cannot approve its call itself. */
export function awaitingApprovalReply(callId: string, { mcpName }: McpTool): Result {
  const text =
    `${mcpName} needs a person's approval and has not run yet. The request is with the session's approvers (call ${callId}). ` +
    'Go on with other work; ask again with the same arguments and idempotency key to learn what became of it.';
  return {
    isError: true,
    content: [{ type: 'text', text }],
    _meta: { 'pawl/callId': callId, 'pawl/phase': 'awaiting-approval' },
  };
}
