/** A clock that follows the clock of the Redis server. */
import { FollowedClock } from '../util/time.ts';
import type { Redis } from './redis/connection.ts';

/** How often the server's clock is read. Until a changed clock is noticed, time limits and leases of calls may seem to be over. */
const READ_CLOCK_MS = 2_000;

/** Two clocks drift apart by less than this between two readings, unless one is set. */
const DRIFT_MS = 200;

/**
 * Keeps a clock in step with that of the server. After a reconnect the server may be another one; its clock may be set; and this machine
 * may sleep, which no monotonic clock counts.
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
      // A larger difference than the round trip explains: the clock was set, so even a slow reading is better than the known value.
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
