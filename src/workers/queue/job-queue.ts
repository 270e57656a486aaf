/** The queue of one partition: fetches its jobs, executes them, and reports the end of each job to BullMQ. */
import {
  Worker as BullWorker,
  type WorkerOptions as BullWorkerOptions,
  type ConnectionOptions,
  Job,
  raw2NextJobData,
  UnrecoverableError,
} from 'bullmq';
import { partitionOf } from '../../shared/calls/call-id.ts';
import type { Outcome } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { stackOf } from '../../shared/errors/classify-error.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { DispatchReader } from '../../shared/store/dispatch/direct-dispatch.ts';
import type { FinishResult } from '../../shared/store/dispatch/job-dispatch.ts';
import {
  type CallJob,
  callOfJob,
  fetchAtEveryMarker,
  KEPT_EVENTS,
  scriptsOnRedisTime,
} from '../../shared/store/queues/jobs.ts';
import { promote } from '../../shared/store/queues/promote.ts';
import { answeredInTime, slotOf } from '../../shared/store/redis/connection.ts';
import { nodeOptions } from '../../shared/store/redis/connection-options.ts';
import { PartitionKeys } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { membersIn, parseJson } from '../../shared/util/json/json-types.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import { AttemptWrites } from '../attempt/retry-write.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';
import type { Executor } from '../execution/execute-job.ts';
import type { WorkerMetrics } from '../execution/metrics.ts';
import { type ActiveJob, type JobEnd, JobFetcher, type JobFetcherDeps } from './job-fetcher.ts';
import { LockRenewal } from './lock-renewal.ts';

interface JobQueueDeps
  extends Pick<JobFetcherDeps, 'partition' | 'slots' | 'workerId' | 'clock' | 'workers' | 'onError'> {
  readonly backend: Backend;
  readonly settings: Settings;
  readonly log: Logger;
  readonly running: RunningAttempts;
  readonly executor: Executor;
  readonly metrics: WorkerMetrics;
  /** Whether it is the tier's only queue. */
  isOnlyQueue(): boolean;
  /** The outcome of a job that this worker should not start; undefined when it should. */
  unwanted(toolName: string, namespace?: string): Unwanted | undefined;
  /** Renews the lease of a running attempt, after BullMQ's lock of its job was renewed. */
  renew(attempt: RunningAttempt): Promise<void>;
}

/**
 * BullMQ finds a dead worker's job at the second check after its last renewal, and skips a check that comes a moment too early. With
 * this many checks in an interval, the job is recovered within the interval after its lock has ended.
 */
const STALL_CHECKS_PER_INTERVAL = 3;

/** The delay of a job that every living worker has skipped. */
const ALL_SKIPPED_MS = 500;

export type Unwanted = Extract<JobOutcome, { kind: 'released' | 'skipped' }>;

export class JobQueue {
  readonly #deps: JobQueueDeps;
  readonly #fetcher: JobFetcher;
  /** Absent when other queues shared the slots from the beginning. */
  readonly #dispatches: DispatchReader | undefined;
  readonly #bull: BullWorker<CallJob>;
  readonly #locks: LockRenewal;
  readonly #writes: AttemptWrites;

  constructor(deps: JobQueueDeps) {
    this.#deps = deps;
    const { settings, clock, running, onError } = deps;
    this.#writes = new AttemptWrites(deps.log);
    this.#fetcher = this.#openFetcher();
    if (deps.isOnlyQueue()) this.#dispatches = this.#openDispatches();
    this.#bull = this.#openBull();
    this.#bull.on('error', onError);
    fetchAtEveryMarker(this.#bull);
    this.#locks = new LockRenewal({
      running,
      clock,
      leaseMs: settings.lockDurationMs,
      extend: (jobIds, tokens, leaseMs) => this.#bull.extendJobLocks(jobIds, tokens, leaseMs),
      onRenewed: (attempt) => void deps.renew(attempt).catch(onError),
      onLost: (attempt) => attempt.abort(new PawlError('LEASE_LOST')),
      onError,
    });
  }

  #openFetcher(): JobFetcher {
    const { backend, settings, partition, clock, running, onError, ...deps } = this.#deps;
    const keys = new PartitionKeys(settings.prefix, partition);
    return new JobFetcher({
      ledger: backend.ledger,
      dispatch: backend.dispatch,
      partition,
      workerId: deps.workerId,
      leaseMs: settings.lockDurationMs,
      pollIntervalMs: this.#pollIntervalMs,
      clock,
      nextToken: () => running.nextToken(),
      slots: deps.slots,
      redisClock: backend.clock,
      workers: () => deps.workers(),
      dispatches: () => (deps.isOnlyQueue() ? this.#dispatches?.state : undefined),
      skipWorker: ({ member, score }) => void backend.redis.zadd(keys.job('marker'), score, member).catch(onError),
      run: (job) => this.#run(job),
      onError,
    });
  }

  #openDispatches(): DispatchReader {
    const { backend, settings, partition, workerId, onError } = this.#deps;
    return new DispatchReader(backend.ledger.access, {
      url: backend.url,
      prefix: settings.prefix,
      partition,
      workerId,
      leaseMs: settings.lockDurationMs,
      onJobs: (jobs) => this.#fetcher.dispatched(jobs),
      onError,
    });
  }

  get #pollIntervalMs(): number {
    return Math.ceil(this.#deps.settings.stalledIntervalMs / STALL_CHECKS_PER_INTERVAL);
  }

  /** BullMQ's worker: it finds jobs whose locks have ended, and signals when there are jobs to fetch. */
  #openBull(): BullWorker<CallJob> {
    const { settings, partition } = this.#deps;
    const { url, redis } = this.#deps.backend;
    const keys = new PartitionKeys(settings.prefix, partition);
    const connection = nodeOptions(
      { url, name: `${settings.prefix}:worker:${keys.queue}`, mode: 'patient' },
      () => slotOf(redis, keys.calls)?.node,
    );
    const intervalMs = this.#pollIntervalMs;
    const options: BullWorkerOptions = {
      connection: { ...connection, scripts: scriptsOnRedisTime() } as ConnectionOptions,
      prefix: keys.base,
      autorun: false,
      lockDuration: settings.lockDurationMs,
      stalledInterval: intervalMs,
      skipLockRenewal: true,
      // The ledger counts lost attempts, so BullMQ must never fail a stalled job by itself.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: 1_000,
    };
    return new BullWorker(keys.queue, rejectJob, options, (...queue) => {
      const bull = this.#fetcher.backend(...queue);
      const moveStalled = bull.moveStalledJobsToWait.bind(bull);
      bull.moveStalledJobsToWait = async () => {
        await this.#resetLateCheck(keys.job('stalled-check'), intervalMs);
        return moveStalled();
      };
      return bull;
    });
  }

  /**
   * A key with a TTL lets one worker at a time check for the jobs of lost workers. After Redis' clock was set back, the TTL is too long,
   * and no worker would check until it ends.
   */
  async #resetLateCheck(key: string, intervalMs: number): Promise<void> {
    const { redis } = this.#deps.backend;
    if ((await redis.pttl(key)) > intervalMs) await redis.del(key);
  }

  /** Starts to fetch jobs. */
  async run(): Promise<void> {
    const { backend, settings, partition, onError } = this.#deps;
    const meta = new PartitionKeys(settings.prefix, partition).job('meta');
    await backend.redis.hset(meta, 'opts.maxLenEvents', KEPT_EVENTS, 'events', settings.bullEvents);
    this.#bull.run().catch(onError);
    await answeredInTime(this.#bull.waitUntilReady(), backend.url);
  }

  /** The tier now has other queues that share its slots: direct dispatch ends, and the queues are polled in rotation. */
  async share(): Promise<void> {
    await this.#dispatches?.leave();
    this.#dispatches?.close();
  }

  /** Fetches nothing any more; jobs that arrive now are returned. */
  async stopFetching(): Promise<void> {
    this.#fetcher.close();
    await this.#bull.pause(true);
    await this.#dispatches?.leave().catch(this.#deps.onError);
  }

  /** Resolves when the running jobs have ended; with `force` at once. */
  async close(force = false): Promise<void> {
    this.#dispatches?.close();
    if (!force) await this.#fetcher.ended();
    // Without force, BullMQ waits for the end of its blocking connection. A connection that waits to reconnect emits none.
    await this.#bull.close(true);
  }

  closeLocks(): void {
    this.#locks.close();
  }

  /** Runs a job. The result is the end that is written together with the call's outcome; undefined when the job has ended already. */
  async #run(job: ActiveJob): Promise<JobEnd | undefined> {
    const { running: attempts } = this.#deps;
    const { id: jobId, name, lockToken, attempt } = job;
    const call = this.#callOf(jobId, job.data);
    if (call === undefined) return this.#fail(job, 'This is not a job of Pawl.');
    const started = attempt?.answer.kind === 'started' ? attempt.answer.request.envelope : undefined;
    const unwanted = this.#deps.unwanted(name, started?.toolNamespace);
    if (unwanted !== undefined && started === undefined) return this.#conclude(job, call, unwanted);
    const running = attempts.add(call.callId, jobId, attempt);
    // Its attempt has begun already, so it is released as one that did nothing.
    if (unwanted !== undefined) running.abort(new PawlError('DRAINED'));
    this.#locks.hold(jobId, lockToken);
    const release = () => {
      attempts.remove(running);
      this.#locks.release(jobId, lockToken);
    };
    const outcome = await this.#execute(job, call, running);
    if (outcome.kind === 'succeeded') return this.#endWithCall(outcome, running, release);
    release();
    return this.#conclude(job, call, outcome.kind === 'released' ? (unwanted ?? outcome) : outcome);
  }

  async #execute({ name, attempt }: ActiveJob, call: CallJob, running: RunningAttempt): Promise<JobOutcome> {
    const { clock, metrics, log, partition } = this.#deps;
    const startedAtMs = clock.monotonic();
    let outcome: JobOutcome;
    try {
      outcome = await this.#deps.executor.execute(call, running, attempt?.answer);
    } catch (error) {
      outcome = this.#abandon(call, error);
    }
    if (running.fence > 0) metrics.attemptEnded(partition.tier, clock.monotonic() - startedAtMs, running);
    if (running.leaseLost) {
      const { message } = running.signal.reason as PawlError;
      log.warn(
        { event: 'lease_lost', callId: call.callId, toolName: name, fence: running.fence, reason: message },
        'an attempt was given up: its lease was lost',
      );
    }
    if (outcome.kind === 'abandoned' && outcome.fenced === true) metrics.writeFenced(partition.tier);
    return outcome;
  }

  /** The command that writes the call's outcome ends the job too. `release` runs after it. */
  #endWithCall(
    { settle, outcome }: Extract<JobOutcome, { kind: 'succeeded' }>,
    running: RunningAttempt,
    release: () => void,
  ): JobEnd {
    const { metrics, partition } = this.#deps;
    const write = async (finish: () => Promise<FinishResult>) => {
      const written = await this.#writes.retry(running, finish).finally(release);
      if (written?.code === 'fenced') metrics.writeFenced(partition.tier);
      return written;
    };
    return { settle, returnValue: JSON.stringify(boardValue(outcome)), write };
  }

  /** The job ID identifies the call. The job's data is not trusted: anyone who can write to Redis may have changed it. */
  #callOf(jobId: string, data: string): CallJob | undefined {
    const { partition } = this.#deps;
    const { callId, generation } = callOfJob(jobId);
    const home = partitionOf(callId);
    if (home?.tier !== partition.tier || home.shard !== partition.shard || !/^\d+$/.test(generation)) {
      this.#auditForged('the job has a name that this fleet gives to no job: nothing ran');
      return undefined;
    }
    const fields = membersIn(parseJson(data)) as Partial<CallJob>;
    if ((fields.callId ?? callId) !== callId || (fields.generation ?? generation) !== generation)
      this.#auditForged('the data of the job names another call than the job: it was ignored', callId);
    return { callId, generation, session: typeof fields.session === 'string' ? fields.session : '' };
  }

  #auditForged(reason: string, callId?: string): void {
    void this.#deps.backend.audit({ type: 'refused', what: 'job', ...(callId !== undefined && { callId }), reason });
  }

  /** The call is not lost with this job: it is recovered when its lease ends. */
  #abandon({ callId }: CallJob, error: unknown): JobOutcome {
    const { log } = this.#deps;
    if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
      log.warn({ callId, error: error.message }, 'Redis unavailable: cannot start or settle call');
    else log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed: a defect');
    return { kind: 'abandoned' };
  }

  /** Moves a job in BullMQ whose end is not written together with its call's outcome. */
  async #conclude(
    job: ActiveJob,
    call: CallJob,
    outcome: Exclude<JobOutcome, { kind: 'succeeded' }>,
  ): Promise<undefined> {
    const { backend } = this.#deps;
    const token = job.lockToken;
    const delay = (delayMs: number) => this.#bullJobOf(job).moveToDelayed(Date.now() + delayMs, token);
    switch (outcome.kind) {
      case 'finished': {
        const { error } = outcome.outcome;
        if (error !== undefined) return this.#fail(job, `${error.code}: ${startOf(error.message, 200)}`);
        await this.#bullJobOf(job).moveToCompleted(boardValue(outcome.outcome), token, false);
        return;
      }
      case 'dropped':
        await this.#bullJobOf(job).moveToCompleted({ status: 'dropped' }, token, false);
        return;
      case 'postponed':
        await delay(outcome.delayMs);
        return;
      case 'waiting-for-lock':
        await delay(outcome.delayMs);
        await backend.locks.parked(call);
        return;
      case 'waiting':
        await delay(outcome.delayMs);
        if (await outcome.isReady()) await promote(backend.redis, backend.prefix, job.id);
        return;
      case 'skipped': {
        const { partition, workerId } = this.#deps;
        const { need, others } = outcome;
        const skipped = { jobId: job.id, lockToken: token, session: call.session, need, workerId, others };
        if (!(await backend.dispatch.skipWorker(partition, skipped))) await delay(ALL_SKIPPED_MS);
        return;
      }
      case 'released':
        await this.#bullJobOf(job).moveToWait(token);
        return;
      case 'pending':
        return;
      case 'abandoned':
        // The job stays active until its lock expires; then another worker recovers it.
        return;
    }
  }

  async #fail(job: ActiveJob, reason: string): Promise<undefined> {
    await this.#bullJobOf(job).moveToFailed(new UnrecoverableError(reason), job.lockToken, false);
  }

  #bullJobOf({ id, raw }: ActiveJob): Job {
    const [fields] = raw2NextJobData(raw);
    return Job.fromJSON(this.#bull, fields, id);
  }
}

/** BullMQ's worker never gets a job to process: `JobFetcher` runs all of them. */
function rejectJob(): never {
  throw new UnrecoverableError('This is not a job of Pawl.');
}

/** The return value of a successful call, which Bull Board shows. */
function boardValue({ status, attempts, durationMs }: Outcome): object {
  return { status, attempts, durationMs };
}
