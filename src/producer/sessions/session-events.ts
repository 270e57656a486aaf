import { type ApprovalRequest, digestOf } from '../../shared/approvals/approval.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { AgentMessage, AgentOrder } from '../../shared/tools/sub-agent.ts';
import type { Progress } from '../../shared/tools/tool-context.ts';

export interface SessionEventsOf<Own> {
  progress: [{ readonly callId: string } & Progress];
  /** The call waits for an outside system from now on. */
  pending: [{ readonly callId: string; readonly expiresAtMs: number }];
  retrying: [
    { readonly callId: string; readonly attempt: number; readonly delayMs: number; readonly reasonCode: string },
  ];
  /** A person has to decide before the call runs. */
  'approval-requested': [
    {
      readonly callId: string;
      readonly approvalId: string;
      readonly toolName: string;
      readonly digest: string;
      readonly expiresAtMs: number;
      /** The session whose channel shows the approval. */
      readonly shownIn: string;
    },
  ];
  'circuit-open': [{ readonly toolName: string; readonly retryAfterMs?: number }];
  queued: [{ readonly callId: string; readonly toolName: string }];
  settled: [ToolResultEnvelope];
  /** A call of this session started a sub-agent, or sent one a message: answer with `reply`. One listener receives it, once. */
  agent: [AgentEventOf<Own>];
  /**
   * A session below this one, in any process, called a tool whose arguments stayed invalid although its model was asked again. Only current
   * listeners receive it.
   */
  'invalid-params': [
    {
      readonly sessionKey: string;
      readonly toolName: string;
      readonly reasks: number;
      readonly result: ToolResultEnvelope;
    },
  ];
}

/** The argument of `session.events.on('agent', …)`. */
export interface AgentEventOf<Own> extends AgentOrder, AgentMessage {
  /** The agent's own session, of the kind worker: its calls go through it. */
  readonly session: Own;
}

export type InvalidParams = SessionEventsOf<never>['invalid-params'][0];

export function approvalEventOf(request: ApprovalRequest): SessionEventsOf<unknown>['approval-requested'][0] {
  const { id, callId, tool, expiresAtMs, route } = request;
  return {
    callId,
    approvalId: id,
    toolName: tool.name,
    digest: digestOf(request),
    expiresAtMs,
    shownIn: route.sessionKey,
  };
}
