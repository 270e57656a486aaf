import type { Clock } from './time.ts';

/** A value that is read again once it is older than `freshMs`. Callers share one reading, and a failed one is not kept. */
export class Remembered<Value> {
  readonly #read: () => Promise<Value>;
  readonly #freshMs: number;
  readonly #clock: Pick<Clock, 'monotonic'>;
  #last: { readonly value: Promise<Value>; readonly readAtMs: number } | undefined;

  constructor(read: () => Promise<Value>, freshMs: number, clock: Pick<Clock, 'monotonic'>) {
    this.#read = read;
    this.#freshMs = freshMs;
    this.#clock = clock;
  }

  get(): Promise<Value> {
    const nowMs = this.#clock.monotonic();
    if (this.#last === undefined || nowMs - this.#last.readAtMs > this.#freshMs) {
      const value = this.#read();
      this.#last = { value, readAtMs: nowMs };
      value.catch(() => {
        if (this.#last?.value === value) this.forget();
      });
    }
    return this.#last.value;
  }

  /** The value may have changed. */
  forget(): void {
    this.#last = undefined;
  }
}
