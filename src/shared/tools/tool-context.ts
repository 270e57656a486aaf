/** The context of a running tool. */
import type { JsonSchema } from '../schema/json-schema.ts';
import type { CapabilityOwner, ToolCapabilities } from './capabilities.ts';
import type { PendingOptions, PendingResult } from './pending.ts';

/** The agent of a session, as its session describes it. */
export interface SessionAgent {
  readonly id: string;
  /** The name that people see. Default: the ID. */
  readonly name: string;
  readonly model?: string;
  /** Names, or an object that the agent's owner defines. They inform tools; only policy decides. */
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

/** The agent whose session makes the call, as the opener of the session described it. */
export interface CallingAgent extends SessionAgent {
  /** The tools that the session may call now, one of each name. */
  tools(): Promise<readonly AgentTool[]>;
}

export interface ToolContext extends ToolCapabilities, CapabilityOwner {
  readonly sessionKind: 'main' | 'branch' | 'worker';
  /** Undefined where the session names no agent, as in tests. */
  readonly agent?: CallingAgent;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  /** A number that grows with every attempt of the call. A sink that remembers the highest can refuse a stale writer. */
  readonly fence: number;
  /** A key that is equal in all attempts of the call. Send it downstream as the idempotency key. */
  readonly idempotencyKey: string;
  /** The signal is aborted on timeout, cancel, drain and a lost lease. `signal.reason` is a PawlError with the reason. */
  readonly signal: AbortSignal;
  readonly deadlineAtMs?: number;
  readonly trace: { readonly traceparent?: string };
  /** The operator's settings for this tool: `tools.NAME.config` of `pawl.config`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Values that hooks and the tool share during one attempt. Those that a `beforeCall` hook carried are there too. */
  readonly values: Map<string, unknown>;
  readonly log: ToolLogger;
  progress(progress: Progress): void;
  /**
   * Stores a JSON-serializable value of at most 64 KiB for the next attempt of this call, in place of the one before. Resolves when it is
   * written. Throws `CHECKPOINT_INVALID` for any other value, with its path, and `LEASE_LOST` when another attempt holds the call.
   *
   * @example
   * for (let page = (ctx.lastCheckpoint as number | undefined) ?? 0; page < pages; page += 1) {
   *   await copy(page);
   *   await ctx.checkpoint(page + 1);
   * }
   */
  checkpoint(value: unknown): Promise<void>;
  /** The last checkpoint of the attempts before this one; undefined when there is none. */
  readonly lastCheckpoint?: unknown;
  /**
   * The token with which an outside system completes this call: `POST /v1/completions/{token}` or `pawl.complete(token, …)`. Each
   * system that has it may complete the call, once in all. It holds for this attempt, and beyond it only when `run` returns
   * `ctx.pending`. An attempt that no longer holds the call has a token that completes nothing, and its `signal` is aborted.
   *
   * @example
   * await bank.order(invoice, { webhook: `https://pawl.example/v1/completions/${ctx.completionToken()}` });
   * return ctx.pending({ expiresInMs: 3_600_000 });
   */
  completionToken(): string;
  /**
   * Lets the call wait for an outside system, without a worker: `return ctx.pending({ expiresInMs: 3_600_000 })`. Throws a `ToolError`
   * `RESULT_INVALID` for wrong options.
   */
  pending(options: PendingOptions): PendingResult;
}
