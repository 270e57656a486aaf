/**
 * The queues that a worker serves: those of all shards of its tiers. `refresh()` follows changes of the layout. A new shard is served
 * at once. A removed shard gets no new sessions, and is served while it has records of calls: its sessions still submit calls.
 */
import type { Shards } from '../../shared/store/queues/shards.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import { ConcurrencyLimiter } from './concurrency-slots.ts';
import type { JobQueue } from './job-queue.ts';

interface ServedQueuesDeps {
  readonly shards: Pick<Shards, 'layout' | 'partitions'>;
  readonly tiers: readonly Tier[];
  /** Attempts at a time, for each tier. */
  readonly concurrency: number;
  recordCount(partition: Partition): Promise<number>;
  open(partition: Partition, slots: ConcurrencyLimiter): ServedQueue;
}

type ServedQueue = Pick<JobQueue, 'run' | 'share' | 'stopFetching' | 'close' | 'closeLocks'>;

interface ServedPartition {
  readonly partition: Partition;
  readonly queue: ServedQueue;
}

export class ServedQueues {
  readonly #deps: ServedQueuesDeps;
  readonly #slots: ReadonlyMap<Tier, ConcurrencyLimiter>;
  #served: readonly ServedPartition[] = [];
  #refreshing: Promise<void> = Promise.resolve();
  #ended = false;

  constructor(deps: ServedQueuesDeps) {
    this.#deps = deps;
    this.#slots = new Map(deps.tiers.map((tier) => [tier, new ConcurrencyLimiter(deps.concurrency)]));
  }

  /** Opens and closes queues by the current layout; resolves when all of them fetch jobs. */
  refresh(): Promise<void> {
    const previous = this.#refreshing.catch(() => {});
    this.#refreshing = previous.then(() => this.#refresh());
    return this.#refreshing;
  }

  async #refresh(): Promise<void> {
    const { shards, tiers } = this.#deps;
    const candidates = await Promise.all(
      shards
        .partitions(tiers)
        .map(async (partition) => ({ partition, shouldServe: await this.#shouldServe(partition) })),
    );
    const opened: ServedPartition[] = [];
    const removed: ServedPartition[] = [];
    for (const { partition, shouldServe } of candidates) {
      const served = this.#served.find(
        (each) => each.partition.tier === partition.tier && each.partition.shard === partition.shard,
      );
      if (this.#ended || shouldServe === (served !== undefined)) continue;
      if (served === undefined) opened.push(this.#open(partition));
      else removed.push(served);
    }
    this.#served = this.#served.filter((each) => !removed.includes(each));
    const sharing = this.#served.filter(({ partition }) => shards.layout[partition.tier].highest > 1);
    await Promise.all([
      ...opened.map((served) => this.#run(served)),
      ...removed.map((each) => closeQueue(each)),
      ...sharing.map(({ queue }) => queue.share()),
    ]);
  }

  async #shouldServe(partition: Partition): Promise<boolean> {
    const { shards, recordCount } = this.#deps;
    return partition.shard < shards.layout[partition.tier].current || (await recordCount(partition)) > 0;
  }

  #open(partition: Partition): ServedPartition {
    const served = {
      partition,
      queue: this.#deps.open(partition, this.#slots.get(partition.tier) as ConcurrencyLimiter),
    };
    this.#served = [...this.#served, served];
    return served;
  }

  /** A queue that could not start is opened again by the next refresh. */
  async #run(served: ServedPartition): Promise<void> {
    try {
      await served.queue.run();
    } catch (error) {
      this.#served = this.#served.filter((each) => each !== served);
      await closeQueue(served, true).catch(() => {});
      throw error;
    }
  }

  /** Fetches no jobs until `resume()`. */
  pause(): void {
    for (const slots of this.#slots.values()) slots.pause();
  }

  resume(): void {
    for (const slots of this.#slots.values()) slots.resume();
  }

  /** Fetches nothing any more; jobs that arrive now are returned. */
  async stopFetching(): Promise<void> {
    this.#ended = true;
    await Promise.all(this.#served.map(({ queue }) => queue.stopFetching()));
  }

  /** Resolves when the running jobs have ended; with `force` at once. */
  async close(force?: boolean): Promise<void> {
    await Promise.all(this.#served.map(({ queue }) => queue.close(force)));
  }

  closeLocks(): void {
    for (const { queue } of this.#served) queue.closeLocks();
  }
}

async function closeQueue({ queue }: ServedPartition, force?: boolean): Promise<void> {
  await queue.stopFetching();
  await queue.close(force);
  queue.closeLocks();
}
