/**
 * The queue of one place, as BullMQ has it: takes its jobs, has them executed, and tells BullMQ in its own terms what became of each.
 */
import {
  Worker as BullWorker,
  type WorkerOptions as BullWorkerOptions,
  type ConnectionOptions,
  DelayedError,
  type Job,
  UnrecoverableError,
  WaitingError,
} from 'bullmq';
import { stackOf } from '../shared/classify.ts';
import type { Settings } from '../shared/config.ts';
import { PawlError } from '../shared/failure.ts';
import { placeOf } from '../shared/fingerprint.ts';
import type { Logger } from '../shared/log.ts';
import type { Backend } from '../shared/store/backend.ts';
import type { BeginAnswer } from '../shared/store/begin.ts';
import type { Finished } from '../shared/store/deliveries.ts';
import { type Place, PlaceKeys } from '../shared/store/keys.ts';
import type { PushReader } from '../shared/store/pushes.ts';
import {
  type CallJob,
  callOfJob,
  fetchAtEveryMarker,
  KEPT_EVENTS,
  scriptsOnRedisTime,
} from '../shared/store/queues.ts';
import { nodeOptions, slotOf } from '../shared/store/redis.ts';
import { wake } from '../shared/store/wake.ts';
import type { Clock } from '../shared/time.ts';
import { Deliveries } from './deliveries.ts';
import type { Executor } from './execute.ts';
import { LockRenewal } from './lock-renewal.ts';
import type { WorkerMetrics } from './metrics.ts';
import type { RunningAttempt, RunningAttempts } from './running.ts';
import { patiently, type Verdict } from './settlement.ts';
import type { Slots } from './slots.ts';

export interface JobQueueParts {
  readonly backend: Backend;
  readonly settings: Settings;
  readonly place: Place;
  /** Attempts at a time; those of the tier's other queues count, too. */
  readonly concurrency: number;
  readonly slots: Slots;
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
  unwanted(toolName: string): Unwanted | undefined;
  /** BullMQ's lock of a running attempt was renewed: its lease is due too. */
  renew(attempt: RunningAttempt): Promise<void>;
  onError(error: Error): void;
}

export type Unwanted = Extract<Verdict, { kind: 'handed-back' | 'later' }>;

export class JobQueue {
  readonly #parts: JobQueueParts;
  readonly #deliveries: Deliveries;
  /** Absent where further queues shared the slots from the beginning. */
  readonly #pushes: PushReader | undefined;
  readonly #bull: BullWorker<CallJob>;
  readonly #locks: LockRenewal;

  constructor(parts: JobQueueParts) {
    this.#parts = parts;
    const { backend, settings, place, concurrency, clock, running, onError } = parts;
    const keys = new PlaceKeys(settings.prefix, place);
    this.#deliveries = new Deliveries({
      ledger: backend.ledger,
      place,
      workerId: parts.workerId,
      leaseMs: settings.lockDurationMs,
      clock,
      nextToken: () => running.nextToken(),
      slots: parts.slots,
      freeLanes: () => concurrency - lanesOf(this.#bull),
      redisClock: backend.clock,
      workers: () => parts.workers(),
      pushes: () => (parts.isAlone() ? this.#pushes?.state : undefined),
      passOn: ({ member, score }) => void backend.redis.zadd(keys.job('marker'), score, member).catch(onError),
    });
    if (parts.isAlone())
      this.#pushes = backend.ledger.pushes({
        url: backend.url,
        prefix: settings.prefix,
        place,
        workerId: parts.workerId,
        leaseMs: settings.lockDurationMs,
        onJobs: (jobs) => this.#deliveries.pushed(jobs),
        onError,
      });
    const { url, redis } = backend;
    const connection = nodeOptions(
      { url, name: `${settings.prefix}:worker:${keys.queue}`, mode: 'patient' },
      () => slotOf(redis, keys.calls)?.node,
    );
    const options: BullWorkerOptions = {
      connection: { ...connection, scripts: scriptsOnRedisTime() } as ConnectionOptions,
      prefix: keys.base,
      concurrency,
      autorun: false,
      lockDuration: settings.lockDurationMs,
      stalledInterval: settings.stalledIntervalMs,
      skipLockRenewal: true,
      // The ledger counts lost attempts; BullMQ must never give a call up by itself.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: 1_000,
    };
    const process = (job: Job<CallJob>, token = '') =>
      this.#process(job, token).finally(() => this.#deliveries.ended(job.id ?? ''));
    this.#bull = new BullWorker(keys.queue, process, options, this.#deliveries.backend);
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

  /** Begins to take jobs. */
  async run(): Promise<void> {
    const { backend, settings, place, onError } = this.#parts;
    const meta = new PlaceKeys(settings.prefix, place).job('meta');
    await backend.redis.hset(meta, 'opts.maxLenEvents', KEPT_EVENTS);
    this.#bull.run().catch(onError);
    await this.#bull.waitUntilReady();
  }

  /** The tier has further queues that share its slots: nothing is pushed any more, all of them are asked in turn. */
  async share(): Promise<void> {
    await this.#pushes?.leave();
    this.#pushes?.close();
  }

  /** Fetches nothing any more; what was fetched in this moment goes back. */
  async putBack(): Promise<void> {
    await this.#deliveries.close();
    await this.#pushes?.leave().catch(this.#parts.onError);
    // Some may have arrived meanwhile.
    await this.#deliveries.close();
  }

  /** Resolves when the jobs that run have ended, with `force` at once. */
  close(force?: boolean): Promise<void> {
    this.#pushes?.close();
    return this.#bull.close(force);
  }

  /** Renews no locks any more. */
  closeLocks(): void {
    this.#locks.close();
  }

  async #process(job: Job<CallJob>, laneToken: string): Promise<object> {
    const { place, running: attempts, clock, metrics, log } = this.#parts;
    const { tier } = place;
    const { id: jobId, data, name } = job;
    const taken = this.#deliveries.taken(jobId ?? '');
    const token = taken?.lockToken ?? laneToken;
    job.token = token;
    const call = this.#callOf(jobId ?? '', data);
    if (jobId === undefined || call === undefined) throw new UnrecoverableError('This is not a job of Pawl.');
    const begun = taken?.attempt;
    const unwanted = this.#parts.unwanted(name);
    if (unwanted !== undefined && begun?.answer.kind !== 'started') return this.#conclude(job, token, unwanted);
    const running = attempts.add(call.callId, jobId, begun);
    // It has begun already, and goes back as an attempt that did nothing yet.
    if (unwanted !== undefined) running.abort(new PawlError('DRAINED'));
    this.#locks.hold(jobId, token);
    const end = () => {
      attempts.remove(running);
      this.#locks.release(jobId, token);
    };
    const startedAtMs = clock.monotonic();
    const verdict = await this.#execute(call, running, begun?.answer);
    if (running.fence > 0) metrics.attemptEnded(tier, clock.monotonic() - startedAtMs, running);
    if (verdict.kind === 'abandoned' && verdict.fenced === true) metrics.writeFenced(tier);
    if (verdict.kind === 'finished' && verdict.unwritten !== undefined) {
      const write = async (attempt: () => Promise<Finished>) => {
        const written = await patiently(attempt, running, log).finally(end);
        if (written?.code === 'fenced') metrics.writeFenced(tier);
        return written;
      };
      this.#deliveries.endWith(jobId, { settle: verdict.unwritten, write });
      return this.#conclude(job, token, verdict);
    }
    end();
    return this.#conclude(job, token, verdict.kind === 'handed-back' ? (unwanted ?? verdict) : verdict);
  }

  /** A job is taken by its name, so that is what counts: its data may be anybody's, and say anything. */
  #callOf(jobId: string, data: unknown): CallJob | undefined {
    const { callId, generation } = callOfJob(jobId);
    const told = (typeof data === 'object' && data !== null ? data : {}) as Partial<CallJob>;
    const { place, backend } = this.#parts;
    const named = placeOf(callId);
    const ours = named?.tier === place.tier && named.shard === place.shard && /^\d+$/.test(generation);
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

  async #execute(data: CallJob, running: RunningAttempt, begun: BeginAnswer | undefined): Promise<Verdict> {
    try {
      return await this.#parts.executor.execute(data, running, begun);
    } catch (error) {
      // The call is recovered by its lease, not lost with this job.
      const { log } = this.#parts;
      const { callId } = data;
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
        log.warn({ callId, error: error.message }, 'a call cannot be begun or written now');
      else
        log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed: a defect');
      return { kind: 'abandoned' };
    }
  }

  /** Tells BullMQ, in its own terms, what became of a job. */
  async #conclude(job: Job<CallJob>, token: string, verdict: Verdict): Promise<object> {
    switch (verdict.kind) {
      case 'finished': {
        const { status, attempts, durationMs, error } = verdict.outcome;
        if (error !== undefined) throw new UnrecoverableError(`${error.code}: ${error.message.slice(0, 200)}`);
        return { status, attempts, durationMs };
      }
      case 'dropped':
        return { status: 'dropped' };
      case 'later':
        await job.moveToDelayed(Date.now() + verdict.delayMs, token);
        throw new DelayedError();
      case 'turn':
        await job.moveToDelayed(Date.now() + verdict.delayMs, token);
        await this.#parts.backend.turns.parked(job.data);
        throw new DelayedError();
      case 'waiting': {
        await job.moveToDelayed(Date.now() + verdict.delayMs, token);
        const { redis, prefix } = this.#parts.backend;
        if (await verdict.isReady()) await wake(redis, prefix, String(job.id));
        throw new DelayedError();
      }
      case 'handed-back':
        await job.moveToWait(token);
        throw new WaitingError();
      case 'abandoned':
        // Without a move the job stays active until its lock runs out, and another worker takes it over.
        throw new DelayedError();
    }
  }
}

/** How many jobs the worker has taken or is taking. Unknown before it runs: then all lanes but one are free. */
function lanesOf(queue: BullWorker): number {
  return (queue as unknown as { readonly mainLoopQueue?: { numTotal(): number } }).mainLoopQueue?.numTotal() ?? 1;
}
