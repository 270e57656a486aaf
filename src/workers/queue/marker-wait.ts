/**
 * Waiting for a queue's marker, which says that there is something to take, with a way to be woken before. The question that
 * blocks stays with Redis then, for whoever waits next; a marker that comes while nobody waits, or nothing can be taken, goes back,
 * for another worker.
 */

/** What BullMQ's `waitForJob` answers. */
export type Marker = { readonly member: string; readonly score: number } | null;

/** Woken without a marker: look at once. */
const AT_ONCE: Marker = { member: '0', score: 0 };

export class MarkerWait {
  readonly #passOn: (marker: NonNullable<Marker>) => void;
  readonly #canTake: () => boolean;
  #asked = false;
  #waiting: PromiseWithResolvers<Marker> | undefined;
  #expected = false;
  #timer: NodeJS.Timeout | undefined;

  /** `passOn` puts a marker back. */
  constructor(passOn: (marker: NonNullable<Marker>) => void, canTake: () => boolean = () => true) {
    this.#passOn = passOn;
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
    // What was asked before may block for longer.
    if (this.#asked) this.#timer = setTimeout(() => this.#take()?.resolve(null), seconds * 1_000);
    else void this.#ask(ask);
    return waiting.promise;
  }

  /** Wakes whoever waits, or else does not let the next one wait. */
  promote(): void {
    if (this.#waiting === undefined) this.#expected = true;
    else this.#take()?.resolve(AT_ONCE);
  }

  async #ask(ask: () => Promise<Marker>): Promise<void> {
    this.#asked = true;
    try {
      const marker = await ask();
      this.#asked = false;
      const waiting = this.#take();
      if (marker !== null && (waiting === undefined || !this.#canTake())) this.#passOn(marker);
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
