/** The fleet's shards as they are stored for all processes. A process reads them again when a broadcast says that they have changed. */
import { ONE_SHARD_EACH, type SessionShards, type ShardLayout, shardOf } from '../../queues/shards.ts';
import { TIERS, type Tier } from '../../tools/tool.ts';
import { broadcastChannel } from '../redis/broadcasts.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { type Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

const setScript = new Script(new URL('./shards-set.lua', import.meta.url));

export class Shards extends FleetRecords {
  readonly #listeners = new Set<() => void>();
  #layout = ONE_SHARD_EACH;

  /** As this process last read it. */
  get layout(): ShardLayout {
    return this.#layout;
  }

  /** All places of these tiers that ever were. */
  partitions(tiers: readonly Tier[] = TIERS): Partition[] {
    return tiers.flatMap((tier) => Array.from({ length: this.#layout[tier].made }, (_, shard) => ({ tier, shard })));
  }

  /** Reads a value of every shard and adds up those of each tier, in order. */
  async ofTiers<Value>(
    read: (partition: Partition) => Promise<Value>,
    add: (one: Value, other: Value) => Value,
  ): Promise<Value[]> {
    const ofTier = async (tier: Tier): Promise<Value> => {
      const [first, ...others] = await Promise.all(this.partitions([tier]).map(read));
      return others.reduce<Value>(add, first as Value);
    };
    return Promise.all(TIERS.map(ofTier));
  }

  async learn(): Promise<ShardLayout> {
    const stored = await this.redis.hgetall(this.keys.shards);
    const ofTier = (tier: Tier) => {
      const current = Number(stored[tier] ?? 1);
      const made = Math.max(current, Number(stored[`${tier}:made`] ?? 1));
      return [tier, { current, made, isSet: stored[tier] !== undefined }] as const;
    };
    const before = this.#layout;
    this.#layout = Object.fromEntries(TIERS.map(ofTier)) as unknown as ShardLayout;
    const changed = (tier: Tier) =>
      before[tier].current !== this.#layout[tier].current || before[tier].made !== this.#layout[tier].made;
    if (TIERS.some(changed)) for (const listener of this.#listeners) listener();
    return this.#layout;
  }

  /** Calls back when this process has learned of another layout. The answer ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Spreads new sessions over so many shards; `unlessSet`: only if no operator has set a number. */
  async set(tier: Tier, shards: number, unlessSet = false): Promise<void> {
    await setScript.run(
      this.redis,
      [this.keys.shards],
      [tier, shards, unlessSet ? '1' : '0', broadcastChannel(this.redis, this.keys.prefix)],
    );
    await this.learn();
  }

  /**
   * The shards for the calls of a session. A session whose record has expired while calls of it are kept stays on their shards, so that
   * keys still find them.
   */
  async assign(sessionKey: string, fresh: boolean): Promise<SessionShards> {
    const ofTier = async (tier: Tier) => {
      const { current, made } = this.#layout[tier];
      if (made === 1) return [tier, 0] as const;
      const kept = fresh ? -1 : await this.#keeping(tier, sessionKey);
      return [tier, kept === -1 ? shardOf(sessionKey, current) : kept] as const;
    };
    const assigned = await Promise.all(TIERS.map(ofTier));
    return Object.fromEntries(assigned.filter(([, shard]) => shard !== 0));
  }

  /** The shard with calls of a session, -1 for none. */
  async #keeping(tier: Tier, sessionKey: string): Promise<number> {
    const keys = this.partitions([tier]).map((partition) =>
      new PartitionKeys(this.keys.prefix, partition).sessionCalls(sessionKey),
    );
    return (await Promise.all(keys.map((key) => this.redis.exists(key)))).indexOf(1);
  }

  /** Reads the layout again when a session is in a shard that this process has not heard of. */
  async know(shards: SessionShards): Promise<void> {
    if (TIERS.some((tier) => (shards[tier] ?? 0) >= this.#layout[tier].made)) await this.learn();
  }
}
