/**
 * The shards of tiers. A session's calls of one tier are in one shard, which the session keeps for as long as it lives: more or fewer
 * shards concern new sessions alone, so a key finds its earlier call whatever was changed meanwhile.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { TIERS, type Tier } from '../tools/tool.ts';

/** Of one tier: each worker holds two connections for each. */
export const MAX_SHARDS = 64;

export interface TierShards {
  /** Among which new sessions are spread. */
  readonly current: number;
  /** As many as there ever were: sessions that were opened then are still there. */
  readonly made: number;
  /** Somebody has said how many; before, what is configured holds. */
  readonly isSet: boolean;
}

export type ShardLayout = Readonly<Record<Tier, TierShards>>;

export const ONE_SHARD_EACH = Object.fromEntries(
  TIERS.map((tier) => [tier, { current: 1, made: 1, isSet: false }]),
) as unknown as ShardLayout;

export const shardCountSchema = z.number().int().min(1).max(MAX_SHARDS);

/** Where a session's calls are; what is not named is in shard 0, as in all sessions that were opened before there were shards. */
export type SessionShards = Readonly<Partial<Record<Tier, number>>>;

/** The shard of a new session among so many. */
export function shardOf(sessionKey: string, shards: number): number {
  return shards === 1 ? 0 : createHash('sha256').update(sessionKey).digest().readUInt32BE() % shards;
}
