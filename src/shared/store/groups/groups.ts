/**
 * The records of batches and plans. A record is a hash: its head and definition never change, and each step of its driver adds a field with
 * all that changed. All are signed, because a driver makes calls from them. All keys share one hash tag: a step writes a record and the
 * index together.
 */
import type { GroupFields, GroupHead, GroupKind } from '../../groups/group.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { type Broadcast, broadcastChannel } from '../redis/broadcasts.ts';
import type { Redis } from '../redis/connection.ts';
import { GroupKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const createScript = new Script(new URL('./group-create.lua', import.meta.url));
const takeScript = new Script(new URL('./group-take.lua', import.meta.url));
const advanceScript = new Script(new URL('./group-advance.lua', import.meta.url));
const changeScript = new Script(new URL('./group-change.lua', import.meta.url));

/** A group that is not over by then is forgotten. */
const LONGEST_MS = 7 * 24 * 3_600_000;
/** The prefix of the fields of steps. */
const STEP = 'step:';
/** Fields that hold no signed text. */
const PLAIN = new Set(['fence', 'cancelled', 'endedAtMs']);

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

export interface TakenGroup extends GroupRecord {
  readonly fence: number;
}

/** `end`: the group is over, and how long its record is kept from now on. `release`: another process may drive it at once. */
export interface Advance {
  readonly step?: { readonly number: number; readonly changes: GroupFields };
  readonly end?: { readonly keptMs: number };
  readonly release?: boolean;
}

export class GroupRecords {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #keys: GroupKeys;
  readonly #signatures: Signatures;
  readonly leaseMs: number;

  constructor(redis: Redis, prefix: string, signatures: Signatures, leaseMs: number) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#keys = new GroupKeys(prefix);
    this.#signatures = signatures;
    this.leaseMs = leaseMs;
  }

  /** Writes a new group, which the writer drives with fence 1. Undefined when there is one of its ID. */
  async create(head: GroupHead, definition: object, fields: GroupFields = new Map()): Promise<TakenGroup | undefined> {
    const { id, kind, tenantId, createdAtMs } = head;
    const written = { head, definition, ...Object.fromEntries(fields) };
    const signed = Object.entries(written).flatMap(([field, value]) => [field, this.#signed(id, field, value)]);
    const indexes = [this.#keys.all(kind), ...(tenantId === undefined ? [] : [this.#keys.all(kind, tenantId)])];
    const args = [id, createdAtMs, this.leaseMs, LONGEST_MS, 'fence', 1, ...signed];
    const [isWritten] = await createScript.run(this.#redis, [...this.#hashes(id), ...indexes], args);
    if (isWritten !== 1) return undefined;
    return { head, definition, fields: Object.fromEntries(fields), steps: 0, fence: 1 };
  }

  /** Groups that no process drives now, the oldest first. */
  due(nowMs: number, maxGroups: number): Promise<string[]> {
    return this.#redis.zrangebyscore(this.#keys.open, 0, nowMs, 'LIMIT', 0, maxGroups);
  }

  /** How many groups are not over. */
  openCount(): Promise<number> {
    return this.#redis.zcard(this.#keys.open);
  }

  /** Takes a group that no process drives; undefined when there is nothing to take. */
  async take(id: string): Promise<TakenGroup | undefined> {
    const [fence, fields] = await takeScript.run(this.#redis, this.#hashes(id), [id, this.leaseMs]);
    if (fields === undefined) return undefined;
    const flat = fields as string[];
    const record = this.#record(
      id,
      Object.fromEntries(flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] ?? '']] : []))),
    );
    return record === undefined ? undefined : { ...record, fence: Number(fence) };
  }

  /** Writes what its driver has decided, and renews the lease. `lost`: another process drives it, or it is over. */
  async advance(
    { head: { id }, fence }: Pick<TakenGroup, 'head' | 'fence'>,
    { step, end, release = false }: Advance,
  ): Promise<'lost' | { readonly cancelledBy?: string; readonly nowMs: number }> {
    const written = step === undefined ? [] : this.#signedStep(id, step);
    const args = [id, fence, release ? 0 : this.leaseMs, end?.keptMs ?? '', ...this.#broadcast(id), ...written];
    const [isWritten, nowMs, cancelledBy] = await advanceScript.run(this.#redis, this.#hashes(id), args);
    if (isWritten !== 1) return 'lost';
    return { nowMs: Number(nowMs), ...(typeof cancelledBy === 'string' ? { cancelledBy } : {}) };
  }

  /** Asks the group's driver to end it. The first request stands. */
  async cancel(id: string, by: string): Promise<'written' | 'kept' | 'over'> {
    const args = [id, 'cancelled', by, ...this.#broadcast(id)];
    const [answer] = await changeScript.run(this.#redis, this.#hashes(id), args);
    return answer as 'written' | 'kept' | 'over';
  }

  /** Undefined when there is none, it has expired, or no key of this fleet signed it. */
  async read(id: string): Promise<GroupRecord | undefined> {
    return this.#record(id, await this.#redis.hgetall(this.#keys.group(id)));
  }

  /** Groups of a kind, of one tenant or of all, the newest first. */
  list(kind: GroupKind, limit: number, tenantId?: string): Promise<string[]> {
    return this.#redis.zrevrange(this.#keys.all(kind, tenantId), 0, limit - 1);
  }

  #record(id: string, stored: Readonly<Record<string, string>>): GroupRecord | undefined {
    const verified: Record<string, object> = {};
    for (const [field, text] of Object.entries(stored)) {
      const value = PLAIN.has(field) ? undefined : this.#verified(id, field, text);
      if (value !== undefined) verified[field] = value;
    }
    const { head, definition, ...others } = verified;
    if (head === undefined || definition === undefined) return undefined;
    const { cancelled, endedAtMs } = stored;
    const { fields, steps } = withSteps(others);
    return {
      head: head as GroupHead,
      definition,
      fields,
      steps,
      ...(cancelled === undefined ? {} : { cancelledBy: cancelled }),
      ...(endedAtMs === undefined ? {} : { endedAtMs: Number(endedAtMs) }),
    };
  }

  #hashes(id: string): string[] {
    return [this.#keys.group(id), this.#keys.open];
  }

  #broadcast(id: string): [string, string] {
    const broadcast: Broadcast = { type: 'group', id };
    return [broadcastChannel(this.#redis, this.#prefix), JSON.stringify(broadcast)];
  }

  #signedStep(id: string, { number, changes }: NonNullable<Advance['step']>): [string, string] {
    const field = `${STEP}${number}`;
    return [field, this.#signed(id, field, Object.fromEntries(changes))];
  }

  #signed(id: string, field: string, value: object): string {
    return signedText(this.#signatures, 'group', [id, field], value);
  }

  #verified(id: string, field: string, text: string): object | undefined {
    return verifiedText<object>(this.#signatures, 'group', [id, field], text);
  }
}

/** The values of a record, those of each step over those of the steps before. */
function withSteps(stored: Readonly<Record<string, object>>): Pick<GroupRecord, 'fields' | 'steps'> {
  const names = Object.keys(stored).filter((name) => name.startsWith(STEP));
  const numbers = names.map((name) => Number(name.slice(STEP.length))).sort((one, other) => one - other);
  const fields: Record<string, object> = {};
  for (const [name, value] of Object.entries(stored)) if (!name.startsWith(STEP)) fields[name] = value;
  for (const number of numbers) Object.assign(fields, stored[`${STEP}${number}`]);
  return { fields, steps: numbers.at(-1) ?? 0 };
}
