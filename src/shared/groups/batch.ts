/** A batch: calls that are submitted together, each with its own outcome. */
import type { ToolCallEnvelope } from '../calls/envelope.ts';
import type { Issue } from '../errors/failure.ts';
import { defined } from '../util/json/omit-undefined.ts';
import type { CallExtras, GroupProgress, Member, NextCall } from './group.ts';
import { RunningMembers } from './running-members.ts';

/** An entry of a batch as it was accepted, or the reason why it was refused. */
export type BatchEntryRecord =
  | (CallExtras & { readonly envelope: ToolCallEnvelope; readonly callId: string; readonly error?: undefined })
  | { readonly error: BatchEntryError; readonly envelope?: undefined };

export interface BatchEntryError {
  readonly code: string;
  readonly message: string;
  /** Each path begins with the entry's index: `calls.3.params.city`. */
  readonly issues?: readonly Issue[];
}

export interface BatchDefinition {
  readonly entries: readonly BatchEntryRecord[];
  /** The number of its calls that are in flight at a time. Absent: all of them. */
  readonly concurrency?: number;
}

export const BATCH_STATES = ['running', 'cancelling', 'done', 'cancelled'] as const;
export type BatchState = (typeof BATCH_STATES)[number];

/** The idempotency key of a batch's call without a key of its caller. It is the same in every process. */
export function batchKey(batchId: string, index: number): string {
  return `${batchId}:${index}`;
}

/** The call of an entry, as its driver submits it. */
export function entryCall(
  key: string,
  { envelope, startAtMs, callbackUrl }: Extract<BatchEntryRecord, { readonly callId: string }>,
): NextCall {
  return { key, envelope, ...defined({ startAtMs, callbackUrl }) };
}

export class BatchProgress extends RunningMembers implements GroupProgress {
  readonly #definition: BatchDefinition;
  /** The first entry that has not begun. */
  #nextIndex = 0;

  constructor(definition: BatchDefinition, members: ReadonlyMap<string, Member>) {
    super(members);
    this.#definition = definition;
  }

  async next(): Promise<readonly NextCall[]> {
    const { entries, concurrency = entries.length } = this.#definition;
    const calls: NextCall[] = [];
    while (!this.cancelling && this.#nextIndex < entries.length && this.running.size + calls.length < concurrency) {
      const key = String(this.#nextIndex);
      const entry = entries[this.#nextIndex];
      this.#nextIndex += 1;
      if (entry?.envelope !== undefined && !this.members.has(key)) calls.push(entryCall(key, entry));
    }
    return calls;
  }

  get isOver(): boolean {
    return this.running.size === 0 && (this.cancelling || this.#nextIndex >= this.#definition.entries.length);
  }
}
