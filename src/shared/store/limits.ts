/**
 * Limits that hold for the whole fleet, whoever runs the calls: how many at a time, and how many starts in a second (I17, I20). Who
 * has to wait gives its worker back; whoever ends wakes the next one.
 */
import { placeOf } from '../fingerprint.ts';
import { FleetKeys, PlaceKeys } from './keys.ts';
import { callOfJob } from './queues.ts';
import { type Redis, Script } from './redis.ts';

export interface FleetLimit {
  /** Calls under one name share the limit: of a tool, a tenant, a credential. */
  readonly name: string;
  /** At a time. */
  readonly concurrency?: number | undefined;
  /** Starts in any second. */
  readonly perSecond?: number | undefined;
}

/**
 * A start is granted here and arrives elsewhere, at the latest when it has ended. From then on it counts for a second: whatever
 * the way there takes, nobody sees more than the limit in a second of theirs. One that is still under way counts as arrived by then.
 */
const ARRIVES_WITHIN_MS = 1_000;
/** Clocks count whole milliseconds. */
const WINDOW_MS = 1_002;
/** A slot is kept this long for a call that was woken for it. */
const WOKEN_MS = 2_000;

const takeScript = new Script('limit-take', 4);
const releaseScript = new Script('limit-release', 3);
const wakeScript = new Script('wake', 3);

export class Limits {
  readonly #redis: Redis;
  readonly #prefix: string;

  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#prefix = prefix;
  }

  /**
   * Takes a start for a job, or says in how many milliseconds to ask again; the job keeps its place in the queue of those that wait.
   * `leaseMs`: how long a slot is held at most. `start` names one of several starts of the job.
   */
  async take(limit: FleetLimit, jobId: string, leaseMs: number, start = jobId): Promise<{ readonly waitMs: number }> {
    const { concurrency = 0, perSecond = 0 } = limit;
    const keys = this.#keysOf(limit);
    const [taken, waitMs] = await takeScript.run(
      this.#redis,
      [keys.holders, keys.waiters, keys.starts, keys.told],
      [jobId, concurrency, perSecond, WINDOW_MS, Math.ceil(leaseMs), start, ARRIVES_WITHIN_MS],
    );
    return { waitMs: taken === 1 ? 0 : Number(waitMs) };
  }

  /** Says that a start has ended, gives the job's slot back and wakes those that are next. */
  async release(limit: FleetLimit, jobId: string, start = jobId): Promise<void> {
    const { holders, waiters, starts } = this.#keysOf(limit);
    const woken = await releaseScript.run(
      this.#redis,
      [holders, waiters, starts],
      [jobId, limit.concurrency ?? 0, WOKEN_MS, start],
    );
    await Promise.all(woken.map((next) => this.#wake(String(next))));
  }

  async #wake(jobId: string): Promise<void> {
    const { callId } = callOfJob(jobId);
    const place = placeOf(callId);
    if (place === undefined) return;
    const keys = new PlaceKeys(this.#prefix, place);
    await wakeScript.run(this.#redis, [keys.record(callId), keys.job('delayed'), keys.job('marker')], [jobId]);
  }

  #keysOf({ name }: FleetLimit) {
    return new FleetKeys(this.#prefix).limit(name);
  }
}
