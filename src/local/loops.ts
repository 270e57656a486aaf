/** Counts repeated calls of the sessions of one process. */
import type { Claim } from '../shared/store/calls/claim.ts';

interface Count {
  repetitions: number;
  readonly untilMs: number;
}

const MAX_COUNTED = 10_000;

export class LocalLoops {
  readonly #counts = new Map<string, Count>();

  /** Counts a call, and returns its repetitions; 0 without a loop guard. */
  count(loop: Claim['loop'], nowMs: number): number {
    if (loop === undefined) return 0;
    const count = this.#counts.get(loop.loopId);
    if (count !== undefined && count.untilMs > nowMs) {
      count.repetitions += 1;
      return count.repetitions;
    }
    this.#counts.delete(loop.loopId);
    this.#counts.set(loop.loopId, { repetitions: 1, untilMs: nowMs + loop.windowMs });
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MAX_COUNTED && oldest !== undefined) this.#counts.delete(oldest);
    return 1;
  }
}
