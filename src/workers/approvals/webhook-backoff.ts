/**
 * The backoff of webhooks that failed. A wait for such a webhook holds a worker, and each approval is announced again every two seconds.
 * So after each failure the pause is longer, and then one announcement at a time tries it.
 */
import { type Clock, systemClock } from '../../shared/util/time.ts';

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** The limit of remembered webhooks: those that failed first are forgotten. */
const MAX_DOWN = 1_000;

interface Down {
  failures: number;
  untilMs: number;
  /** An announcement has tried it since the last failure. */
  asked: boolean;
}

export class WebhookPauses {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #down = new Map<string, Down>();

  constructor(clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#clock = clock;
  }

  /** Whether it may be tried now. The first announcement after a pause is the only one for `limitMs`, or until its end is known. */
  mayAsk(url: string, limitMs: number): boolean {
    const down = this.#down.get(url);
    if (down === undefined) return true;
    const nowMs = this.#clock.monotonic();
    if (nowMs < down.untilMs) return false;
    down.untilMs = nowMs + limitMs;
    down.asked = true;
    return true;
  }

  took(url: string): void {
    this.#down.delete(url);
  }

  /** Those that asked it at the same time have met one failure. */
  failed(url: string): void {
    const before = this.#down.get(url);
    if (before?.asked === false) return;
    const failures = (before?.failures ?? 0) + 1;
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
    this.#down.delete(url);
    this.#down.set(url, { failures, untilMs: this.#clock.monotonic() + pauseMs, asked: false });
    const [longest] = this.#down.keys();
    if (this.#down.size > MAX_DOWN && longest !== undefined) this.#down.delete(longest);
  }
}
