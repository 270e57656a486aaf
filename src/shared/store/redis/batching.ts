/**
 * Batches of steps that many calls take at the same time: the round trip, and much of a script, cost the same for one call as for many.
 *
 * The requests of one turn of the event loop share a batch, and gather while another batch is under way; a single call is sent at once. A
 * full batch does not wait, and neither does one behind a batch that takes long: a Redis that does not answer must not add up waiting
 * times.
 */
import type { PartitionKeys } from './keys.ts';

/** A step takes a few milliseconds. */
const LONG_MS = 1_000;

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export class Batches<Item, Answer> {
  /** So many go together at most. */
  most: number;
  readonly #run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>;
  #waiting: Waiting<Item, Answer>[] = [];
  #inProgress = 0;
  #sentAtMs = 0;
  #looking = false;
  #timer: NodeJS.Timeout | undefined;

  /** `run` answers for each of at most so many items, in order; when it fails, it fails for all. */
  constructor(most: number, run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>) {
    this.most = most;
    this.#run = run;
  }

  add(item: Item): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#lookAfterTurn();
    });
  }

  #lookAfterTurn(): void {
    if (this.#looking) return;
    this.#looking = true;
    process.nextTick(() => {
      this.#looking = false;
      while (this.#waiting.length > 0 && (this.#inProgress === 0 || this.#waiting.length >= this.most))
        void this.#send(this.#waiting.splice(0, this.most));
      if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => this.#lookAtLongWait(), LONG_MS).unref();
    });
  }

  #lookAtLongWait(): void {
    this.#timer = undefined;
    if (this.#waiting.length > 0 && performance.now() - this.#sentAtMs >= LONG_MS)
      void this.#send(this.#waiting.splice(0, this.most));
    this.#lookAfterTurn();
  }

  async #send(batch: readonly Waiting<Item, Answer>[]): Promise<void> {
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
      // Behind all that the answers set off.
      if (this.#waiting.length > 0) this.#lookAfterTurn();
    }
  }
}

/** Batches of each place for itself: a step touches one. */
export class PartitionBatches<Item, Answer> {
  readonly #most: number;
  readonly #run: (keys: PartitionKeys, items: readonly Item[]) => Promise<readonly (Answer | Error)[]>;
  readonly #batches = new Map<PartitionKeys, Batches<Item, Answer>>();

  /** `run`: as of `Batches`. */
  constructor(
    most: number,
    run: (keys: PartitionKeys, items: readonly Item[]) => Promise<readonly (Answer | Error)[]>,
  ) {
    this.#most = most;
    this.#run = run;
  }

  add(keys: PartitionKeys, item: Item): Promise<Answer> {
    return this.of(keys).add(item);
  }

  of(keys: PartitionKeys): Batches<Item, Answer> {
    let batches = this.#batches.get(keys);
    if (batches === undefined) {
      batches = new Batches(this.#most, (items) => this.#run(keys, items));
      this.#batches.set(keys, batches);
    }
    return batches;
  }
}
