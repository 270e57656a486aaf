/**
 * Limits how many attempts of a tier this worker runs at a time, whichever of the tier's queues they come from. Queues that wait for a
 * slot are served in the order in which they asked, so that a busy one does not starve the others.
 */
export class ConcurrencyLimiter {
  #free: number;
  readonly #waiting: { readonly by: object; readonly go: () => void }[] = [];
  #paused = false;

  constructor(total: number) {
    this.#free = total;
  }

  /** Takes one slot, at once or when its turn has come. `by` is the queue that asks. */
  take(by: object): Promise<void> | undefined {
    if (this.takeNow(1) === 1) return undefined;
    return new Promise((go) => this.#waiting.push({ by, go }));
  }

  /** Takes at most so many slots that are free now, none while a queue waits; returns how many. */
  takeNow(most: number): number {
    const taken = this.#waiting.length > 0 ? 0 : Math.max(0, Math.min(most, this.free));
    this.#free -= taken;
    return taken;
  }

  /** None while it is paused. */
  get free(): number {
    return this.#paused ? Math.min(0, this.#free) : this.#free;
  }

  /** Gives no slot until it is resumed. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.give(0);
  }

  /** Whether a job of this queue may leave its slot to the next one of the same queue. */
  mayKeep(by: object): boolean {
    return !this.#paused && this.#free >= 0 && this.#waiting.every((waiting) => waiting.by === by);
  }

  /** Uses slots for jobs that are here already, whether they are free or not. */
  use(slots: number): void {
    this.#free -= slots;
  }

  give(slots: number): void {
    this.#free += slots;
    while (this.free > 0 && this.#waiting.length > 0) {
      this.#free -= 1;
      this.#waiting.shift()?.go();
    }
  }
}
