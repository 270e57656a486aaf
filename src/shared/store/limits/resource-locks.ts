/**
 * Resource locks over all workers and tiers: first-come locks for readers and writers, whose waiters are delayed jobs. Releasing a lock
 * grants the next one and promotes its job, so that no worker polls. The locks of a dead worker end with its lease, and then the waiting
 * jobs are due.
 */
import type { ResourceLock } from '../../limits/resource-lock.ts';
import { type CallJob, callOfJob, jobIdOf } from '../queues/jobs.ts';
import { promote } from '../queues/promote.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { luaFunction, Script } from '../redis/script.ts';

export type ResourceLockResult =
  | { readonly kind: 'granted' }
  /** The call waits for the lock; it is promoted, or due after `withinMs`. */
  | { readonly kind: 'waiting'; readonly withinMs: number }
  /** A newer attempt of the call has asked. */
  | { readonly kind: 'fenced' };

type Named = Pick<CallJob, 'callId' | 'generation'>;

const GRANT_LUA = luaFunction(new URL('./lock-grant.lua', import.meta.url));
const RELEASE_LUA = [GRANT_LUA, luaFunction(new URL('./lock-release.lua', import.meta.url))];
const acquireScript = new Script(new URL('./lock-acquire.lua', import.meta.url), RELEASE_LUA);
// A second run would not name the jobs again, and these would wait for their own look.
const releaseScript = new Script(new URL('./lock-release.lua', import.meta.url), [GRANT_LUA], 'once');
const renewScript = new Script(new URL('./lock-renew.lua', import.meta.url));

export class ResourceLocks extends FleetRecords {
  readonly #leaseMs: number;

  constructor(redis: Redis, prefix: string, leaseMs: number) {
    super(redis, prefix);
    this.#leaseMs = leaseMs;
  }

  /** Acquires a lock. With `anyResource`, one that the call was granted before is accepted, whatever its resource is. */
  async acquire(
    job: Named,
    fence: number,
    { resource, mode }: ResourceLock,
    anyResource: boolean,
  ): Promise<ResourceLockResult> {
    const [code, withinMs, ...next] = await acquireScript.run(
      this.redis,
      [this.keys.locks],
      [
        job.callId,
        jobIdOf(job.callId, job.generation),
        fence,
        this.#leaseMs,
        resource,
        mode === 'exclusive' ? 'x' : 's',
        anyResource ? '1' : '0',
      ],
    );
    await this.#promote(next as string[]);
    return code === 'waiting' ? { kind: code, withinMs: Number(withinMs) } : { kind: code as 'granted' | 'fenced' };
  }

  /** Whether the attempt still holds its lock, for another lease. */
  async renew(callId: string, fence: number): Promise<boolean> {
    const [code] = await renewScript.run(this.redis, [this.keys.locks], [callId, fence, this.#leaseMs]);
    return code === 'held';
  }

  /** Releases the call's lock, or its position among the waiters. `fence` is the attempt's, 0 when none came so far. */
  async release(job: Named, fence: number): Promise<void> {
    const jobId = jobIdOf(job.callId, job.generation);
    const next = await releaseScript.run(this.redis, [this.keys.locks], [job.callId, jobId, fence, this.#leaseMs]);
    await this.#promote(next as string[]);
  }

  /** Must be called when a waiting call's job has been parked: the lock may have been granted in between. */
  async parked(job: Named): Promise<void> {
    const granted = await this.redis.hget(this.keys.turn(job.callId), 'granted');
    if (granted === '1') await this.#promote([jobIdOf(job.callId, job.generation)]);
  }

  async #promote(jobIds: readonly string[]): Promise<void> {
    for (const jobId of jobIds) {
      const code = await promote(this.redis, this.keys.prefix, jobId);
      if (code === 'ended') await this.release(callOfJob(jobId), 0);
    }
  }
}
