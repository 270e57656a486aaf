/**
 * The queue of one place, as BullMQ has it: takes its jobs, has them executed, and tells BullMQ in its own terms what became of each.
 */
import {
  Worker as BullWorker,
  type WorkerOptions as BullWorkerOptions,
  type ConnectionOptions,
  Job,
  raw2NextJobData,
  UnrecoverableError,
} from 'bullmq';
import { placeOf } from '../../shared/calls/call-id.ts';
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
import { type Ending, JobFetcher, type TakenAttempt, type TakenJob } from './job-fetcher.ts';
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
  /** What to do with a job that this worker should not start. */
  unwanted(toolName: string, namespace?: string): Unwanted | undefined;
  /** BullMQ's lock of a running attempt was renewed: its lease is due too. */
  renew(attempt: RunningAttempt): Promise<void>;
  onError(error: Error): void;
}

/**
 * BullMQ finds a dead worker's job at the second look after its last renewal, and leaves one out that comes a moment too
 * early: so many in an interval, and the job is taken over within it once its lock has ended.
 */
const LOOKS_PER_INTERVAL = 3;

/** How long a job waits that all workers leave to each other. */
const NOBODY_MS = 500;

export type Unwanted = Extract<JobOutcome, { kind: 'handed-back' | 'passed-on' }>;

export class JobQueue {
  readonly #parts: JobQueueDeps;
  readonly #fetcher: JobFetcher;
  /** Absent where further queues shared the slots from the beginning. */
  readonly #dispatches: DispatchReader | undefined;
  readonly #bull: BullWorker<CallJob>;
  readonly #locks: LockRenewal;

  constructor(parts: JobQueueDeps) {
    this.#parts = parts;
    const { backend, settings, partition, clock, running, onError } = parts;
    const keys = new PartitionKeys(settings.prefix, partition);
    this.#fetcher = new JobFetcher({
      ledger: backend.ledger,
      dispatch: backend.dispatch,
      partition,
      workerId: parts.workerId,
      leaseMs: settings.lockDurationMs,
      clock,
      nextToken: () => running.nextToken(),
      slots: parts.slots,
      redisClock: backend.clock,
      workers: () => parts.workers(),
      dispatches: () => (parts.isAlone() ? this.#dispatches?.state : undefined),
      skipWorker: ({ member, score }) => void backend.redis.zadd(keys.job('marker'), score, member).catch(onError),
      run: (job) => this.#run(job),
      onError,
    });
    if (parts.isAlone())
      this.#dispatches = new DispatchReader(backend.ledger.access, {
        url: backend.url,
        prefix: settings.prefix,
        partition,
        workerId: parts.workerId,
        leaseMs: settings.lockDurationMs,
        onJobs: (jobs) => this.#fetcher.dispatched(jobs),
        onError,
      });
    const { url, redis } = backend;
    const connection = nodeOptions(
      { url, name: `${settings.prefix}:worker:${keys.queue}`, mode: 'patient' },
      () => slotOf(redis, keys.calls)?.node,
    );
    const lookEveryMs = Math.ceil(settings.stalledIntervalMs / LOOKS_PER_INTERVAL);
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
    this.#bull = new BullWorker(keys.queue, noJobComesHere, options, (...queue) => {
      const bull = this.#fetcher.backend(...queue);
      const look = bull.moveStalledJobsToWait.bind(bull);
      bull.moveStalledJobsToWait = async () => {
        await this.#endLongTurn(keys.job('stalled-check'), lookEveryMs);
        return look();
      };
      return bull;
    });
    this.#bull.on('error', onError);
    fetchAtEveryMarker(this.#bull);
    this.#locks = new LockRenewal({
      running,
      clock,
      leaseMs: settings.lockDurationMs,
      extend: (jobIds, tokens, leaseMs) => this.#bull.extendJobLocks(jobIds, tokens, leaseMs),
      onRenewed: (attempt) => void parts.renew(attempt).catch(onError),
      onLost: (attempt) => attempt.abort(new PawlError('LEASE_LOST')),
      onError,
    });
  }

  /**
   * Who looks for jobs of lost workers has the turn until a moment on Redis' clock. When that clock is set back, the moment is far off, and
   * nobody would look until then.
   */
  async #endLongTurn(key: string, turnMs: number): Promise<void> {
    const { redis } = this.#parts.backend;
    if ((await redis.pttl(key)) > turnMs) await redis.del(key);
  }

  /** Begins to take jobs. */
  async run(): Promise<void> {
    const { backend, settings, partition, onError } = this.#parts;
    const meta = new PartitionKeys(settings.prefix, partition).job('meta');
    await backend.redis.hset(meta, 'opts.maxLenEvents', KEPT_EVENTS);
    this.#bull.run().catch(onError);
    await this.#bull.waitUntilReady();
  }

  /** The tier has further queues that share its slots: nothing is pushed any more, all of them are asked in turn. */
  async share(): Promise<void> {
    await this.#dispatches?.leave();
    this.#dispatches?.close();
  }

  /** Fetches nothing any more; what was fetched in this moment goes back. */
  async putBack(): Promise<void> {
    this.#fetcher.close();
    await this.#bull.pause(true);
    await this.#dispatches?.leave().catch(this.#parts.onError);
  }

  /** Resolves when the jobs that run have ended, with `force` at once. */
  async close(force = false): Promise<void> {
    this.#dispatches?.close();
    if (!force) await this.#fetcher.ended();
    await this.#bull.close(force);
  }

  /** Renews no locks any more. */
  closeLocks(): void {
    this.#locks.close();
  }

  async #run(taken: TakenJob): Promise<Ending | undefined> {
    const { running: attempts, clock, metrics, log, partition } = this.#parts;
    const { id: jobId, name, lockToken, attempt } = taken;
    const call = this.#callOf(jobId, taken.data);
    if (call === undefined) return this.#fail(taken, 'This is not a job of Pawl.');
    const started = attempt?.answer.kind === 'started' ? attempt.answer.request.envelope : undefined;
    const unwanted = this.#parts.unwanted(name, started?.toolNamespace);
    if (unwanted !== undefined && started === undefined) return this.#conclude(taken, call, unwanted);
    const running = attempts.add(call.callId, jobId, attempt);
    // It has begun already, and goes back as an attempt that did nothing yet.
    if (unwanted !== undefined) running.abort(new PawlError('DRAINED'));
    this.#locks.hold(jobId, lockToken);
    const end = () => {
      attempts.remove(running);
      this.#locks.release(jobId, lockToken);
    };
    const startedAtMs = clock.monotonic();
    const verdict = await this.#execute(call, running, attempt);
    if (running.fence > 0) metrics.attemptEnded(partition.tier, clock.monotonic() - startedAtMs, running);
    if (running.leaseLost) {
      const { message } = running.signal.reason as PawlError;
      log.warn(
        { event: 'lease_lost', callId: call.callId, toolName: name, fence: running.fence, reason: message },
        'an attempt was given up: its lease was lost',
      );
    }
    if (verdict.kind === 'abandoned' && verdict.fenced === true) metrics.writeFenced(partition.tier);
    if (verdict.kind === 'finished' && verdict.unwritten !== undefined) {
      const write = async (finish: () => Promise<Finished>) => {
        const written = await retryUntilLeaseLost(finish, running, log).finally(end);
        if (written?.code === 'fenced') metrics.writeFenced(partition.tier);
        return written;
      };
      return { settle: verdict.unwritten, returnValue: JSON.stringify(shownOf(verdict.outcome)), write };
    }
    end();
    return this.#conclude(taken, call, verdict.kind === 'handed-back' ? (unwanted ?? verdict) : verdict);
  }

  /** A job is taken by its name, so that is what counts: its data may be anybody's, and say anything. */
  #callOf(jobId: string, data: string): CallJob | undefined {
    const { callId, generation } = callOfJob(jobId);
    const told = toldBy(data);
    const { partition, backend } = this.#parts;
    const named = placeOf(callId);
    const ours = named?.tier === partition.tier && named.shard === partition.shard && /^\d+$/.test(generation);
    const { audit } = backend;
    if (!ours)
      void audit({
        type: 'refused',
        what: 'job',
        reason: 'a job whose name is none that this fleet gives: nothing ran',
      });
    else if (told.callId !== callId || told.generation !== generation)
      void audit({
        type: 'refused',
        what: 'job',
        callId,
        reason: 'the data of a job named another call: not believed',
      });
    return ours ? { callId, generation, session: typeof told.session === 'string' ? told.session : '' } : undefined;
  }

  async #execute(call: CallJob, running: RunningAttempt, taken: TakenAttempt | undefined): Promise<JobOutcome> {
    try {
      return await this.#parts.executor.execute(call, running, taken?.answer);
    } catch (error) {
      // The call is recovered by its lease, not lost with this job.
      const { log } = this.#parts;
      const { callId } = call;
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
        log.warn({ callId, error: error.message }, 'a call cannot be begun or written now');
      else
        log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed: a defect');
      return { kind: 'abandoned' };
    }
  }

  /** Tells BullMQ, in its own terms, what became of a job whose end is not written together with its call's. */
  async #conclude(taken: TakenJob, call: CallJob, verdict: JobOutcome): Promise<undefined> {
    const { backend } = this.#parts;
    const token = taken.lockToken;
    const delay = (delayMs: number) => this.#jobOf(taken).moveToDelayed(Date.now() + delayMs, token);
    switch (verdict.kind) {
      case 'finished': {
        const { error } = verdict.outcome;
        if (error !== undefined) return this.#fail(taken, `${error.code}: ${startOf(error.message, 200)}`);
        await this.#jobOf(taken).moveToCompleted(shownOf(verdict.outcome), token, false);
        return;
      }
      case 'dropped':
        await this.#jobOf(taken).moveToCompleted({ status: 'dropped' }, token, false);
        return;
      case 'later':
        await delay(verdict.delayMs);
        return;
      case 'turn':
        await delay(verdict.delayMs);
        await backend.locks.parked(call);
        return;
      case 'waiting':
        await delay(verdict.delayMs);
        if (await verdict.isReady()) await promote(backend.redis, backend.prefix, taken.id);
        return;
      case 'passed-on': {
        const { partition, workerId } = this.#parts;
        const { need, others } = verdict;
        const passed = { jobId: taken.id, lockToken: token, session: call.session, need, workerId, others };
        if (!(await backend.dispatch.skipWorker(partition, passed))) await delay(NOBODY_MS);
        return;
      }
      case 'handed-back':
        await this.#jobOf(taken).moveToWait(token);
        return;
      case 'abandoned':
        // Without a move the job stays active until its lock runs out, and another worker takes it over.
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

/** Deliveries keep what BullMQ's worker takes. */
function noJobComesHere(): never {
  throw new UnrecoverableError('This is not a job of Pawl.');
}

/** What Bull Board shows of a call that succeeded. */
function shownOf({ status, attempts, durationMs }: Outcome): object {
  return { status, attempts, durationMs };
}

function toldBy(data: string): Partial<CallJob> {
  try {
    const told: unknown = JSON.parse(data);
    return typeof told === 'object' && told !== null ? told : {};
  } catch {
    return {};
  }
}
