/** `pawl.shards` and `pawl.workers`: the layout of the fleet, and the actions of operators on it. */
import { PawlError } from '../../shared/errors/failure.ts';
import { MAX_SHARDS, shardCountSchema } from '../../shared/queues/shards.ts';
import { invalidArgument } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { readShardState } from '../../shared/store/queues/shard-state.ts';
import { publishBroadcast } from '../../shared/store/redis/broadcasts.ts';
import { slotOf } from '../../shared/store/redis/connection.ts';
import { homePartition, PartitionKeys } from '../../shared/store/redis/keys.ts';
import { TIERS, type Tier } from '../../shared/tools/tool.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { RecordOverride } from '../calls/audit.ts';

export type ShardView = Awaited<ReturnType<ShardService['list']>>[number];

export class ShardService {
  readonly #backend: Pick<Backend, 'redis' | 'prefix' | 'ledger' | 'shards' | 'breakers'>;
  readonly #recordOverride: RecordOverride;

  constructor(backend: Backend, recordOverride: RecordOverride) {
    this.#backend = backend;
    this.#recordOverride = recordOverride;
  }

  async list() {
    const { redis, prefix, ledger, shards } = this.#backend;
    const layout = await shards.reload();
    return Promise.all(
      shards.partitions().map(async (partition) => {
        const [{ waiting, running }, { calls }] = await Promise.all([
          readShardState(redis, prefix, partition),
          ledger.index.counts(partition),
        ]);
        return {
          ...partition,
          /** Whether new sessions are assigned to this shard. Existing sessions stay in any case. */
          takesSessions: partition.shard < layout[partition.tier].current,
          waiting,
          running,
          /** The number of call records in Redis, including calls in flight. */
          kept: calls,
          /** In a Redis Cluster: the hash slot of its keys, and the node that serves it (`host:port`). */
          ...slotOf(redis, new PartitionKeys(prefix, partition).calls),
        };
      }),
    );
  }

  /** Spreads new sessions among so many shards (1 to 64) of a tier. Existing sessions stay where they are. */
  async set(tier: Tier, shards: number, by?: string): Promise<void> {
    if (!TIERS.includes(tier))
      throw invalidArgument('tier', `must be one of ${TIERS.join(', ')}; got ${quoteValue(tier)}`);
    if (!shardCountSchema.safeParse(shards).success)
      throw invalidArgument('shards', `must be a whole number from 1 to ${MAX_SHARDS}; got ${quoteValue(shards)}`);
    await this.#backend.shards.set(tier, shards);
    await this.#backend.breakers.spread(homePartition(tier));
    await this.#recordOverride({ what: 'shards', action: `${tier} ${shards}`, by });
  }
}

export class WorkerService {
  readonly #backend: Pick<Backend, 'redis' | 'prefix' | 'catalogue'>;
  readonly #recordOverride: RecordOverride;

  constructor(backend: Backend, recordOverride: RecordOverride) {
    this.#backend = backend;
    this.#recordOverride = recordOverride;
  }

  /** Asks a worker to drain. Throws `NOT_FOUND`. */
  async drain(workerId: string, by?: string): Promise<void> {
    const { redis, prefix, catalogue } = this.#backend;
    const { workers } = await catalogue.read();
    if (!workers.some(({ id }) => id === workerId))
      throw new PawlError('NOT_FOUND', `There is no worker ${quoteValue(workerId)}.`);
    await publishBroadcast(redis, prefix, { type: 'drain', workerId });
    await this.#recordOverride({ what: 'worker', action: `drain ${workerId}`, by });
  }
}
