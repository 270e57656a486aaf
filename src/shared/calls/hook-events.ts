/** The events that hooks receive, and the answers that they may give. */
import type { Failure } from '../errors/failure.ts';
import type { CapabilityOwner } from '../tools/capabilities.ts';
import type { Tool } from '../tools/tool.ts';
import type { ToolResult } from '../tools/tool-result.ts';
import type { ToolResultEnvelope } from './envelope.ts';

export const HOOK_KINDS = [
  'beforeCall',
  'beforeAttempt',
  'afterAttempt',
  'onRetry',
  'onShortCircuit',
  'onApproval',
  'afterCall',
] as const;

export type HookKind = (typeof HOOK_KINDS)[number];

export type HookedTool = Pick<Tool, 'name' | 'namespace' | 'version' | 'tier' | 'effects' | 'annotations'>;

/** The members of every hook's event. */
export interface HookEvent extends Omit<CapabilityOwner, 'callId'> {
  readonly tool: HookedTool;
  readonly params: Readonly<Record<string, unknown>>;
  readonly requestId: string;
  /** Absent before the call has its identity. */
  readonly callId?: string;
  /** Values that the hooks of one process share for one call; in a worker also with the tool, for one attempt (`ctx.values`). */
  readonly values: Map<string, unknown>;
  /** The signal is aborted when the hook's own time is over. */
  readonly signal: AbortSignal;
}

export interface BeforeCallEvent extends HookEvent {
  /** The caller's key, or the key that a hook before this one supplied. */
  readonly idempotencyKey?: string;
}

export interface BeforeCallAnswer {
  /** Refuses the call with this reason: `PERMISSION_DENIED`, nothing runs. */
  readonly deny?: string;
  /** Replaces the parameters. They are validated like those of the caller. */
  readonly params?: Readonly<Record<string, unknown>>;
  /** The key for a call whose caller gave none. */
  readonly idempotencyKey?: string;
  readonly hints?: {
    readonly timeoutMs?: number;
    readonly expectedRetrySafe?: boolean;
    readonly safetyCritical?: boolean;
  };
  /** Values for the worker, where its hooks and the tool find them in `values`. */
  readonly carry?: Readonly<Record<string, string>>;
}

export interface AttemptEvent extends HookEvent {
  readonly callId: string;
  /** 1 for the first. */
  readonly attempt: number;
  readonly fence: number;
}

export interface BeforeAttemptAnswer {
  /** Ends the call with this reason: `PERMISSION_DENIED`, the tool does not run. */
  readonly deny?: string;
  /** Replaces the parameters. Schema and policy are checked again. */
  readonly params?: Readonly<Record<string, unknown>>;
}

export interface AfterAttemptEvent extends AttemptEvent {
  readonly ending:
    | { readonly kind: 'value'; readonly result: ToolResult<unknown> }
    | { readonly kind: 'failure' | 'aborted'; readonly code: string; readonly message: string };
}

export interface AfterAttemptAnswer {
  /** Replaces the tool's result; ignored when there is none. */
  readonly result?: ToolResult<unknown>;
}

export interface RetryEvent extends AttemptEvent {
  readonly failure: Failure;
  readonly delayMs: number;
}

export interface RetryAnswer {
  /** Prevents a further attempt: the call ends with the failure that it has. */
  readonly deny?: string;
}

/**
 * The reason for which no attempt ran for this caller. `refused` includes refusals by a person or a worker. `too-late`: the deadline
 * passed before an attempt.
 */
export type ShortCircuit = 'replayed' | 'merged' | 'circuit-open' | 'refused' | 'cancelled' | 'too-late';

export interface ShortCircuitEvent extends HookEvent {
  readonly reason: ShortCircuit;
  /** The caller's result; absent while a merged call runs. */
  readonly result?: ToolResultEnvelope;
}

/** Once approved, `params` are the approved ones, which the approver may have edited. */
export interface ApprovalEvent extends HookEvent {
  readonly callId: string;
  readonly approvalId: string;
  readonly state: 'requested' | 'approved' | 'denied' | 'expired' | 'cancelled';
  readonly preview?: { readonly summary: string; readonly details?: string };
  /** The approver; `reason` is the approver's text. */
  readonly decidedBy?: string;
  readonly reason?: string;
}

export interface ApprovalAnswer {
  /** Denies a requested approval without asking a person. A hook can never approve. */
  readonly deny?: string;
}

export interface AfterCallEvent extends HookEvent {
  readonly result: ToolResultEnvelope;
}

export interface AfterCallAnswer {
  /** Replaces `output.content` of a success, for this caller alone. The record stays as it is. */
  readonly content?: unknown;
  /** Members for `output.metadata` of a success. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}
