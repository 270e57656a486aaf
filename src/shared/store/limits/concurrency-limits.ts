/**
 * Limits of the whole fleet: how many calls run at a time, and how many start in a second. A call that has to wait frees its worker; the
 * end of a call promotes the next one.
 */
import type { NamedLimit } from '../../limits/concurrency-limit.ts';
import { promote } from '../queues/promote.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { luaFunction, Script } from '../redis/script.ts';

/**
 * A start is granted here and arrives elsewhere, at the latest when this time has passed. From then on it counts for a second. So no
 * receiver sees more starts than the limit in a second of its own, however long the way takes.
 */
const ARRIVES_WITHIN_MS = 1_000;
/** Clocks count whole milliseconds. */
const WINDOW_MS = 1_002;
/** A slot or a start is reserved this long for the call that was promoted for it. */
const RESERVED_MS = 2_000;

const GRANT_LUA = [luaFunction(new URL('./limit-grant.lua', import.meta.url))];
const acquireScript = new Script(new URL('./limit-acquire.lua', import.meta.url), GRANT_LUA);
const renewScript = new Script(new URL('./limit-renew.lua', import.meta.url), [], 'once');
// A second run would not name the jobs again, and these would wait for their own look.
const releaseScript = new Script(new URL('./limit-release.lua', import.meta.url), GRANT_LUA, 'once');

export interface Starter {
  readonly jobId: string;
  /** Names one of several starts of the job. */
  readonly start?: string;
  /** Sessions are served in rotation. Default: the job's ID. */
  readonly session?: string;
  /** The time of its request on Redis' clock, which gives it its position again. Default: its first request. */
  readonly sinceMs?: number;
}

type LimitAnswer =
  | { readonly kind: 'granted'; readonly heldUntilMs: number }
  /** The call waits for its time: it is promoted then, or asks again. */
  | { readonly kind: 'later'; readonly waitMs: number }
  /** The call waits for a slot: it is promoted, or asks again. `near`: at most as many calls are before it as may run at a time. */
  | { readonly kind: 'waiting'; readonly waitMs: number; readonly near: boolean };

export class Limits extends FleetRecords {
  /** Acquires a start. A job that has to wait keeps its position. `leaseMs`: how long a slot is held unless it is renewed. */
  async acquire(limit: NamedLimit, starter: Starter, leaseMs: number): Promise<LimitAnswer> {
    const { jobId, start = startOf(jobId), session = jobId, sinceMs = '' } = starter;
    const { concurrency = 0, perSecond = 0 } = limit;
    const keys = this.#keysOf(limit);
    const [kind, waitMs, near, promoted, heldUntilMs] = (await acquireScript.run(
      this.redis,
      [keys.holders, keys.waiters, keys.starts, keys.asking, keys.sessionPositions, keys.promotedPositions],
      [
        ...[jobId, concurrency, perSecond, WINDOW_MS, Math.ceil(leaseMs), start],
        ...[ARRIVES_WITHIN_MS, RESERVED_MS, session, sinceMs],
      ],
    )) as [LimitAnswer['kind'], number, string, string[], string | undefined];
    const gone = await this.#promote(limit, promoted);
    if (kind === 'granted') return { kind, heldUntilMs: Number(heldUntilMs) };
    // Its position is another one now.
    if (gone) return this.acquire(limit, starter, leaseMs);
    return kind === 'later' ? { kind, waitMs } : { kind, waitMs, near: near === '1' };
  }

  /** Holds a slot for another lease. Returns until when; undefined when another job has the slot by now. */
  async renew(
    limit: NamedLimit,
    { jobId }: Starter,
    heldUntilMs: number,
    leaseMs: number,
  ): Promise<number | undefined> {
    const { holders } = this.#keysOf(limit);
    const heldUntil = await renewScript.run(this.redis, [holders], [jobId, heldUntilMs, Math.ceil(leaseMs)]);
    return heldUntil === null ? undefined : Number(heldUntil);
  }

  /**
   * Ends a start, releases its slot and promotes the next waiters. With `heldUntilMs`, a slot that a later start of the job took over
   * stays with that one.
   */
  release(limit: NamedLimit, starter: Starter, heldUntilMs?: number): Promise<void> {
    return this.#release(limit, starter, { unused: false, keptMs: 0, heldUntilMs });
  }

  /** Releases a start that was not used. Its slot is kept for the job for `keptMs`, or goes to the next waiters. */
  releaseUnused(limit: NamedLimit, starter: Starter, keptMs = 0): Promise<void> {
    return this.#release(limit, starter, { unused: true, keptMs });
  }

  /** Whether the job has a slot: one that was granted before the job was parked. */
  async hasSlot(limit: NamedLimit, { jobId }: Starter): Promise<boolean> {
    return (await this.redis.zscore(this.#keysOf(limit).holders, jobId)) !== null;
  }

  /** Whether a start is reserved for the job: one that was granted before the job was parked. */
  async hasStart(limit: NamedLimit, { jobId }: Starter): Promise<boolean> {
    return (await this.redis.zscore(this.#keysOf(limit).starts, jobId)) !== null;
  }

  /** How many run, how many wait for a slot, and how many for a start. */
  async counts(limit: NamedLimit): Promise<{ running: number; waiting: number; waitingToStart: number }> {
    const { holders, waiters, asking } = this.#keysOf(limit);
    const [running, waiting, waitingToStart] = await Promise.all([
      this.redis.zcard(holders),
      this.redis.zcard(waiters),
      this.redis.zcard(asking),
    ]);
    return { running, waiting, waitingToStart };
  }

  async #release(
    limit: NamedLimit,
    { jobId, start = startOf(jobId) }: Starter,
    {
      unused,
      keptMs,
      heldUntilMs,
    }: { readonly unused: boolean; readonly keptMs: number; readonly heldUntilMs?: number | undefined },
  ): Promise<void> {
    const { holders, waiters, starts, asking, promotedPositions } = this.#keysOf(limit);
    const { concurrency = 0, perSecond = 0 } = limit;
    const promoted = await releaseScript.run(
      this.redis,
      [holders, waiters, starts, asking, promotedPositions],
      [
        jobId,
        concurrency,
        RESERVED_MS,
        start,
        unused ? '1' : '0',
        Math.ceil(keptMs),
        perSecond,
        WINDOW_MS,
        heldUntilMs ?? '',
      ],
    );
    await this.#promote(limit, promoted as string[]);
  }

  /** Promotes the first of these jobs that still waits; a cancelled call leaves its slot to the next one. Returns whether a job got it. */
  async #promote(limit: NamedLimit, jobIds: readonly string[]): Promise<boolean> {
    const gone = await Promise.all(
      jobIds.map(async (jobId) => {
        if ((await promote(this.redis, this.keys.prefix, jobId)) !== 'ended') return false;
        await this.releaseUnused(limit, { jobId });
        return true;
      }),
    );
    return gone.includes(true);
  }

  #keysOf({ name }: NamedLimit) {
    return this.keys.limit(name);
  }
}

/** The name of a job's start, distinct from the name of the start that is reserved for it. */
function startOf(jobId: string): string {
  return `${jobId} 1`;
}
