/** The resource lock of an attempt: acquired before its tool runs, released when it ends. */
import { classify } from '../../shared/errors/classify-error.ts';
import type { Failure } from '../../shared/errors/failure.ts';
import { needsResourceLock, requiredLock } from '../../shared/limits/resource-lock.ts';
import type { ResourceLockResult } from '../../shared/store/limits/resource-locks.ts';
import type { ResourceLockRecords } from '../../shared/store/ports.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';

export class AttemptLocks {
  readonly #records: ResourceLockRecords;
  readonly #log: Logger;

  constructor(records: ResourceLockRecords, log: Logger) {
    this.#records = records;
    this.#log = log;
  }

  /**
   * Acquires the lock that these parameters need, if any. For `draft` parameters, which may still be rewritten, a lock that the call holds
   * on another resource is enough.
   */
  async acquire(
    attempt: Attempt,
    params: unknown,
    stage: 'draft' | 'final',
  ): Promise<ResourceLockResult | { readonly kind: 'failed'; readonly failure: Failure }> {
    const { tool, envelope, started, running } = attempt;
    if (!needsResourceLock(tool)) return { kind: 'granted' };
    let lock: ReturnType<typeof requiredLock>;
    try {
      lock = requiredLock(tool, params, envelope.target);
    } catch (error) {
      return { kind: 'failed', failure: classify(error) };
    }
    if (lock === undefined) return { kind: 'granted' };
    const answer = await this.#records.acquire(attempt, started.fence, lock, stage === 'draft');
    running.holdsLock = answer.kind === 'granted';
    return answer;
  }

  /** Releases the lock after an attempt. A lock that was lost with its lease belongs to another call, or runs out by itself. */
  async release(attempt: Attempt, outcome: JobOutcome): Promise<void> {
    if (outcome.kind === 'waiting-for-lock' || outcome.kind === 'abandoned' || !needsResourceLock(attempt.tool)) return;
    await this.#release(attempt, attempt.started.fence);
  }

  async releaseUnused(job: CallJob, outcome: JobOutcome): Promise<void> {
    if (outcome.kind === 'finished' || outcome.kind === 'dropped') await this.#release(job, 0);
  }

  async #release(job: Pick<CallJob, 'callId' | 'generation'>, fence: number): Promise<void> {
    try {
      await this.#records.release(job, fence);
    } catch (error) {
      const { callId } = job;
      this.#log.warn({ callId, error: String(error) }, 'a resource lock could not be released; it ends with its lease');
    }
  }
}
