/** How the shards of all tiers stand. */
import type { Backend } from '../../shared/store/backend.ts';
import { readShardState } from '../../shared/store/queues/shard-state.ts';
import { slotOf } from '../../shared/store/redis/connection.ts';
import { PartitionKeys } from '../../shared/store/redis/keys.ts';
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
    shards.partitions().map(async (partition) => {
      const [{ waiting, running }, { calls }] = await Promise.all([
        readShardState(redis, prefix, partition),
        ledger.index.counts(partition),
      ]);
      const where = slotOf(redis, new PartitionKeys(prefix, partition).calls);
      const takesSessions = partition.shard < layout[partition.tier].current;
      return { ...partition, takesSessions, waiting, running, kept: calls, ...where };
    }),
  );
}
