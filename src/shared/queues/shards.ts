/**
 * The shards of tiers. All calls of a session in one tier are in one shard, which the session keeps as long as it lives. A change of the
 * number of shards affects new sessions only, so a key always finds its earlier call.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { TIERS, type Tier } from '../tools/tool.ts';

/** The most shards of one tier: each worker holds two connections for each shard. */
export const MAX_SHARDS = 64;

interface TierShards {
  /** The shards among which new sessions are spread. */
  readonly current: number;
  /** The largest number of shards so far. Older sessions may still use the higher ones. */
  readonly highest: number;
  /** Whether an operator set the number. Otherwise the configuration decides. */
  readonly isSet: boolean;
}

export type ShardLayout = Readonly<Record<Tier, TierShards>>;

export const ONE_SHARD_EACH: ShardLayout = layoutOf(() => ({ current: 1, highest: 1, isSet: false }));

export function layoutOf(shardsOf: (tier: Tier) => TierShards): ShardLayout {
  return Object.fromEntries(TIERS.map((tier) => [tier, shardsOf(tier)])) as Record<Tier, TierShards>;
}

export const shardCountSchema = z.number().int().min(1).max(MAX_SHARDS);

/**
 * The shard of a session's calls in each tier. A tier without an entry is in shard 0, as in all sessions that were opened before there were
 * shards.
 */
export type SessionShards = Readonly<Partial<Record<Tier, number>>>;

export function shardOf(sessionKey: string, shards: number): number {
  return shards === 1 ? 0 : createHash('sha256').update(sessionKey).digest().readUInt32BE() % shards;
}
