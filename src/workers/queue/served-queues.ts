/**
 * The queues that a worker takes jobs from: those of all shards of its tiers. It follows while it runs: a new shard is served at
 * once, and one that gets no new sessions any more for as long as a call of it is kept, because its sessions still call.
 */

import type { Shards } from '../../shared/store/queues/shards.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import { ConcurrencyLimiter } from './concurrency-slots.ts';
import type { JobQueue } from './job-queue.ts';

export interface ServedQueuesDeps {
  readonly shards: Pick<Shards, 'layout' | 'partitions'>;
  readonly tiers: readonly Tier[];
  /** Attempts at a time, for each tier. */
  readonly concurrency: number;
  /** How many calls of a partition are kept. */
  kept(partition: Partition): Promise<number>;
  open(partition: Partition, slots: ConcurrencyLimiter): ServedQueue;
}

type ServedQueue = Pick<JobQueue, 'run' | 'share' | 'putBack' | 'close' | 'closeLocks'>;

interface Served {
  readonly partition: Partition;
  readonly queue: ServedQueue;
}

export class ServedQueues {
  readonly #deps: ServedQueuesDeps;
  readonly #slots: ReadonlyMap<Tier, ConcurrencyLimiter>;
  #served: readonly Served[] = [];
  #following: Promise<void> = Promise.resolve();
  #ended = false;

  constructor(deps: ServedQueuesDeps) {
    this.#deps = deps;
    this.#slots = new Map(deps.tiers.map((tier) => [tier, new ConcurrencyLimiter(deps.concurrency)]));
  }

  /** Serves what is to be served by now; resolves when jobs are taken from all of it. */
  follow(): Promise<void> {
    const before = this.#following.catch(() => {});
    this.#following = before.then(() => this.#follow());
    return this.#following;
  }

  async #follow(): Promise<void> {
    const { shards, tiers } = this.#deps;
    const wanted = await Promise.all(
      shards.partitions(tiers).map(async (partition) => ({ partition, isWanted: await this.#isWanted(partition) })),
    );
    const opened: Served[] = [];
    const left: Served[] = [];
    for (const { partition, isWanted } of wanted) {
      const served = this.#served.find(
        (each) => each.partition.tier === partition.tier && each.partition.shard === partition.shard,
      );
      if (this.#ended || isWanted === (served !== undefined)) continue;
      if (served === undefined) opened.push(this.#open(partition));
      else left.push(served);
    }
    this.#served = this.#served.filter((each) => !left.includes(each));
    const sharing = this.#served.filter(({ partition }) => shards.layout[partition.tier].made > 1);
    await Promise.all([
      ...opened.map((served) => this.#run(served)),
      ...left.map(leave),
      ...sharing.map(({ queue }) => queue.share()),
    ]);
  }

  async #isWanted(partition: Partition): Promise<boolean> {
    const { shards, kept } = this.#deps;
    return partition.shard < shards.layout[partition.tier].current || (await kept(partition)) > 0;
  }

  #open(partition: Partition): Served {
    const served = {
      partition,
      queue: this.#deps.open(partition, this.#slots.get(partition.tier) as ConcurrencyLimiter),
    };
    this.#served = [...this.#served, served];
    return served;
  }

  /** A queue that Redis did not let begin is opened again at the next look. */
  async #run(served: Served): Promise<void> {
    try {
      await served.queue.run();
    } catch (error) {
      this.#served = this.#served.filter((each) => each !== served);
      await leave(served).catch(() => {});
      throw error;
    }
  }

  /** Takes no jobs until it is resumed. */
  pause(): void {
    for (const slots of this.#slots.values()) slots.pause();
  }

  resume(): void {
    for (const slots of this.#slots.values()) slots.resume();
  }

  /** Fetches nothing any more; what was fetched in this moment goes back. */
  async putBack(): Promise<void> {
    this.#ended = true;
    await Promise.all(this.#served.map(({ queue }) => queue.putBack()));
  }

  /** Resolves when the jobs that run have ended, with `force` at once. */
  async close(force?: boolean): Promise<void> {
    await Promise.all(this.#served.map(({ queue }) => queue.close(force)));
  }

  closeLocks(): void {
    for (const { queue } of this.#served) queue.closeLocks();
  }
}

async function leave({ queue }: Served): Promise<void> {
  await queue.putBack();
  await queue.close();
  queue.closeLocks();
}
