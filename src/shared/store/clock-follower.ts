/** A clock that follows the clock of the Redis server. */
import { SyncedClock } from '../util/time.ts';
import { exactServerTimeMs, type Redis } from './redis/connection.ts';

/** How often the server's clock is read. Until a changed clock is detected, time limits and leases may seem to be over. */
const READ_CLOCK_MS = 2_000;

/** Two clocks drift apart by less than this between two readings, unless one is set. */
const DRIFT_MS = 200;

/**
 * Keeps a clock synchronized with the server's. After a reconnect the server may be another one, its clock may be set, and this machine may
 * sleep, which monotonic clocks do not count.
 */
export class ClockFollower {
  readonly clock = new SyncedClock();
  readonly #redis: Pick<Redis, 'time' | 'status' | 'on'>;
  readonly #timer: NodeJS.Timeout;
  #reading = false;

  constructor(redis: Pick<Redis, 'time' | 'status' | 'on'>) {
    this.#redis = redis;
    const read = (isNewServer: boolean) => void this.read(isNewServer).catch(() => {});
    this.#timer = setInterval(() => redis.status === 'ready' && !this.#reading && read(false), READ_CLOCK_MS).unref();
    redis.on('ready', () => read(true));
  }

  async read(isNewServer = false): Promise<void> {
    const { clock } = this;
    this.#reading = true;
    try {
      const sentAtMs = clock.monotonic();
      const redisMs = await exactServerTimeMs(this.#redis);
      const roundTripMs = clock.monotonic() - sentAtMs;
      // If the round trip cannot explain the difference, the clock was set: then even a slow reading is better than the known value.
      const wasSet = Math.abs(redisMs - clock.now()) > roundTripMs + DRIFT_MS;
      clock.learn(redisMs, roundTripMs, isNewServer || wasSet);
    } finally {
      this.#reading = false;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
