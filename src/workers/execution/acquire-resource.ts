/** Where an attempt meets the turns of its resource (C3): it has one before its tool runs, and gives it up when it ends. */
import { classify } from '../../shared/errors/classify-error.ts';
import type { Failure } from '../../shared/errors/failure.ts';
import { needsResourceLock, turnOf } from '../../shared/limits/resource-lock.ts';
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
   * Takes the turn that these parameters need, if any. `any` is for parameters that may still be rewritten: a turn that the call has
   * been granted at another resource will do so far.
   */
  async take(
    attempt: Attempt,
    params: unknown,
    any: boolean,
  ): Promise<ResourceLockResult | { readonly kind: 'failed'; readonly failure: Failure }> {
    const { tool, envelope, started, running } = attempt;
    if (!needsResourceLock(tool)) return { kind: 'granted' };
    let turn: ReturnType<typeof turnOf>;
    try {
      turn = turnOf(tool, params, envelope.target);
    } catch (error) {
      return { kind: 'failed', failure: classify(error) };
    }
    if (turn === undefined) return { kind: 'granted' };
    const answer = await this.#records.take(attempt, started.fence, turn, any);
    running.holdsLock = answer.kind === 'granted';
    return answer;
  }

  /** After an attempt: what was lost with its lease is another's by now, or runs out by itself. */
  async leave(attempt: Attempt, verdict: JobOutcome): Promise<void> {
    if (verdict.kind === 'waiting-for-lock' || verdict.kind === 'abandoned' || !needsResourceLock(attempt.tool)) return;
    await this.#leave(attempt, attempt.started.fence);
  }

  /** A call that ended without an attempt may have been granted a turn. */
  async leaveUnused(job: CallJob, verdict: JobOutcome): Promise<void> {
    if (verdict.kind === 'finished' || verdict.kind === 'dropped') await this.#leave(job, 0);
  }

  async #leave(job: Pick<CallJob, 'callId' | 'generation'>, fence: number): Promise<void> {
    try {
      await this.#records.leave(job, fence);
    } catch (error) {
      const { callId } = job;
      this.#log.warn({ callId, error: String(error) }, 'a turn could not be given up; it ends with its lease');
    }
  }
}
