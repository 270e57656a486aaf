/**
 * The exponential backoff of webhooks that failed. Waiting for such a webhook blocks a worker, and each approval is announced again every
 * two seconds. After a pause, one announcement at a time tries the webhook.
 */
import { type Clock, systemClock } from '../../shared/util/time.ts';

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** The most webhooks in backoff: the oldest are dropped. */
const MAX_DOWN = 1_000;

interface Backoff {
  failures: number;
  untilMs: number;
  /** An announcement has tried the webhook since the last failure. */
  isTried: boolean;
}

export class WebhookPauses {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #down = new Map<string, Backoff>();

  constructor(clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#clock = clock;
  }

  /** Whether the webhook may be tried now. After a pause, one announcement is let through for `limitMs`, or until it ends. */
  mayTry(url: string, limitMs: number): boolean {
    const backoff = this.#down.get(url);
    if (backoff === undefined) return true;
    const nowMs = this.#clock.monotonic();
    if (nowMs < backoff.untilMs) return false;
    backoff.untilMs = nowMs + limitMs;
    backoff.isTried = true;
    return true;
  }

  succeeded(url: string): void {
    this.#down.delete(url);
  }

  /** Concurrent announcements that fail count as one failure. */
  failed(url: string): void {
    const previous = this.#down.get(url);
    if (previous?.isTried === false) return;
    const failures = (previous?.failures ?? 0) + 1;
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
    this.#down.delete(url);
    this.#down.set(url, { failures, untilMs: this.#clock.monotonic() + pauseMs, isTried: false });
    const [oldest] = this.#down.keys();
    if (this.#down.size > MAX_DOWN && oldest !== undefined) this.#down.delete(oldest);
  }
}
