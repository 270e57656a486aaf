/** What a running tool knows and may use (A8). */

import type { JsonSchema } from '../schema/json-schema.ts';
import type { ToolCapabilities } from './capabilities.ts';

/** The agent of a session, as its session describes it. */
export interface SessionAgent {
  readonly id: string;
  /** The name that people see. Default: the ID. */
  readonly name: string;
  readonly model?: string;
  /** Names, or an object in the words of the agent's owner. They inform tools; only policy decides. */
  readonly permissions?: readonly string[] | Readonly<Record<string, unknown>>;
}

export interface ToolLogger {
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void;
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

export interface Progress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

/** A tool that an agent's session may call. */
export interface AgentTool {
  readonly name: string;
  readonly namespace: string;
  readonly version: string;
  readonly description: string;
  readonly tier: 'read-only' | 'workspace' | 'system' | 'elevated';
  readonly inputSchema: JsonSchema;
}

/** The agent whose session makes the call, as whoever opened the session described it. */
export interface CallingAgent extends SessionAgent {
  /** What the session may call now, one of each name. */
  tools(): Promise<readonly AgentTool[]>;
}

export interface ToolContext extends ToolCapabilities {
  readonly callId: string;
  readonly sessionKey: string;
  readonly sessionKind: 'main' | 'branch' | 'worker';
  readonly agentId?: string;
  /** Undefined where the session names no agent, as in tests. */
  readonly agent?: CallingAgent;
  readonly actorId: string;
  readonly tenantId?: string;
  /** The model's turn that made the call, where the caller names it. */
  readonly turnId?: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Grows with every attempt of the call; a sink that remembers the highest it saw can refuse a stale writer. */
  readonly fence: number;
  /** Stable over all attempts of the call: send it downstream as the idempotency key. */
  readonly idempotencyKey: string;
  /** Aborted on timeout, cancel, drain and a lost lease. `signal.reason` is a PawlError that says which. */
  readonly signal: AbortSignal;
  readonly deadlineAtMs?: number;
  readonly trace: { readonly traceparent?: string };
  /** The operator's settings for this tool: `tools.NAME.config` of `pawl.config`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Shared between hooks and the tool during one attempt; what a `beforeCall` hook carried along is there (D8). */
  readonly values: Map<string, unknown>;
  readonly log: ToolLogger;
  progress(progress: Progress): void;
}
