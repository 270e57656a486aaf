/** The part that batches and plans share: the running calls, the ends of the others, and the changes that the record does not have yet. */
import { type GroupFields, type Member, type MemberEnd, memberField } from './group.ts';

export abstract class RunningMembers {
  readonly #all: Map<string, Member>;
  readonly #running = new Map<string, Member>();
  readonly #changes = new Map<string, object>();
  #order = 0;
  #cancelled = false;

  constructor(members: ReadonlyMap<string, Member>) {
    this.#all = new Map(members);
    for (const [key, member] of members) {
      if (member.end === undefined) this.#running.set(key, member);
      else this.#order = Math.max(this.#order, member.end.order);
    }
  }

  /** All calls that have begun, by key. */
  protected get members(): ReadonlyMap<string, Member> {
    return this.#all;
  }

  get running(): ReadonlyMap<string, Member> {
    return this.#running;
  }

  get cancelling(): boolean {
    return this.#cancelled;
  }

  cancel(): void {
    this.#cancelled = true;
  }

  began(key: string, callId: string): void {
    const member = { callId };
    this.#running.set(key, member);
    this.#set(key, member);
  }

  ended(key: string, end: Omit<MemberEnd, 'order'>, callId: string | undefined): void {
    this.#order += 1;
    this.#running.delete(key);
    this.#set(key, { ...(callId !== undefined && { callId }), end: { ...end, order: this.#order } });
  }

  #set(key: string, member: Member): void {
    this.#all.set(key, member);
    this.change(memberField(key), member);
  }

  protected change(field: string, value: object): void {
    this.#changes.set(field, value);
  }

  takeChanges(): GroupFields {
    const changes = new Map(this.#changes);
    this.#changes.clear();
    return changes;
  }
}
