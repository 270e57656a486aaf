/** A batch: calls that are submitted together, each with an outcome of its own. */
import type { ToolCallEnvelope } from '../calls/envelope.ts';
import type { Issue } from '../errors/failure.ts';
import { defined } from '../util/json/omit-undefined.ts';
import type { CallExtras, GroupFields, GroupProgress, Member, MemberEnd, NextCall } from './group.ts';
import { RunningMembers } from './running-members.ts';

/** An entry of a batch as it was accepted, or the reason why it was refused. */
export type BatchEntryRecord =
  | (CallExtras & { readonly envelope: ToolCallEnvelope; readonly callId: string; readonly error?: undefined })
  | { readonly error: BatchEntryError; readonly envelope?: undefined };

export interface BatchEntryError {
  readonly code: string;
  readonly message: string;
  /** Each path begins with the entry's place: `calls.3.params.city`. */
  readonly issues?: readonly Issue[];
}

export interface BatchDefinition {
  readonly entries: readonly BatchEntryRecord[];
  /** So many of its calls are in flight at once. Absent: all of them. */
  readonly concurrency?: number;
}

export const BATCH_STATES = ['running', 'cancelling', 'done', 'cancelled'] as const;
export type BatchState = (typeof BATCH_STATES)[number];

/** The key that a call of a batch has when its caller gives none: it names the call in every process. */
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

export class BatchProgress implements GroupProgress {
  readonly #definition: BatchDefinition;
  readonly #members: RunningMembers;
  /** The first entry that has not begun. */
  #at = 0;
  #cancelled = false;

  constructor(definition: BatchDefinition, members: ReadonlyMap<string, Member>) {
    this.#definition = definition;
    this.#members = new RunningMembers(members);
  }

  get running(): ReadonlyMap<string, Member> {
    return this.#members.running;
  }

  get cancelling(): boolean {
    return this.#cancelled;
  }

  async next(): Promise<readonly NextCall[]> {
    const { entries, concurrency = entries.length } = this.#definition;
    const calls: NextCall[] = [];
    while (!this.#cancelled && this.#at < entries.length && this.running.size + calls.length < concurrency) {
      const key = String(this.#at);
      const entry = entries[this.#at];
      this.#at += 1;
      if (entry?.envelope !== undefined && !this.#members.all.has(key)) calls.push(entryCall(key, entry));
    }
    return calls;
  }

  began(key: string, callId: string): void {
    this.#members.began(key, callId);
  }

  ended(key: string, end: Omit<MemberEnd, 'order'>, callId: string | undefined): void {
    this.#members.ended(key, end, callId);
  }

  cancel(): void {
    this.#cancelled = true;
  }

  takeChanges(): GroupFields {
    return this.#members.takeChanges();
  }

  get isOver(): boolean {
    if (this.running.size > 0) return false;
    return this.#cancelled || this.#at >= this.#definition.entries.length;
  }
}
