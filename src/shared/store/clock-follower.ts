/** A clock that follows the clock of the Redis server. */
import { FollowedClock } from '../util/time.ts';
import type { Redis } from './redis/connection.ts';

/** Until a clock that was set, or a machine that slept, is noticed, time limits and leases of calls are taken for over. */
const READ_CLOCK_MS = 2_000;

/** Two clocks that nobody sets drift apart by less than this between two readings. */
const DRIFT_MS = 200;

/**
 * Keeps a clock in step with that of the server. After a reconnect it may be another server's; it may be set, and this machine may sleep,
 * which no monotonic clock counts.
 */
export class ClockFollower {
  readonly clock: FollowedClock;
  readonly #redis: Pick<Redis, 'time' | 'status' | 'on'>;
  readonly #timer: NodeJS.Timeout;
  #reading = false;

  constructor(redis: Pick<Redis, 'time' | 'status' | 'on'>, clock = new FollowedClock()) {
    this.#redis = redis;
    this.clock = clock;
    const read = (anew: boolean) => void this.read(anew).catch(() => {});
    this.#timer = setInterval(() => redis.status === 'ready' && !this.#reading && read(false), READ_CLOCK_MS);
    this.#timer.unref();
    redis.on('ready', () => read(true));
  }

  async read(anew = false): Promise<void> {
    const { clock } = this;
    this.#reading = true;
    try {
      const askedAtMs = clock.monotonic();
      const [seconds, microseconds] = await this.#redis.time();
      const redisMs = Number(seconds) * 1_000 + Number(microseconds) / 1_000;
      const tookMs = clock.monotonic() - askedAtMs;
      // More than its way here explains: however slowly it came, it is better than what was known.
      const wasSet = Math.abs(redisMs - clock.now()) > tookMs + DRIFT_MS;
      clock.learn(redisMs, tookMs, anew || wasSet);
    } finally {
      this.#reading = false;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
