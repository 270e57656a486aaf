/** Counts repeated calls of the sessions of one process. */
import type { Claim } from '../shared/store/calls/claim/claim.ts';
import { LimitedMap } from '../shared/util/limited-map.ts';

interface Count {
  repetitions: number;
  readonly untilMs: number;
}

const MAX_COUNTED = 10_000;

export class LocalLoops {
  readonly #counts = new LimitedMap<string, Count>(MAX_COUNTED);

  /** Counts a call, and returns its repetitions; 0 without a loop guard. */
  count(loop: Claim['loop'], nowMs: number): number {
    if (loop === undefined) return 0;
    const count = this.#counts.get(loop.loopId);
    if (count !== undefined && count.untilMs > nowMs) {
      count.repetitions += 1;
      return count.repetitions;
    }
    this.#counts.set(loop.loopId, { repetitions: 1, untilMs: nowMs + loop.windowMs });
    return 1;
  }
}
