/** How the shards of all tiers stand. */
import type { Backend } from '../../shared/store/backend.ts';
import { readPlaceState } from '../../shared/store/queues/shard-state.ts';
import { slotOf } from '../../shared/store/redis/connection.ts';
import { PlaceKeys } from '../../shared/store/redis/keys.ts';
import type { Tier } from '../../shared/tools/tool.ts';

export interface ShardView {
  readonly tier: Tier;
  readonly shard: number;
  /** Whether new sessions come here; the calls of those that are here already do in any case. */
  readonly takesSessions: boolean;
  readonly waiting: number;
  readonly running: number;
  /** Calls that are remembered, those in flight included. */
  readonly kept: number;
  /** In a Redis Cluster: the hash slot of its keys, and the node that has it (`host:port`). */
  readonly slot?: number;
  readonly node?: string;
}

export async function viewShards({ redis, prefix, ledger, shards }: Backend): Promise<ShardView[]> {
  const layout = await shards.learn();
  return Promise.all(
    shards.places().map(async (place) => {
      const [{ waiting, running }, { calls }] = await Promise.all([
        readPlaceState(redis, prefix, place),
        ledger.counts(place),
      ]);
      const where = slotOf(redis, new PlaceKeys(prefix, place).calls);
      const takesSessions = place.shard < layout[place.tier].current;
      return { ...place, takesSessions, waiting, running, kept: calls, ...where };
    }),
  );
}
