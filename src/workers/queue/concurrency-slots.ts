/**
 * Limits how many attempts of a tier this worker runs at a time, over all of the tier's queues. Waiting queues get slots in the order
 * of their requests, so that a busy queue does not starve the others.
 */
export class ConcurrencyLimiter {
  #free: number;
  readonly #waiting: { readonly queue: object; readonly grant: () => void }[] = [];
  #paused = false;

  constructor(total: number) {
    this.#free = total;
  }

  /** Acquires one slot for the queue. Undefined when one is free now; otherwise it resolves when the slot is granted. */
  acquire(queue: object): Promise<void> | undefined {
    if (this.acquireFree(1) === 1) return undefined;
    return new Promise((grant) => this.#waiting.push({ queue, grant }));
  }

  /** Acquires up to `maxSlots` free slots without waiting, none while a queue waits. Returns their number. */
  acquireFree(maxSlots: number): number {
    const granted = this.#waiting.length > 0 ? 0 : Math.max(0, Math.min(maxSlots, this.free));
    this.#free -= granted;
    return granted;
  }

  /** Free slots; none while it is paused. */
  get free(): number {
    return this.#paused ? Math.min(0, this.#free) : this.#free;
  }

  /** Grants no slot until `resume()`. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.release(0);
  }

  /** Whether a job of this queue may leave its slot to the next one of the same queue. */
  mayKeep(queue: object): boolean {
    return !this.#paused && this.#free >= 0 && this.#waiting.every((waiting) => waiting.queue === queue);
  }

  /** Takes slots for jobs that have arrived already, even when none are free. */
  occupy(slots: number): void {
    this.#free -= slots;
  }

  release(slots: number): void {
    this.#free += slots;
    while (this.free > 0 && this.#waiting.length > 0) {
      this.#free -= 1;
      this.#waiting.shift()?.grant();
    }
  }
}
