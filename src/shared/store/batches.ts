/**
 * Steps that many calls take at the same time go to Redis as one: the way there and back, and much of what a script does, cost the
 * same for one call as for many.
 *
 * What is asked for in one turn of the event loop goes together, and gathers while as much as that is still under way: a single call
 * goes at once, and of many lanes one half gathers while the other half is with the server.
 */

/** Redis has others to serve. */
const MAX_BATCH = 32;

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export class Batches<Item, Answer> {
  readonly #run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>;
  #waiting: Waiting<Item, Answer>[] = [];
  #underWay = 0;
  #looking = false;

  /** `run` answers for each item, in order; when it fails, it fails for all. */
  constructor(run: (items: readonly Item[]) => Promise<readonly (Answer | Error)[]>) {
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
      while (this.#waiting.length >= MAX_BATCH || (this.#waiting.length > 0 && this.#waiting.length >= this.#underWay))
        void this.#send(this.#waiting.splice(0, MAX_BATCH));
    });
  }

  async #send(batch: readonly Waiting<Item, Answer>[]): Promise<void> {
    this.#underWay += batch.length;
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
      this.#underWay -= batch.length;
      // Behind all that the answers set off.
      if (this.#waiting.length > 0) this.#lookAfterTurn();
    }
  }
}
