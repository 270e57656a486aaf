import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { AgentMessage, AgentOrder } from '../../shared/tools/sub-agent.ts';

export interface SessionEventsOf<Own> {
  progress: [
    { readonly callId: string; readonly progress: number; readonly total?: number; readonly message?: string },
  ];
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
      /** The session whose channel shows it. */
      readonly shownIn: string;
    },
  ];
  'circuit-open': [{ readonly toolName: string; readonly retryAfterMs?: number }];
  queued: [{ readonly callId: string; readonly toolName: string }];
  settled: [ToolResultEnvelope];
  /** A call of this session started a sub-agent, or told one something (C18): answer with `reply`. Told to one listener, once. */
  agent: [AgentEventOf<Own>];
  /**
   * A session below this one, in whatever process, called a tool whose arguments stayed wrong, although its model was asked again
   * (A15). Who does not listen at that moment does not hear of it.
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

/** Of `session.events.on('agent', …)`. */
export interface AgentEventOf<Own> extends AgentOrder, AgentMessage {
  /** The agent's own session, of the kind worker: its calls go through it. */
  readonly session: Own;
}

export type InvalidParams = SessionEventsOf<never>['invalid-params'][0];
