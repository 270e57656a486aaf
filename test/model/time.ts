/** Time that goes from one timer to the next when the model says so, and knows nothing of the real one. */
import type { Clock, Schedule } from '../../src/shared/util/time.ts';

interface Timer {
  readonly atMs: number;
  readonly run: () => void;
}

const START_MS = Date.UTC(2026, 0, 1);

export class VirtualTime implements Clock {
  #nowMs = START_MS;
  readonly #timers = new Set<Timer>();

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#nowMs - START_MS;
  }

  readonly schedule: Schedule = (run, afterMs) => {
    const timer = { atMs: this.#nowMs + Math.max(0, afterMs), run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /**
   * Runs the next timer that is due by then; false when there is none. With `lateMs`, so much more has passed before it runs, as on
   * a machine that is short of time.
   */
  next(untilMs = Number.POSITIVE_INFINITY, lateMs = 0): boolean {
    let first: Timer | undefined;
    for (const timer of this.#timers) if (first === undefined || timer.atMs < first.atMs) first = timer;
    if (first === undefined || first.atMs > untilMs) return false;
    this.#timers.delete(first);
    if (first.atMs > this.#nowMs) this.#nowMs = first.atMs + lateMs;
    first.run();
    return true;
  }

  /** Nothing is due any more until then. */
  reach(atMs: number): void {
    this.#nowMs = Math.max(this.#nowMs, atMs);
  }
}
