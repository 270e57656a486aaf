/** The fleet's shards, as stored for all processes. A process reloads them when a broadcast announces a change. */
import { layoutOf, ONE_SHARD_EACH, type SessionShards, type ShardLayout, shardOf } from '../../queues/shards.ts';
import { TIERS, type Tier } from '../../tools/tool.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import type { Partition } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

const setScript = new Script(new URL('./shards-set.lua', import.meta.url));

export class Shards extends FleetRecords {
  readonly #listeners = new Set<() => void>();
  #layout = ONE_SHARD_EACH;

  /** The layout that this process read last. */
  get layout(): ShardLayout {
    return this.#layout;
  }

  /** All partitions that these tiers ever had. */
  partitions(tiers: readonly Tier[] = TIERS): Partition[] {
    return tiers.flatMap((tier) => Array.from({ length: this.#layout[tier].highest }, (_, shard) => ({ tier, shard })));
  }

  /** Reads a value of every shard, and adds up the shards of each tier, in the order of tiers. */
  async sumByTier<Value>(
    read: (partition: Partition) => Promise<Value>,
    add: (one: Value, other: Value) => Value,
  ): Promise<Value[]> {
    const ofTier = async (tier: Tier): Promise<Value> => {
      const [first, ...others] = await Promise.all(this.partitions([tier]).map(read));
      return others.reduce<Value>(add, first as Value);
    };
    return Promise.all(TIERS.map(ofTier));
  }

  async reload(): Promise<ShardLayout> {
    const stored = await this.redis.hgetall(this.keys.shards);
    const before = this.#layout;
    this.#layout = layoutOf((tier) => {
      const current = Number(stored[tier] ?? 1);
      const highest = Math.max(current, Number(stored[`${tier}:made`] ?? 1));
      return { current, highest, isSet: stored[tier] !== undefined };
    });
    const changed = (tier: Tier) =>
      before[tier].current !== this.#layout[tier].current || before[tier].highest !== this.#layout[tier].highest;
    if (TIERS.some(changed)) for (const listener of this.#listeners) listener();
    return this.#layout;
  }

  /** Calls the listener when the layout has changed. Returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Sets the number of shards for new sessions; with `unlessSet`, only if no operator has set a number. */
  async set(tier: Tier, shards: number, unlessSet = false): Promise<void> {
    await setScript.run(this.redis, [this.keys.shards], [tier, shards, unlessSet ? '1' : '0', this.channel]);
    await this.reload();
  }

  /**
   * Assigns the shards for the calls of a session. A session whose record has expired keeps the shards of its stored calls, so that their
   * keys still find them.
   */
  async assign(sessionKey: string, isNew: boolean): Promise<SessionShards> {
    const ofTier = async (tier: Tier) => {
      const { current, highest } = this.#layout[tier];
      if (highest === 1) return [tier, 0] as const;
      const existing = isNew ? -1 : await this.#shardWithCalls(tier, sessionKey);
      return [tier, existing === -1 ? shardOf(sessionKey, current) : existing] as const;
    };
    const assigned = await Promise.all(TIERS.map(ofTier));
    return Object.fromEntries(assigned.filter(([, shard]) => shard !== 0));
  }

  /** The shard with calls of a session, -1 for none. */
  async #shardWithCalls(tier: Tier, sessionKey: string): Promise<number> {
    const keys = this.partitions([tier]).map((partition) => this.partitionKeys(partition).sessionCalls(sessionKey));
    return (await Promise.all(keys.map((key) => this.redis.exists(key)))).indexOf(1);
  }

  /** Reloads the layout when a session is in a shard that this process does not know. */
  async ensureKnown(shards: SessionShards): Promise<void> {
    if (TIERS.some((tier) => (shards[tier] ?? 0) >= this.#layout[tier].highest)) await this.reload();
  }
}

/** Adds counts of two shards, each to that of the same name. */
export function addCounts<Counts extends { readonly [Name in keyof Counts]: number }>(
  one: Counts,
  other: Counts,
): Counts {
  const names = Object.keys(one) as (keyof Counts)[];
  return Object.fromEntries(names.map((name) => [name, one[name] + other[name]])) as Counts;
}
