/** A batch: calls that are submitted together, each with an outcome of its own. */
import type { ToolCallEnvelope } from '../calls/envelope.ts';
import type { Issue } from '../errors/failure.ts';
import { defined } from '../util/json/omit-undefined.ts';
import {
  type CallExtras,
  type GroupProgress,
  type Member,
  type MemberEnd,
  memberField,
  type NextCall,
} from './group.ts';

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
  readonly #changes = new Map<string, object>();
  readonly #running = new Map<string, Member>();
  /** The first entry that has not begun. */
  #at = 0;
  #order: number;
  #cancelled = false;
  readonly #known: ReadonlyMap<string, Member>;

  constructor(definition: BatchDefinition, members: ReadonlyMap<string, Member>) {
    this.#definition = definition;
    this.#known = members;
    this.#order = 0;
    for (const [key, member] of members) {
      if (member.end === undefined) this.#running.set(key, member);
      else this.#order = Math.max(this.#order, member.end.order);
    }
  }

  get running(): ReadonlyMap<string, Member> {
    return this.#running;
  }

  get cancelling(): boolean {
    return this.#cancelled;
  }

  async next(): Promise<readonly NextCall[]> {
    const { entries, concurrency = entries.length } = this.#definition;
    const calls: NextCall[] = [];
    while (!this.#cancelled && this.#at < entries.length && this.#running.size + calls.length < concurrency) {
      const key = String(this.#at);
      const entry = entries[this.#at];
      this.#at += 1;
      if (entry?.envelope !== undefined && !this.#known.has(key)) calls.push(entryCall(key, entry));
    }
    return calls;
  }

  began(key: string, callId: string): void {
    const member = { callId };
    this.#running.set(key, member);
    this.#changes.set(memberField(key), member);
  }

  ended(key: string, end: Omit<MemberEnd, 'order'>, callId: string | undefined): void {
    this.#order += 1;
    this.#running.delete(key);
    const named = callId === undefined ? {} : { callId };
    this.#changes.set(memberField(key), { ...named, end: { ...end, order: this.#order } });
  }

  cancel(): void {
    this.#cancelled = true;
  }

  takeChanges(): ReadonlyMap<string, object> {
    const changes = new Map(this.#changes);
    this.#changes.clear();
    return changes;
  }

  get isOver(): boolean {
    if (this.#running.size > 0) return false;
    return this.#cancelled || this.#at >= this.#definition.entries.length;
  }
}
