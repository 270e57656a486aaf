/**
 * The batches and plans that this process drives, and the watch over those that no process drives any more. A front door takes such groups;
 * a program's client drives those that it made.
 */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { GroupFields, GroupHead, GroupKind, GroupProgress } from '../../shared/groups/group.ts';
import type { GroupRecord, TakenGroup } from '../../shared/store/groups/groups.ts';
import type { GroupStore } from '../../shared/store/ports.ts';
import { type GroupCall, type GroupCalls, GroupDriver } from './group-driver.ts';

/** How a kind of group decides what comes next. */
export interface GroupRules {
  progressOf(group: TakenGroup): GroupProgress;
  /** A call that has begun, should it have to be submitted again. */
  callOf(
    group: TakenGroup,
    progress: GroupProgress,
    key: string,
  ): GroupCall | undefined | Promise<GroupCall | undefined>;
}

export interface NewGroup {
  readonly fields?: GroupFields;
  /** Receives the results of its calls, as long as this process drives it. */
  readonly results?: Map<string, ToolResultEnvelope>;
  /** Runs once the record is written; the caller waits for it. */
  open?(): Promise<unknown>;
}

export interface GroupRunnerDeps {
  readonly records: GroupStore;
  readonly rules: Readonly<Record<GroupKind, GroupRules>>;
  readonly calls: GroupCalls;
  readonly keptMs: number;
  /** This process has brought a group to its end. */
  onEnded(record: GroupRecord): void;
  /** Redis' clock. */
  now(): Promise<number>;
  onError(error: Error): void;
}

/** So many groups are taken in one look. */
const TAKEN_TOGETHER = 20;
/** How often a waiter reads the record of a group that another process drives. */
const LOOK_MS = 2_000;

export class GroupRunner {
  readonly #deps: GroupRunnerDeps;
  readonly #driven = new Map<string, GroupDriver>();
  readonly #waiting = new Map<string, Set<(ended?: GroupRecord) => void>>();
  readonly #timer: NodeJS.Timeout;
  #takesOthers = false;
  #looking = false;
  #closed = false;

  constructor(deps: GroupRunnerDeps) {
    this.#deps = deps;
    this.#timer = setInterval(() => this.#tick(), deps.records.leaseMs / 3);
    this.#timer.unref();
  }

  /** From now on, this process also takes groups whose driver died. */
  takeOthers(): void {
    this.#takesOthers = true;
    this.#tick();
  }

  /** Writes a new group and drives it. False when there is one of its ID. */
  async create(head: GroupHead, definition: object, { fields, results, open }: NewGroup = {}): Promise<boolean> {
    const group = await this.#deps.records.create(head, definition, fields);
    if (group === undefined) return false;
    await open?.();
    this.#drive(group, results);
    return true;
  }

  /** Another process has changed the group, or it is over. */
  hear(id: string): void {
    const driven = this.#driven.get(id);
    if (driven !== undefined) void driven.renew();
    else for (const look of this.#waiting.get(id) ?? []) look();
    if (driven === undefined && this.#takesOthers) this.#tick();
  }

  /** Resolves with the record of a group when it is over, in whichever process. Throws `NOT_FOUND`. */
  async ended(id: string): Promise<GroupRecord> {
    for (;;) {
      if (this.#closed) throw new PawlError('BACKEND_UNAVAILABLE', 'The client was closed while it waited.');
      const heard = this.#nextLook(id);
      if (!this.#driven.has(id)) {
        const record = await this.#deps.records.read(id);
        if (record === undefined) throw new PawlError('NOT_FOUND', `There is no ${id} any more.`);
        if (record.endedAtMs !== undefined) return record;
        // This process made it, or waits for it: it may go on with it.
        await this.#take(id);
      }
      const ended = await heard;
      if (ended !== undefined) return ended;
    }
  }

  /** Resolves when the group should be looked at, with its record when this process has brought it to its end. */
  #nextLook(id: string): Promise<GroupRecord | undefined> {
    const { promise, resolve } = Promise.withResolvers<GroupRecord | undefined>();
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting);
    const timer = setTimeout(() => resolve(undefined), LOOK_MS);
    waiting.add(resolve);
    return promise.finally(() => {
      clearTimeout(timer);
      waiting.delete(resolve);
      if (waiting.size === 0) this.#waiting.delete(id);
    });
  }

  #tick(): void {
    if (this.#closed) return;
    for (const driver of this.#driven.values()) void driver.renew();
    if (!this.#takesOthers || this.#looking) return;
    this.#looking = true;
    this.#takeDue()
      .catch((error: Error) => this.#deps.onError(error))
      .finally(() => {
        this.#looking = false;
      });
  }

  async #takeDue(): Promise<void> {
    const due = await this.#deps.records.due(await this.#deps.now(), TAKEN_TOGETHER);
    for (const id of due) await this.#take(id);
  }

  async #take(id: string): Promise<void> {
    if (this.#driven.has(id) || this.#closed) return;
    const taken = await this.#deps.records.take(id);
    if (taken !== undefined) this.#drive(taken);
  }

  #drive(group: TakenGroup, results?: Map<string, ToolResultEnvelope>): void {
    const { id, kind } = group.head;
    const { records, calls, keptMs, rules, now, onError } = this.#deps;
    const progress = rules[kind].progressOf(group);
    const driver = new GroupDriver(
      {
        records,
        calls,
        keptMs,
        now,
        onResult: (key, result) => void results?.set(key, result),
        onStopped: (ended) => {
          this.#driven.delete(id);
          if (ended !== undefined) this.#deps.onEnded(ended);
          for (const look of this.#waiting.get(id) ?? []) look(ended);
        },
        onError: (error) => onError(error instanceof Error ? error : new Error(String(error))),
      },
      group,
      progress,
    );
    this.#driven.set(id, driver);
    driver.start(async (key) => rules[kind].callOf(group, progress, key));
  }

  /** Gives all groups back, so that another process goes on with them at once. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    for (const waiting of this.#waiting.values()) for (const look of waiting) look();
    await Promise.all([...this.#driven.values()].map((driver) => driver.release().catch(() => {})));
  }
}
