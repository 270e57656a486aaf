/**
 * A group of calls: a batch, or a plan. Its record has the calls that have begun and their ends, so that any process can continue it. One
 * process at a time drives it, under a lease and a fence.
 */
import type { ToolCallEnvelope, ToolResultEnvelope } from '../calls/envelope.ts';
import type { ResultStatus } from '../errors/result-status.ts';

const GROUP_KINDS = ['batch', 'plan'] as const;
export type GroupKind = (typeof GROUP_KINDS)[number];

/** The largest number of calls of a batch, and of nodes of a plan. */
export const MAX_MEMBERS = 1_000;

/** The part of a group that never changes: its owner and its creation time. */
export interface GroupHead {
  readonly id: string;
  readonly kind: GroupKind;
  /** The tenant that may see it. */
  readonly tenantId?: string;
  /** The caller that submitted it, where the front door knows it. */
  readonly submittedBy?: string;
  readonly createdAtMs: number;
  /** The digest of the requested calls; for a group with an idempotency key. */
  readonly digest?: string;
}

/** One call of a group, as the group's record keeps it. It is written before the call is claimed, and again at its end. */
export interface Member {
  readonly callId?: string;
  readonly end?: MemberEnd;
}

export interface MemberEnd {
  readonly status: ResultStatus;
  readonly code?: string;
  readonly message?: string;
  readonly mayHaveHappened?: true;
  /** Counts the ends of a group, from 1. */
  readonly order: number;
}

/** A call of a plan that runs under the plan's approval. */
export interface PlannedCall {
  readonly approvalId: string;
  /** The key of the call in the plan. */
  readonly key: string;
  /** The sources outside of the fleet that the approver saw; absent for none. */
  readonly taint?: readonly string[];
}

/** The options of a call, beside its envelope. */
export interface CallExtras {
  /** The start of a delayed call. */
  readonly startAtMs?: number;
  readonly callbackUrl?: string;
}

/** A call that may begin now. */
export interface NextCall extends CallExtras {
  readonly key: string;
  readonly envelope: ToolCallEnvelope;
  readonly planned?: PlannedCall;
}

/** A step of a driver. A claim that names it is refused unless the step is written, and its driver still drives the group. */
export interface DriverStep {
  /** The key of the group's record. */
  readonly record: string;
  readonly fence: number;
  readonly number: number;
}

/** The values of a record that change, by field. */
export type GroupFields = ReadonlyMap<string, object>;

/** Decides the next calls of a group. It reads no clock and no store, so its rules can be tested alone. */
export interface GroupProgress {
  /** Calls that have begun and not ended, by key. */
  readonly running: ReadonlyMap<string, Member>;
  /** The calls that may begin now. */
  next(): Promise<readonly NextCall[]>;
  began(key: string, callId: string): void;
  /** `result`: absent for a call whose result is not needed any more. */
  ended(key: string, end: Omit<MemberEnd, 'order'>, callId: string | undefined, result?: ToolResultEnvelope): void;
  /** Begins no further call. */
  cancel(): void;
  /** Whether the calls that run should be cancelled now. */
  readonly cancelling: boolean;
  /** The changes since the last call of this method. */
  takeChanges(): GroupFields;
  /** Whether the group has ended. */
  readonly isOver: boolean;
}

export function memberField(key: string): string {
  return `call:${key}`;
}

export function decodeMembers(fields: Readonly<Record<string, object>>): Map<string, Member> {
  const members = new Map<string, Member>();
  for (const [field, value] of Object.entries(fields))
    if (field.startsWith('call:')) members.set(field.slice('call:'.length), value as Member);
  return members;
}

export function memberEnd(result: ToolResultEnvelope): Omit<MemberEnd, 'order'> {
  const { status, error } = result;
  if (error === undefined) return { status };
  const { code, message, mayHaveHappened } = error;
  return { status, code, message, ...(mayHaveHappened === true ? { mayHaveHappened } : {}) };
}
