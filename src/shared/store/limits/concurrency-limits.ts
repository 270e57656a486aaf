/**
 * Limits that hold for the whole fleet, whoever runs the calls: how many at a time, and how many starts in a second (I17, I20). Who
 * has to wait gives its worker back; whoever ends wakes the next one.
 */

import { promote } from '../queues/promote.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetKeys } from '../redis/keys.ts';
import { luaFunction, Script } from '../redis/script.ts';

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
/** A slot, or a start, is kept this long for a call that was woken for it. */
const WOKEN_MS = 2_000;

const GRANT_LUA = [luaFunction(new URL('./limit-grant.lua', import.meta.url))];
const takeScript = new Script(new URL('./limit-acquire.lua', import.meta.url), GRANT_LUA);
const renewScript = new Script(new URL('./limit-renew.lua', import.meta.url));
const releaseScript = new Script(new URL('./limit-release.lua', import.meta.url), GRANT_LUA);

/** Who asks for a start. */
export interface Starter {
  readonly jobId: string;
  /** Names one of several starts of the job. */
  readonly start?: string;
  /** Those of one session take turns with other sessions'. Default: the job's ID. */
  readonly session?: string;
  /** Since when it asks, on Redis' clock: who has lost its place since has it again. Default: the first time that it asks. */
  readonly sinceMs?: number;
}

export type LimitAnswer =
  | { readonly kind: 'granted'; readonly heldUntilMs: number }
  /** For its time: it is woken for it, or asks again. */
  | { readonly kind: 'later'; readonly waitMs: number }
  /** For a slot: it is woken for it, or asks again. `near`: as many are before it as may run at a time, or fewer. */
  | { readonly kind: 'waiting'; readonly waitMs: number; readonly near: boolean };

export class Limits {
  readonly #redis: Redis;
  readonly #prefix: string;

  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#prefix = prefix;
  }

  /** Takes a start; who has to wait keeps its place among those that wait. `leaseMs`: how long a slot is held unless it is renewed. */
  async take(limit: FleetLimit, starter: Starter, leaseMs: number): Promise<LimitAnswer> {
    const { jobId, start = startOf(jobId), session = jobId, sinceMs = '' } = starter;
    const { concurrency = 0, perSecond = 0 } = limit;
    const keys = this.#keysOf(limit);
    const [kind, waitMs, near, woken, heldUntilMs] = (await takeScript.run(
      this.#redis,
      [keys.holders, keys.waiters, keys.starts, keys.asking, keys.partitions, keys.promotedPartitions],
      [
        ...[jobId, concurrency, perSecond, WINDOW_MS, Math.ceil(leaseMs), start],
        ...[ARRIVES_WITHIN_MS, WOKEN_MS, session, sinceMs],
      ],
    )) as [LimitAnswer['kind'], number, string, string[], string | undefined];
    const gone = await this.#promote(limit, woken);
    if (kind === 'granted') return { kind, heldUntilMs: Number(heldUntilMs) };
    // Its place is another one now.
    if (gone) return this.take(limit, starter, leaseMs);
    return kind === 'later' ? { kind, waitMs } : { kind, waitMs, near: near === '1' };
  }

  /** Holds a slot for another lease. Answers until when, or undefined when the slot is another's by now. */
  async renew(
    limit: FleetLimit,
    { jobId }: Starter,
    heldUntilMs: number,
    leaseMs: number,
  ): Promise<number | undefined> {
    const { holders } = this.#keysOf(limit);
    const heldUntil = await renewScript.run(this.#redis, [holders], [jobId, heldUntilMs, Math.ceil(leaseMs)]);
    return heldUntil === null ? undefined : Number(heldUntil);
  }

  /**
   * Says that a start has ended, gives its slot back and wakes those that are next. With `heldUntilMs`, a slot that a later start of the
   * job took over stays with that one.
   */
  release(limit: FleetLimit, { jobId, start = startOf(jobId) }: Starter, heldUntilMs?: number): Promise<void> {
    return this.#release(limit, jobId, start, false, 0, heldUntilMs);
  }

  /** Takes a start back that was not used. Its slot is kept for it for `keptMs`, or goes to those that are next. */
  giveBack(limit: FleetLimit, { jobId, start = startOf(jobId) }: Starter, keptMs = 0): Promise<void> {
    return this.#release(limit, jobId, start, true, keptMs);
  }

  /** Whether the job has a slot: one that it was woken for, when it was not put aside yet. */
  async hasSlot(limit: FleetLimit, { jobId }: Starter): Promise<boolean> {
    return (await this.#redis.zscore(this.#keysOf(limit).holders, jobId)) !== null;
  }

  /** Whether a start is kept for the job: one that it was woken for, when it was not put aside yet. */
  async hasStart(limit: FleetLimit, { jobId }: Starter): Promise<boolean> {
    return (await this.#redis.zscore(this.#keysOf(limit).starts, jobId)) !== null;
  }

  /** How many run, how many wait for a slot, and how many for a start. */
  async standing(limit: FleetLimit): Promise<{ running: number; waiting: number; waitingToStart: number }> {
    const { holders, waiters, asking } = this.#keysOf(limit);
    const [running, waiting, waitingToStart] = await Promise.all([
      this.#redis.zcard(holders),
      this.#redis.zcard(waiters),
      this.#redis.zcard(asking),
    ]);
    return { running, waiting, waitingToStart };
  }

  async #release(
    limit: FleetLimit,
    jobId: string,
    start: string,
    unused: boolean,
    keptMs: number,
    heldUntilMs?: number,
  ): Promise<void> {
    const { holders, waiters, starts, asking, promotedPartitions } = this.#keysOf(limit);
    const { concurrency = 0, perSecond = 0 } = limit;
    const woken = await releaseScript.run(
      this.#redis,
      [holders, waiters, starts, asking, promotedPartitions],
      [
        jobId,
        concurrency,
        WOKEN_MS,
        start,
        unused ? '1' : '0',
        Math.ceil(keptMs),
        perSecond,
        WINDOW_MS,
        heldUntilMs ?? '',
      ],
    );
    await this.#promote(limit, woken as string[]);
  }

  /** Whoever was cancelled meanwhile leaves it to the next. Returns whether somebody has. */
  async #promote(limit: FleetLimit, jobIds: readonly string[]): Promise<boolean> {
    const gone = await Promise.all(
      jobIds.map(async (jobId) => {
        if ((await promote(this.#redis, this.#prefix, jobId)) !== 'ended') return false;
        await this.giveBack(limit, { jobId });
        return true;
      }),
    );
    return gone.includes(true);
  }

  #keysOf({ name }: FleetLimit) {
    return new FleetKeys(this.#prefix).limit(name);
  }
}

/** Where a job starts once. Its own name is that of the start which is kept for it. */
function startOf(jobId: string): string {
  return `${jobId} 1`;
}
