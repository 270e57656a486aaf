/**
 * How many attempts of a tier this worker runs at a time, whichever of the tier's queues they come from. Queues that wait for a slot
 * get theirs in the order in which they asked: one that is full of work leaves turns to the others.
 */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(total: number) {
    this.#free = total;
  }

  /** Takes one slot, at once or when its turn has come. */
  take(): Promise<void> | undefined {
    if (this.takeNow(1) === 1) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Takes at most so many slots that are free now, none while others wait; returns how many. */
  takeNow(most: number): number {
    const taken = this.#waiting.length > 0 ? 0 : Math.max(0, Math.min(most, this.#free));
    this.#free -= taken;
    return taken;
  }

  get free(): number {
    return this.#free;
  }

  /** Uses slots for jobs that are here already, whether they are free or not. */
  use(slots: number): void {
    this.#free -= slots;
  }

  give(slots: number): void {
    this.#free += slots;
    while (this.#free > 0 && this.#waiting.length > 0) {
      this.#free -= 1;
      this.#waiting.shift()?.();
    }
  }
}
