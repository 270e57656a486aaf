/**
 * The exponential backoff of targets of remote channels, such as webhooks, that failed. Waiting for such a target blocks a worker, and each
 * approval is announced again every two seconds. After a pause, one announcement at a time tries the target.
 */
import { LimitedMap } from '../../shared/util/limited-map.ts';
import { type Clock, systemClock } from '../../shared/util/time.ts';

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** The most targets in backoff: the oldest are dropped. */
const MAX_DOWN = 1_000;

interface Backoff {
  failures: number;
  untilMs: number;
  /** An announcement has tried the target since the last failure. */
  isTried: boolean;
}

export class ChannelBackoff {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #down = new LimitedMap<string, Backoff>(MAX_DOWN);

  constructor(clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#clock = clock;
  }

  /** Whether the target may be tried now. After a pause, one announcement is let through for `limitMs`, or until it ends. */
  mayTry(target: string, limitMs: number): boolean {
    const backoff = this.#down.get(target);
    if (backoff === undefined) return true;
    const nowMs = this.#clock.monotonic();
    if (nowMs < backoff.untilMs) return false;
    backoff.untilMs = nowMs + limitMs;
    backoff.isTried = true;
    return true;
  }

  succeeded(target: string): void {
    this.#down.delete(target);
  }

  /** Concurrent announcements that fail count as one failure. */
  failed(target: string): void {
    const previous = this.#down.get(target);
    if (previous?.isTried === false) return;
    const failures = (previous?.failures ?? 0) + 1;
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
    this.#down.set(target, { failures, untilMs: this.#clock.monotonic() + pauseMs, isTried: false });
  }
}
