/**
 * Limits that hold for the whole fleet, whoever runs the calls: how many at a time, and how many starts in a second (I17, I20). Who
 * has to wait gives its worker back; whoever ends wakes the next one.
 */
import { FleetKeys } from './keys.ts';
import { luaFunction, type Redis, Script } from './redis.ts';
import { wake } from './wake.ts';

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

const GRANT_LUA = [luaFunction('limit-grant')];
const takeScript = new Script('limit-take', GRANT_LUA);
const releaseScript = new Script('limit-release', GRANT_LUA);

/** Who asks for a start. */
export interface Starter {
  readonly jobId: string;
  /** Names one of several starts of the job. Default: the job's ID. */
  readonly start?: string;
  /** Those of one session take turns with other sessions'. Default: the job's ID. */
  readonly session?: string;
}

export type LimitAnswer =
  | { readonly kind: 'granted' }
  /** Until its time comes. */
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

  /** Takes a start; who has to wait keeps its place among those that wait. `leaseMs`: how long a slot is held at most. */
  async take(limit: FleetLimit, starter: Starter, leaseMs: number): Promise<LimitAnswer> {
    const { jobId, start = jobId, session = jobId } = starter;
    const { concurrency = 0, perSecond = 0 } = limit;
    const keys = this.#keysOf(limit);
    const [kind, waitMs, near, woken] = (await takeScript.run(
      this.#redis,
      [keys.holders, keys.waiters, keys.starts, keys.told, keys.places],
      [
        ...[jobId, concurrency, perSecond, WINDOW_MS, Math.ceil(leaseMs), start],
        ...[ARRIVES_WITHIN_MS, WOKEN_MS, session],
      ],
    )) as [LimitAnswer['kind'], number?, string?, string[]?];
    await this.#wake(limit, woken);
    if (kind === 'granted') return { kind };
    return kind === 'later' ? { kind, waitMs: Number(waitMs) } : { kind, waitMs: Number(waitMs), near: near === '1' };
  }

  /** Says that a start has ended, gives the job's slot back and wakes those that are next. */
  release(limit: FleetLimit, { jobId, start = jobId }: Starter): Promise<void> {
    return this.#release(limit, jobId, start, false, 0);
  }

  /** Takes a start back that was not used. Its slot is kept for it for `keptMs`, or goes to those that are next. */
  giveBack(limit: FleetLimit, { jobId, start = jobId }: Starter, keptMs = 0): Promise<void> {
    return this.#release(limit, jobId, start, true, keptMs);
  }

  /** Whether the job has a slot: one that it was woken for, when it was not put aside yet. */
  async hasSlot(limit: FleetLimit, { jobId }: Starter): Promise<boolean> {
    return (await this.#redis.zscore(this.#keysOf(limit).holders, jobId)) !== null;
  }

  /** How many run and how many wait for a slot. */
  async standing(limit: FleetLimit): Promise<{ readonly running: number; readonly waiting: number }> {
    const { holders, waiters } = this.#keysOf(limit);
    const [running, waiting] = await Promise.all([this.#redis.zcard(holders), this.#redis.zcard(waiters)]);
    return { running, waiting };
  }

  async #release(limit: FleetLimit, jobId: string, start: string, unused: boolean, keptMs: number): Promise<void> {
    const { holders, waiters, starts } = this.#keysOf(limit);
    const woken = await releaseScript.run(
      this.#redis,
      [holders, waiters, starts],
      [jobId, limit.concurrency ?? 0, WOKEN_MS, start, unused ? '1' : '0', Math.ceil(keptMs)],
    );
    await this.#wake(limit, woken as string[]);
  }

  async #wake(limit: FleetLimit, jobIds: readonly string[] = []): Promise<void> {
    await Promise.all(
      jobIds.map(async (jobId) => {
        // Whoever was cancelled meanwhile leaves its slot to the next.
        if ((await wake(this.#redis, this.#prefix, jobId)) === 'ended') await this.giveBack(limit, { jobId });
      }),
    );
  }

  #keysOf({ name }: FleetLimit) {
    return new FleetKeys(this.#prefix).limit(name);
  }
}
