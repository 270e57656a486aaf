/**
 * Waits for a queue's marker, which says that there are jobs, and can be interrupted. The blocking command then stays with Redis and
 * serves the next wait. A marker that comes while this worker does not wait, or cannot take jobs, goes to another worker.
 */

/** The answer of BullMQ's `waitForJob`. */
export type Marker = { readonly member: string; readonly score: number } | null;

/** The answer of an interrupted wait: look at once. */
const AT_ONCE: Marker = { member: '0', score: 0 };

export class MarkerWait {
  readonly #skipWorker: (marker: NonNullable<Marker>) => void;
  readonly #canTake: () => boolean;
  #asked = false;
  #waiting: PromiseWithResolvers<Marker> | undefined;
  #expected = false;
  #timer: NodeJS.Timeout | undefined;

  /** `skipWorker` puts a marker back, for another worker. */
  constructor(skipWorker: (marker: NonNullable<Marker>) => void, canTake: () => boolean = () => true) {
    this.#skipWorker = skipWorker;
    this.#canTake = canTake;
  }

  /** Resolves with a marker, or with null after `seconds`. `ask` blocks for as long. */
  wait(seconds: number, ask: () => Promise<Marker>): Promise<Marker> {
    if (this.#expected) {
      this.#expected = false;
      return Promise.resolve(AT_ONCE);
    }
    const waiting = Promise.withResolvers<Marker>();
    this.#waiting = waiting;
    // The earlier command may block for longer.
    if (this.#asked) this.#timer = setTimeout(() => this.#take()?.resolve(null), seconds * 1_000);
    else void this.#ask(ask);
    return waiting.promise;
  }

  /** Interrupts the wait, or else the next one. */
  interrupt(): void {
    if (this.#waiting === undefined) this.#expected = true;
    else this.#take()?.resolve(AT_ONCE);
  }

  async #ask(ask: () => Promise<Marker>): Promise<void> {
    this.#asked = true;
    try {
      const marker = await ask();
      this.#asked = false;
      const waiting = this.#take();
      if (marker !== null && (waiting === undefined || !this.#canTake())) this.#skipWorker(marker);
      waiting?.resolve(marker);
    } catch (error) {
      this.#asked = false;
      this.#take()?.reject(error);
    }
  }

  #take(): PromiseWithResolvers<Marker> | undefined {
    clearTimeout(this.#timer);
    const waiting = this.#waiting;
    this.#waiting = undefined;
    return waiting;
  }
}
