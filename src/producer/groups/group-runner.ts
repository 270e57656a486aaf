/**
 * The batches and plans that this process drives. A front door also adopts groups whose driver died; a program's client drives only those
 * that it created.
 */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { GroupFields, GroupHead, GroupKind, GroupProgress } from '../../shared/groups/group.ts';
import type { GroupRecord, LeasedGroup } from '../../shared/store/groups/groups.ts';
import type { GroupStore } from '../../shared/store/ports.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { type GroupCall, type GroupCalls, GroupDriver } from './group-driver.ts';

export interface GroupRules {
  progressOf(group: LeasedGroup): GroupProgress;
  /** A started call, for the case that it has to be submitted again. */
  callOf(
    group: LeasedGroup,
    progress: GroupProgress,
    key: string,
  ): GroupCall | undefined | Promise<GroupCall | undefined>;
}

interface NewGroup {
  readonly fields?: GroupFields;
  /** Receives the results of the calls while this process drives the group. */
  readonly results?: Map<string, ToolResultEnvelope>;
  /** Runs after the record is written, before `create` resolves. */
  open?(): Promise<unknown>;
}

interface GroupRunnerDeps {
  readonly records: GroupStore;
  readonly rules: Readonly<Record<GroupKind, GroupRules>>;
  readonly calls: GroupCalls;
  readonly keptMs: number;
  /** Called when a group that this process drives has ended. */
  onEnded(record: GroupRecord): void;
  /** Redis' clock. */
  now(): Promise<number>;
  onError(error: Error): void;
}

/** The most groups that one check adopts. */
const TAKE_BATCH = 20;
/** The interval at which a waiter reads the record of a group that another process drives. */
const POLL_MS = 2_000;

export class GroupRunner {
  readonly #deps: GroupRunnerDeps;
  readonly #driven = new Map<string, GroupDriver>();
  readonly #waiters = new Map<string, Set<(ended?: GroupRecord) => void>>();
  readonly #timer: NodeJS.Timeout;
  #adopts = false;
  #adopting = false;
  #closed = false;

  constructor(deps: GroupRunnerDeps) {
    this.#deps = deps;
    this.#timer = setInterval(() => this.#tick(), deps.records.leaseMs / 3).unref();
  }

  /** From now on, this process also adopts groups whose driver died. */
  adoptAbandoned(): void {
    this.#adopts = true;
    this.#tick();
  }

  /** Writes a new group and drives it. False when its ID exists already. */
  async create(head: GroupHead, definition: object, { fields, results, open }: NewGroup = {}): Promise<boolean> {
    const group = await this.#deps.records.create(head, definition, fields);
    if (group === undefined) return false;
    await open?.();
    this.#drive(group, results);
    return true;
  }

  /** Called when another process has changed the group, or it has ended. */
  notifyChanged(id: string): void {
    const driven = this.#driven.get(id);
    if (driven !== undefined) void driven.renew();
    else for (const notify of this.#waiters.get(id) ?? []) notify();
    if (driven === undefined && this.#adopts) this.#tick();
  }

  /** Resolves with the record of a group when it has ended, in any process. Throws `NOT_FOUND`, also for a group of another kind. */
  async ended(kind: GroupKind, id: string): Promise<GroupRecord> {
    for (;;) {
      if (this.#closed) throw new PawlError('BACKEND_UNAVAILABLE', 'The client was closed while it waited.');
      const changed = this.#nextChange(id);
      if (!this.#driven.has(id)) {
        const record = ofKind(kind, id, await this.#deps.records.read(id));
        if (record.endedAtMs !== undefined) return record;
        // A process that waits for the group may drive it as well.
        await this.#take(id);
      }
      const ended = await changed;
      if (ended !== undefined) return ofKind(kind, id, ended);
    }
  }

  /** Resolves when the group may have changed; with its record when this process has ended it. */
  #nextChange(id: string): Promise<GroupRecord | undefined> {
    const { promise, resolve } = Promise.withResolvers<GroupRecord | undefined>();
    const waiters = this.#waiters.get(id) ?? new Set();
    this.#waiters.set(id, waiters);
    const timer = setTimeout(() => resolve(undefined), POLL_MS);
    waiters.add(resolve);
    return promise.finally(() => {
      clearTimeout(timer);
      waiters.delete(resolve);
      if (waiters.size === 0) this.#waiters.delete(id);
    });
  }

  #tick(): void {
    if (this.#closed) return;
    for (const driver of this.#driven.values()) void driver.renew();
    if (!this.#adopts || this.#adopting) return;
    this.#adopting = true;
    this.#takeDue()
      .catch((error: Error) => this.#deps.onError(error))
      .finally(() => {
        this.#adopting = false;
      });
  }

  async #takeDue(): Promise<void> {
    const due = await this.#deps.records.due(await this.#deps.now(), TAKE_BATCH);
    for (const id of due) await this.#take(id);
  }

  async #take(id: string): Promise<void> {
    if (this.#driven.has(id) || this.#closed) return;
    const taken = await this.#deps.records.take(id);
    if (taken !== undefined) this.#drive(taken);
  }

  #drive(group: LeasedGroup, results?: Map<string, ToolResultEnvelope>): void {
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
          for (const notify of this.#waiters.get(id) ?? []) notify(ended);
        },
        onError: (error) => onError(error instanceof Error ? error : new Error(String(error))),
      },
      group,
      progress,
    );
    this.#driven.set(id, driver);
    driver.start(async (key) => rules[kind].callOf(group, progress, key));
  }

  /** Releases all groups, so that other processes can go on with them at once. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    for (const waiting of this.#waiters.values()) for (const notify of waiting) notify();
    await Promise.all([...this.#driven.values()].map((driver) => driver.release().catch(() => {})));
  }
}

/** Throws `NOT_FOUND` for a group that is not there, and for one of another kind. */
export function ofKind(kind: GroupKind, id: string, record: GroupRecord | undefined): GroupRecord {
  if (record?.head.kind === kind) return record;
  throw new PawlError('NOT_FOUND', `There is no ${kind} ${quoteValue(id)}, or it has expired.`);
}
