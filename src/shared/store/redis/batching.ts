/**
 * Batches of script runs: the round trip, and much of a script's work, cost the same for one call as for many.
 *
 * The items of one turn of the event loop share a batch, and further ones gather while a batch is in progress; a single item is sent at
 * once. A full batch does not wait for the end of the turn: Redis works on it while this process makes the next one. A batch behind one
 * that takes too long does not wait either: with a Redis that does not answer, waiting times must not add up.
 */
import { getOrInsert } from '../../util/get-or-insert.ts';
import type { PartitionKeys } from './keys.ts';

/** Usually a batch takes a few milliseconds. */
const MAX_WAIT_MS = 1_000;

interface WaitingItem<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export class Batches<Item, Answer> {
  maxItems: number;
  readonly #run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>;
  #waiting: WaitingItem<Item, Answer>[] = [];
  #inProgress = 0;
  #sentAtMs = 0;
  #isScheduled = false;
  #timer: NodeJS.Timeout | undefined;

  /** `run` returns an answer for each of up to `maxItems` items, in order. If it fails, all of them fail. */
  constructor(maxItems: number, run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>) {
    this.maxItems = maxItems;
    this.#run = run;
  }

  add(item: Item): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#waiting.length >= this.maxItems) void this.#send();
      else this.#scheduleSend();
    });
  }

  #scheduleSend(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    process.nextTick(() => {
      this.#isScheduled = false;
      while (this.#waiting.length > 0 && (this.#inProgress === 0 || this.#waiting.length >= this.maxItems))
        void this.#send();
      if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => this.#sendOverdue(), MAX_WAIT_MS).unref();
    });
  }

  #sendOverdue(): void {
    this.#timer = undefined;
    if (this.#waiting.length > 0 && performance.now() - this.#sentAtMs >= MAX_WAIT_MS) void this.#send();
    this.#scheduleSend();
  }

  async #send(): Promise<void> {
    const batch = this.#waiting.splice(0, this.maxItems);
    this.#inProgress += 1;
    this.#sentAtMs = performance.now();
    try {
      const answers = await this.#run(batch.map(({ item }) => item));
      batch.forEach(({ resolve, reject }, index) => {
        const answer = answers[index];
        if (answer instanceof Error) reject(answer);
        else resolve(answer as Answer);
      });
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.#inProgress -= 1;
      // After the callers of this batch had their turn, so that their next items join the next batch.
      if (this.#waiting.length > 0) this.#scheduleSend();
    }
  }
}

/** Separate batches for each partition, because a script touches one partition. */
export class PartitionBatches<Item, Answer> {
  readonly #maxItems: number;
  readonly #run: (keys: PartitionKeys, items: readonly Item[]) => Promise<readonly (Answer | Error)[]>;
  readonly #batches = new Map<PartitionKeys, Batches<Item, Answer>>();

  /** `run`: see `Batches`. */
  constructor(
    maxItems: number,
    run: (keys: PartitionKeys, items: readonly Item[]) => Promise<readonly (Answer | Error)[]>,
  ) {
    this.#maxItems = maxItems;
    this.#run = run;
  }

  add(keys: PartitionKeys, item: Item): Promise<Answer> {
    return this.forPartition(keys).add(item);
  }

  forPartition(keys: PartitionKeys): Batches<Item, Answer> {
    const make = () => new Batches<Item, Answer>(this.#maxItems, (items) => this.#run(keys, items));
    return getOrInsert(this.#batches, keys, make);
  }
}
