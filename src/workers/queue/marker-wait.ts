/**
 * An interruptible wait for a queue's marker, which says that there are jobs. After an interruption the blocking command stays open
 * and serves the next wait. A marker that arrives while this worker does not wait, or cannot fetch jobs, goes to another worker.
 */

/** The answer of BullMQ's `waitForJob`. */
export type Marker = { readonly member: string; readonly score: number } | null;

/** The result of an interrupted wait: fetch at once. */
const INTERRUPTED: Marker = { member: '0', score: 0 };

export class MarkerWait {
  readonly #skipWorker: (marker: NonNullable<Marker>) => void;
  readonly #canFetch: () => boolean;
  #isBlocking = false;
  #waiter: PromiseWithResolvers<Marker> | undefined;
  #interrupted = false;
  #timer: NodeJS.Timeout | undefined;

  /** `skipWorker` puts a marker back, for another worker. */
  constructor(skipWorker: (marker: NonNullable<Marker>) => void, canFetch: () => boolean = () => true) {
    this.#skipWorker = skipWorker;
    this.#canFetch = canFetch;
  }

  /** Resolves with a marker, or with null after `seconds`. `waitForMarker` blocks for as long. */
  wait(seconds: number, waitForMarker: () => Promise<Marker>): Promise<Marker> {
    if (this.#interrupted) {
      this.#interrupted = false;
      return Promise.resolve(INTERRUPTED);
    }
    const waiter = Promise.withResolvers<Marker>();
    this.#waiter = waiter;
    // The earlier command may block for longer.
    if (this.#isBlocking) this.#timer = setTimeout(() => this.#takeWaiter()?.resolve(null), seconds * 1_000);
    else void this.#block(waitForMarker);
    return waiter.promise;
  }

  /** Interrupts the wait, or else the next one. */
  interrupt(): void {
    if (this.#waiter === undefined) this.#interrupted = true;
    else this.#takeWaiter()?.resolve(INTERRUPTED);
  }

  async #block(waitForMarker: () => Promise<Marker>): Promise<void> {
    this.#isBlocking = true;
    try {
      const marker = await waitForMarker();
      this.#isBlocking = false;
      const waiter = this.#takeWaiter();
      if (marker !== null && (waiter === undefined || !this.#canFetch())) this.#skipWorker(marker);
      waiter?.resolve(marker);
    } catch (error) {
      this.#isBlocking = false;
      this.#takeWaiter()?.reject(error);
    }
  }

  #takeWaiter(): PromiseWithResolvers<Marker> | undefined {
    clearTimeout(this.#timer);
    const waiter = this.#waiter;
    this.#waiter = undefined;
    return waiter;
  }
}
