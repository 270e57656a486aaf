/**
 * The records of batches and plans. A record is a hash: its head and definition never change, and each step of its driver adds a field with
 * the changes. All fields are signed, because a driver makes calls from them. All keys share one hash tag, because a step writes a record
 * and the index together.
 */
import type { DriverStep, GroupFields, GroupHead, GroupKind } from '../../groups/group.ts';
import type { Signatures } from '../../signing/signatures.ts';
import type { Broadcast } from '../redis/broadcasts.ts';
import { isClustered, type Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { GroupKeys } from '../redis/keys.ts';
import { fieldsOf, Script } from '../redis/script.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const createScript = new Script(new URL('./group-create.lua', import.meta.url), [], 'once');
const takeScript = new Script(new URL('./group-take.lua', import.meta.url), [], 'once');
const advanceScript = new Script(new URL('./group-advance.lua', import.meta.url), [], 'once');
const changeScript = new Script(new URL('./group-change.lua', import.meta.url), [], 'once');

/** A group that has not ended by then is forgotten. */
const MAX_DURATION_MS = 7 * 24 * 3_600_000;
const STEP_PREFIX = 'step:';

/** The members that no definition of each kind lacks. */
const BATCH_MEMBERS = ['entries'];
const PLAN_MEMBERS = ['nodes', 'order', 'target'];

/** A record as it is read; fields whose signature does not hold are left out. */
export interface GroupRecord {
  readonly head: GroupHead;
  readonly definition: unknown;
  /** All other values, as the newest step has them. */
  readonly fields: Readonly<Record<string, object>>;
  readonly steps: number;
  /** The actor that cancelled it. */
  readonly cancelledBy?: string;
  readonly endedAtMs?: number;
}

export interface LeasedGroup extends GroupRecord {
  readonly fence: number;
}

/** `end`: the group has ended, and its record gets this lifetime. `release`: another process may drive it at once. */
export interface Advance {
  readonly step?: { readonly number: number; readonly changes: GroupFields };
  readonly end?: { readonly keptMs: number };
  readonly release?: boolean;
}

export class GroupRecords extends FleetRecords {
  readonly #groupKeys: GroupKeys;
  readonly leaseMs: number;

  constructor(redis: Redis, prefix: string, signatures: Signatures, leaseMs: number) {
    super(redis, prefix, signatures);
    this.#groupKeys = new GroupKeys(prefix);
    this.leaseMs = leaseMs;
  }

  /** Writes a new group, which the writer drives with fence 1. Undefined when there is one of its ID. */
  async create(head: GroupHead, definition: object, fields: GroupFields = new Map()): Promise<LeasedGroup | undefined> {
    const { id, kind, tenantId, createdAtMs } = head;
    const written = { head, definition, ...Object.fromEntries(fields) };
    const signed = Object.entries(written).flatMap(([field, value]) => [field, this.#sign(id, field, value)]);
    const indexes = [
      this.#groupKeys.all(kind),
      ...(tenantId === undefined ? [] : [this.#groupKeys.all(kind, tenantId)]),
    ];
    const args = [id, createdAtMs, this.leaseMs, MAX_DURATION_MS, 'fence', 1, ...signed];
    const [isWritten] = await createScript.run(this.redis, [...this.#hashes(id), ...indexes], args);
    if (isWritten !== 1) return undefined;
    return { head, definition, fields: Object.fromEntries(fields), steps: 0, fence: 1 };
  }

  /** Groups that no process drives now, the oldest first. */
  due(nowMs: number, maxGroups: number): Promise<string[]> {
    return this.redis.zrangebyscore(this.#groupKeys.open, 0, nowMs, 'LIMIT', 0, maxGroups);
  }

  openCount(): Promise<number> {
    return this.redis.zcard(this.#groupKeys.open);
  }

  /** Takes the lease of a group that no process drives; undefined when another process has it, or the group has ended. */
  async take(id: string): Promise<LeasedGroup | undefined> {
    const [fence, fields] = await takeScript.run(this.redis, this.#hashes(id), [id, this.leaseMs]);
    if (fields === undefined) return undefined;
    const record = this.#record(id, fieldsOf(fields as string[]));
    return record === undefined ? undefined : { ...record, fence: Number(fence) };
  }

  /** Writes a step of its driver, and renews the lease. `lost`: another process drives it, or it has ended. */
  async advance(
    { head: { id }, fence }: Pick<LeasedGroup, 'head' | 'fence'>,
    { step, end, release = false }: Advance,
  ): Promise<'lost' | { readonly cancelledBy?: string; readonly nowMs: number }> {
    const written = step === undefined ? [] : this.#signStep(id, step);
    const broadcast = end === undefined ? ['', ''] : this.#broadcast(id);
    const args = [id, fence, release ? 0 : this.leaseMs, end?.keptMs ?? '', ...broadcast, ...written];
    const [isWritten, nowMs, cancelledBy] = await advanceScript.run(this.redis, this.#hashes(id), args);
    if (isWritten !== 1) return 'lost';
    return { nowMs: Number(nowMs), ...(typeof cancelledBy === 'string' ? { cancelledBy } : {}) };
  }

  /**
   * The step that the claims of a driver name, so that they need not wait for the answer to its write. Undefined in a cluster: another node
   * may run them first, and cannot read the record.
   */
  stepOf({ head: { id }, fence }: Pick<LeasedGroup, 'head' | 'fence'>, number: number): DriverStep | undefined {
    return isClustered(this.redis) ? undefined : { record: this.#groupKeys.group(id), fence, number };
  }

  /** Requests that the group's driver cancels it. The first request is kept. */
  async cancel(id: string, actor: string): Promise<'written' | 'kept' | 'over'> {
    const args = [id, 'cancelled', actor, ...this.#broadcast(id)];
    const [answer] = await changeScript.run(this.redis, this.#hashes(id), args);
    return answer as 'written' | 'kept' | 'over';
  }

  /** Undefined when there is none, it has expired, or no key of this fleet signed it. */
  async read(id: string): Promise<GroupRecord | undefined> {
    return this.#record(id, await this.redis.hgetall(this.#groupKeys.group(id)));
  }

  /** Groups of a kind, of one tenant or of all, the newest first. */
  list(kind: GroupKind, limit: number, tenantId?: string): Promise<string[]> {
    return this.redis.zrevrange(this.#groupKeys.all(kind, tenantId), 0, limit - 1);
  }

  #record(id: string, stored: Readonly<Record<string, string>>): GroupRecord | undefined {
    // The last three of these are not signed.
    const { head: headText, definition: definitionText, cancelled, endedAtMs, fence: _, ...rest } = stored;
    if (headText === undefined || definitionText === undefined) return undefined;
    const head = this.#verify(id, 'head', headText) as GroupHead | undefined;
    const members = head?.kind === 'plan' ? PLAN_MEMBERS : BATCH_MEMBERS;
    const definition = head && this.#verify(id, 'definition', definitionText, members);
    if (head === undefined || definition === undefined) return undefined;
    const verified: Record<string, object> = {};
    for (const [field, text] of Object.entries(rest)) {
      const value = this.#verify(id, field, text);
      if (value !== undefined) verified[field] = value;
    }
    const { fields, steps } = withSteps(verified);
    return {
      head,
      definition,
      fields,
      steps,
      ...(cancelled !== undefined && { cancelledBy: cancelled }),
      ...(endedAtMs !== undefined && { endedAtMs: Number(endedAtMs) }),
    };
  }

  #hashes(id: string): string[] {
    return [this.#groupKeys.group(id), this.#groupKeys.open];
  }

  #broadcast(id: string): [string, string] {
    const broadcast: Broadcast = { type: 'group', id };
    return [this.channel, JSON.stringify(broadcast)];
  }

  #signStep(id: string, { number, changes }: NonNullable<Advance['step']>): [string, string] {
    const field = `${STEP_PREFIX}${number}`;
    return [field, this.#sign(id, field, Object.fromEntries(changes))];
  }

  #sign(id: string, field: string, value: object): string {
    return signedText(this.signatures, 'group', [id, field], value);
  }

  #verify(id: string, field: string, text: string, members?: readonly string[]): object | undefined {
    return verifiedText<object>(this.signatures, 'group', [id, field], text, members);
  }
}

/** The values of a record, those of each step over those of the steps before. */
function withSteps(stored: Readonly<Record<string, object>>): Pick<GroupRecord, 'fields' | 'steps'> {
  const names = Object.keys(stored).filter((name) => name.startsWith(STEP_PREFIX));
  const numbers = names.map((name) => Number(name.slice(STEP_PREFIX.length))).sort((one, other) => one - other);
  const fields: Record<string, object> = {};
  for (const [name, value] of Object.entries(stored)) if (!name.startsWith(STEP_PREFIX)) fields[name] = value;
  for (const number of numbers) Object.assign(fields, stored[`${STEP_PREFIX}${number}`]);
  return { fields, steps: numbers.at(-1) ?? 0 };
}
