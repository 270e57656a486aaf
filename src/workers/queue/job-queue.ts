/**
 * The queue of one partition, as BullMQ knows it: takes its jobs, has them executed, and tells BullMQ what became of each.
 */
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
import type { Finished } from '../../shared/store/dispatch/fetch-jobs.ts';
import {
  type CallJob,
  callOfJob,
  fetchAtEveryMarker,
  KEPT_EVENTS,
  scriptsOnRedisTime,
} from '../../shared/store/queues/jobs.ts';
import { promote } from '../../shared/store/queues/promote.ts';
import { slotOf } from '../../shared/store/redis/connection.ts';
import { nodeOptions } from '../../shared/store/redis/connection-options.ts';
import { type Partition, PartitionKeys } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';
import type { Executor } from '../execution/execute-job.ts';
import type { WorkerMetrics } from '../execution/metrics.ts';
import type { ConcurrencyLimiter } from './concurrency-slots.ts';
import { type JobEnd, JobFetcher, type TakenAttempt, type TakenJob } from './job-fetcher.ts';
import { LockRenewal } from './lock-renewal.ts';

export interface JobQueueDeps {
  readonly backend: Backend;
  readonly settings: Settings;
  readonly partition: Partition;
  readonly slots: ConcurrencyLimiter;
  readonly workerId: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly running: RunningAttempts;
  readonly executor: Executor;
  readonly metrics: WorkerMetrics;
  /** How many living workers take from this queue, this one included. */
  workers(): number;
  /** Whether it is the tier's only queue. */
  isAlone(): boolean;
  /** The outcome of a job that this worker should not start; undefined when it should. */
  unwanted(toolName: string, namespace?: string): Unwanted | undefined;
  /** BullMQ's lock of a running attempt was renewed: its lease is due too. */
  renew(attempt: RunningAttempt): Promise<void>;
  onError(error: Error): void;
}

/**
 * BullMQ finds a dead worker's job at the second look after its last renewal, and skips a look that comes a moment too early. With
 * this many looks in an interval, the job is recovered within it once its lock has ended.
 */
const LOOKS_PER_INTERVAL = 3;

/** How long a job waits that every living worker has skipped. */
const ALL_SKIPPED_MS = 500;

export type Unwanted = Extract<JobOutcome, { kind: 'released' | 'skipped' }>;

export class JobQueue {
  readonly #deps: JobQueueDeps;
  readonly #fetcher: JobFetcher;
  /** Absent where further queues shared the slots from the beginning. */
  readonly #dispatches: DispatchReader | undefined;
  readonly #bull: BullWorker<CallJob>;
  readonly #locks: LockRenewal;

  constructor(deps: JobQueueDeps) {
    this.#deps = deps;
    const { settings, clock, running, onError } = deps;
    this.#fetcher = this.#openFetcher();
    if (deps.isAlone()) this.#dispatches = this.#openDispatches();
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
      lookEveryMs: this.#lookEveryMs,
      clock,
      nextToken: () => running.nextToken(),
      slots: deps.slots,
      redisClock: backend.clock,
      workers: () => deps.workers(),
      dispatches: () => (deps.isAlone() ? this.#dispatches?.state : undefined),
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

  get #lookEveryMs(): number {
    return Math.ceil(this.#deps.settings.stalledIntervalMs / LOOKS_PER_INTERVAL);
  }

  /** BullMQ's worker: it looks for jobs whose locks have ended, and tells when there are jobs to fetch. */
  #openBull(): BullWorker<CallJob> {
    const { settings, partition } = this.#deps;
    const { url, redis } = this.#deps.backend;
    const keys = new PartitionKeys(settings.prefix, partition);
    const connection = nodeOptions(
      { url, name: `${settings.prefix}:worker:${keys.queue}`, mode: 'patient' },
      () => slotOf(redis, keys.calls)?.node,
    );
    const lookEveryMs = this.#lookEveryMs;
    const options: BullWorkerOptions = {
      connection: { ...connection, scripts: scriptsOnRedisTime() } as ConnectionOptions,
      prefix: keys.base,
      autorun: false,
      lockDuration: settings.lockDurationMs,
      stalledInterval: lookEveryMs,
      skipLockRenewal: true,
      // The ledger counts lost attempts; BullMQ must never give a call up by itself.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: 1_000,
    };
    return new BullWorker(keys.queue, noJobComesHere, options, (...queue) => {
      const bull = this.#fetcher.backend(...queue);
      const look = bull.moveStalledJobsToWait.bind(bull);
      bull.moveStalledJobsToWait = async () => {
        await this.#endLongLook(keys.job('stalled-check'), lookEveryMs);
        return look();
      };
      return bull;
    });
  }

  /**
   * One worker at a time looks for the jobs of lost workers, until a moment on Redis' clock. When that clock is set back, the moment is
   * far off, and no worker would look until then.
   */
  async #endLongLook(key: string, lookMs: number): Promise<void> {
    const { redis } = this.#deps.backend;
    if ((await redis.pttl(key)) > lookMs) await redis.del(key);
  }

  /** Begins to take jobs. */
  async run(): Promise<void> {
    const { backend, settings, partition, onError } = this.#deps;
    const meta = new PartitionKeys(settings.prefix, partition).job('meta');
    await backend.redis.hset(meta, 'opts.maxLenEvents', KEPT_EVENTS, 'events', settings.bullEvents);
    this.#bull.run().catch(onError);
    await this.#bull.waitUntilReady();
  }

  /** The tier has further queues that share its slots: jobs are no longer dispatched directly, and all queues are asked in rotation. */
  async share(): Promise<void> {
    await this.#dispatches?.leave();
    this.#dispatches?.close();
  }

  /** Fetches nothing any more; what was fetched in this moment goes back. */
  async putBack(): Promise<void> {
    this.#fetcher.close();
    await this.#bull.pause(true);
    await this.#dispatches?.leave().catch(this.#deps.onError);
  }

  /** Resolves when the jobs that run have ended, with `force` at once. */
  async close(force = false): Promise<void> {
    this.#dispatches?.close();
    if (!force) await this.#fetcher.ended();
    await this.#bull.close(force);
  }

  closeLocks(): void {
    this.#locks.close();
  }

  /** Runs a job. The answer is the end that is written together with its call's outcome, if there is one. */
  async #run(taken: TakenJob): Promise<JobEnd | undefined> {
    const { running: attempts } = this.#deps;
    const { id: jobId, name, lockToken, attempt } = taken;
    const call = this.#callOf(jobId, taken.data);
    if (call === undefined) return this.#fail(taken, 'This is not a job of Pawl.');
    const started = attempt?.answer.kind === 'started' ? attempt.answer.request.envelope : undefined;
    const unwanted = this.#deps.unwanted(name, started?.toolNamespace);
    if (unwanted !== undefined && started === undefined) return this.#conclude(taken, call, unwanted);
    const running = attempts.add(call.callId, jobId, attempt);
    // Its attempt has begun already, and goes back as one that did nothing yet.
    if (unwanted !== undefined) running.abort(new PawlError('DRAINED'));
    this.#locks.hold(jobId, lockToken);
    const release = () => {
      attempts.remove(running);
      this.#locks.release(jobId, lockToken);
    };
    const outcome = await this.#execute(taken, call, running);
    if (outcome.kind === 'succeeded') return this.#endWithCall(outcome, running, release);
    release();
    return this.#conclude(taken, call, outcome.kind === 'released' ? (unwanted ?? outcome) : outcome);
  }

  async #execute({ name, attempt }: TakenJob, call: CallJob, running: RunningAttempt): Promise<JobOutcome> {
    const { clock, metrics, log, partition } = this.#deps;
    const startedAtMs = clock.monotonic();
    const outcome = await this.#executeOrAbandon(call, running, attempt);
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

  /** The job ends in the same command that writes the outcome of its call. `release` lets go of the job after it. */
  #endWithCall(
    { settle, outcome }: Extract<JobOutcome, { kind: 'succeeded' }>,
    running: RunningAttempt,
    release: () => void,
  ): JobEnd {
    const { metrics, log, partition } = this.#deps;
    const write = async (finish: () => Promise<Finished>) => {
      const written = await retryUntilLeaseLost(finish, running, log).finally(release);
      if (written?.code === 'fenced') metrics.writeFenced(partition.tier);
      return written;
    };
    return { settle, returnValue: JSON.stringify(boardValue(outcome)), write };
  }

  /** The name of a job identifies its call. Anyone who can write to Redis may have changed its data. */
  #callOf(jobId: string, data: string): CallJob | undefined {
    const { callId, generation } = callOfJob(jobId);
    const fields = parseJobData(data);
    const { partition, backend } = this.#deps;
    const named = partitionOf(callId);
    const ours = named?.tier === partition.tier && named.shard === partition.shard && /^\d+$/.test(generation);
    const { audit } = backend;
    if (!ours)
      void audit({
        type: 'refused',
        what: 'job',
        reason: 'the job has a name that this fleet gives to no job: nothing ran',
      });
    else if ((fields.callId ?? callId) !== callId || (fields.generation ?? generation) !== generation)
      void audit({
        type: 'refused',
        what: 'job',
        callId,
        reason: 'the data of the job names another call than the job: it was ignored',
      });
    return ours ? { callId, generation, session: typeof fields.session === 'string' ? fields.session : '' } : undefined;
  }

  async #executeOrAbandon(
    call: CallJob,
    running: RunningAttempt,
    taken: TakenAttempt | undefined,
  ): Promise<JobOutcome> {
    try {
      return await this.#deps.executor.execute(call, running, taken?.answer);
    } catch (error) {
      // The call is recovered by its lease; it is not lost with this job.
      const { log } = this.#deps;
      const { callId } = call;
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
        log.warn({ callId, error: error.message }, 'Redis unavailable: cannot start or settle call');
      else
        log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed: a defect');
      return { kind: 'abandoned' };
    }
  }

  /** Tells BullMQ, in its own terms, what became of a job whose end is not written together with its call's outcome. */
  async #conclude(
    taken: TakenJob,
    call: CallJob,
    outcome: Exclude<JobOutcome, { kind: 'succeeded' }>,
  ): Promise<undefined> {
    const { backend } = this.#deps;
    const token = taken.lockToken;
    const delay = (delayMs: number) => this.#jobOf(taken).moveToDelayed(Date.now() + delayMs, token);
    switch (outcome.kind) {
      case 'finished': {
        const { error } = outcome.outcome;
        if (error !== undefined) return this.#fail(taken, `${error.code}: ${startOf(error.message, 200)}`);
        await this.#jobOf(taken).moveToCompleted(boardValue(outcome.outcome), token, false);
        return;
      }
      case 'dropped':
        await this.#jobOf(taken).moveToCompleted({ status: 'dropped' }, token, false);
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
        if (await outcome.isReady()) await promote(backend.redis, backend.prefix, taken.id);
        return;
      case 'skipped': {
        const { partition, workerId } = this.#deps;
        const { need, others } = outcome;
        const skipped = { jobId: taken.id, lockToken: token, session: call.session, need, workerId, others };
        if (!(await backend.dispatch.skipWorker(partition, skipped))) await delay(ALL_SKIPPED_MS);
        return;
      }
      case 'released':
        await this.#jobOf(taken).moveToWait(token);
        return;
      case 'pending':
        return;
      case 'abandoned':
        // Without a move the job stays active until its lock runs out, and another worker recovers it.
        return;
    }
  }

  async #fail(taken: TakenJob, reason: string): Promise<undefined> {
    await this.#jobOf(taken).moveToFailed(new UnrecoverableError(reason), taken.lockToken, false);
  }

  #jobOf({ id, raw }: TakenJob): Job {
    const [fields] = raw2NextJobData(raw);
    return Job.fromJSON(this.#bull, fields, id);
  }
}

/** `JobFetcher` keeps the jobs that BullMQ's worker takes. */
function noJobComesHere(): never {
  throw new UnrecoverableError('This is not a job of Pawl.');
}

/** The return value that Bull Board shows of a call that succeeded. */
function boardValue({ status, attempts, durationMs }: Outcome): object {
  return { status, attempts, durationMs };
}

function parseJobData(data: string): Partial<CallJob> {
  try {
    const fields: unknown = JSON.parse(data);
    return typeof fields === 'object' && fields !== null ? fields : {};
  } catch {
    return {};
  }
}
