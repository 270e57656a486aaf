/** Counts how often the sessions of one process make the same call. */
import type { Claim } from '../shared/store/calls/claim.ts';

interface Count {
  repetitions: number;
  readonly untilMs: number;
}

const MAX_COUNTED = 10_000;

export class LocalLoops {
  readonly #counts = new Map<string, Count>();

  /** Counts a call; 0 when it is not to be counted. */
  count(loop: Claim['loop'], nowMs: number): number {
    if (loop === undefined) return 0;
    const held = this.#counts.get(loop.loopId);
    if (held !== undefined && held.untilMs > nowMs) {
      held.repetitions += 1;
      return held.repetitions;
    }
    this.#counts.delete(loop.loopId);
    this.#counts.set(loop.loopId, { repetitions: 1, untilMs: nowMs + loop.windowMs });
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MAX_COUNTED && oldest !== undefined) this.#counts.delete(oldest);
    return 1;
  }
}
