/**
 * Moves jobs between a queue and this worker, in one command each way. One script fetches jobs and starts their attempts. One script
 * writes a success, ends its job and starts the next one; the success of the only running job is written before. A worker with free slots
 * receives new jobs by direct dispatch, and fetches queued ones. BullMQ's worker decides when to fetch: it waits for markers and due jobs,
 * and checks for stalled ones. It never gets a job itself.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BackendFactory, createRedisBackend, type RedisQueueBackend } from 'bullmq';
import type { BeginResult } from '../../shared/store/calls/begin-attempt.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Settle } from '../../shared/store/calls/settle.ts';
import type { DispatchedJob } from '../../shared/store/dispatch/direct-dispatch.ts';
import {
  type Capacity,
  type FetchedJob,
  type FetchRequest,
  type FinishResult,
  type JobDispatch,
  LEFT_TO_OTHERS,
} from '../../shared/store/dispatch/job-dispatch.ts';
import { callOfJob, KEPT_JOBS, REMOVED_JOB_OPTIONS } from '../../shared/store/queues/jobs.ts';
import { ignoreLateErrors } from '../../shared/store/redis/ioredis/late-errors.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ConcurrencyLimiter } from './concurrency-slots.ts';
import { type Marker, MarkerWait } from './marker-wait.ts';

export interface JobFetcherDeps {
  readonly ledger: Pick<Ledger, 'postpone'>;
  readonly dispatch: Pick<JobDispatch, 'fetch' | 'finish'>;
  readonly partition: Partition;
  readonly workerId: string;
  readonly leaseMs: number;
  /** The longest time between two fetches: a killed worker may have taken the marker of a job. */
  readonly pollIntervalMs: number;
  readonly clock: Clock;
  readonly redisClock: Pick<Clock, 'now'>;
  /** Creates the token of an attempt, or of several that one command fetches. */
  nextToken(): string;
  /** The slots of the tier. Each fetched job holds one until it ends. */
  readonly slots: ConcurrencyLimiter;
  /** The number of living workers that fetch from this queue, this one included. */
  workers(): number;
  /** How jobs are dispatched here. Undefined while other queues share the slots. */
  dispatches(): Capacity['dispatches'];
  /** Leaves a marker to another worker, when this one does not wait for it or has no free slot. */
  skipWorker(marker: NonNullable<Marker>): void;
  /** Runs a job. The result is written together with the job's end. Undefined: the job has ended already. */
  run(job: ActiveJob): Promise<JobEnd | undefined>;
  onError(error: Error): void;
}

export interface ActiveJob {
  readonly id: string;
  readonly name: string;
  /** JSON. */
  readonly data: string;
  readonly lockToken: string;
  /** The job as BullMQ's scripts return it. */
  readonly raw: unknown[];
  /** The job's attempt, when the fetch started it too. */
  readonly attempt?: FetchedAttempt;
}

interface FetchedAttempt {
  readonly token: string;
  /** When the fetch was sent, on this process's monotonic clock. The lease runs from then. */
  readonly requestedAtMs: number;
  readonly answer: BeginResult;
}

/** The end of a job, to be written together with its call's outcome. */
export interface JobEnd {
  readonly settle: Settle;
  /** The job's return value, as JSON. */
  readonly returnValue: string;
  /** Repeats the write until it succeeds. Undefined when the lease is lost. */
  write(attempt: () => Promise<FinishResult>): Promise<FinishResult | undefined>;
}

/** A worker that can run none of the queued calls fetches again after this. Jobs that it can run are dispatched to it meanwhile. */
const INCOMPATIBLE_PAUSE_MS = 50;

/** Share of the lease. A reply that took longer was most likely delayed by an outage of Redis. */
const LATE_SHARE = 1 / 6;

/** The most jobs that one script fetches: Redis has other clients to serve, and other workers may become free. */
const MAX_FETCHED = 16;

type JobAnswer = FetchedJob & { readonly job: unknown[] };
type NextJob = JobAnswer & { readonly fetched: FetchRequest };
type JobLease = Pick<FetchRequest, 'lockToken' | 'requestedAtMs'>;
type MoveToActive = RedisQueueBackend['moveToActive'];

export class JobFetcher {
  readonly #deps: JobFetcherDeps;
  readonly #slotHolders = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  readonly #marker: MarkerWait;
  #backend: RedisQueueBackend | undefined;
  #closed = false;
  /** Jobs are waiting, or due later: this worker has to fetch again. */
  #awaitsDue = false;

  constructor(deps: JobFetcherDeps) {
    this.#deps = deps;
    this.#marker = new MarkerWait(deps.skipWorker, () => !this.#closed && deps.slots.free > 0);
  }

  /** The backend of BullMQ's worker, with our own `moveToActive` and `waitForJob`. */
  readonly backend: BackendFactory<RedisQueueBackend> = (name, options, connections) => {
    const backend = createRedisBackend(name, options, connections);
    ignoreLateErrors(backend);
    this.#backend = backend;
    const moveToActive: MoveToActive = (lockToken) => this.#fetch(lockToken);
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = (blockSeconds) => {
      const seconds = Math.min(blockSeconds, this.#deps.pollIntervalMs / 1_000);
      return this.#marker.wait(seconds, () => wait(seconds));
    };
    return Object.assign(backend, { moveToActive, waitForJob });
  };

  /** Starts jobs that were dispatched to this worker. An empty list means that it may listen now: it fetches, to report its capacity. */
  dispatched(jobs: readonly DispatchedJob[]): void {
    const { slots } = this.#deps;
    for (const answer of jobs.filter(hasJob)) {
      const { lockToken, atMs } = answer;
      if (this.#occupiesSlot(answer)) slots.occupy(1);
      this.#start(answer, { lockToken, requestedAtMs: this.#monotonicAt(atMs) });
    }
    if (jobs.length === 0 && !this.#closed) this.#marker.interrupt();
  }

  /** Called by BullMQ's worker in its fetch loop. Jobs are run here, so BullMQ gets only the time of its next fetch. */
  async #fetch(lockToken: string): Promise<unknown[]> {
    const { dispatch, partition, slots } = this.#deps;
    if (this.#closed) return [];
    if (slots.free < 1) this.#delegateDueJobs();
    await slots.acquire(this);
    const limit = 1 + slots.acquireFree(MAX_FETCHED - 1);
    let used = 0;
    let isForOthers = false;
    try {
      if (this.#closed) return [];
      const request = this.#fetchRequest(lockToken, () => this.#capacity(limit));
      const fetched = await dispatch.fetch(partition, request, limit);
      const answers = fetched.filter(hasJob);
      isForOthers = fetched[0]?.job === LEFT_TO_OTHERS;
      if (answers.length === 0) {
        const empty = emptyAnswer(fetched[0]?.job);
        this.#awaitsDue = Number(empty[3] ?? 0) > 0;
        return empty;
      }
      for (const answer of answers) {
        if (this.#occupiesSlot(answer)) used += 1;
        this.#start(answer, this.#leaseOf(answer, request));
      }
      // The last answer says whether more jobs are queued now, or due later.
      this.#awaitsDue = answers.at(-1)?.job[4] !== 1;
      if (this.#awaitsDue) this.#marker.interrupt();
      return [];
    } finally {
      slots.release(limit - used);
      // Other workers need time to get the marker.
      if (isForOthers) await sleep(INCOMPATIBLE_PAUSE_MS);
    }
  }

  /** A worker without a free slot does not wait for delayed jobs. A marker lets another worker fetch when the next one is due. */
  #delegateDueJobs(): void {
    if (this.#awaitsDue) this.#deps.skipWorker({ member: '0', score: 0 });
    this.#awaitsDue = false;
  }

  /** `reserved`: slots that were acquired for this fetch. */
  #capacity(reserved = 0): Capacity {
    const dispatches = this.#closed ? undefined : this.#deps.dispatches();
    return { free: this.#deps.slots.free + reserved, ...(dispatches !== undefined && { dispatches }) };
  }

  #fetchRequest(lockToken: string, capacity = () => this.#capacity()): FetchRequest {
    const { workerId, leaseMs, clock } = this.#deps;
    const [token, workers] = [this.#deps.nextToken(), this.#deps.workers()];
    const [timestampMs, requestedAtMs] = [clock.now(), clock.monotonic()];
    return { lockToken, timestampMs, requestedAtMs, leaseMs, workerId, token, workers, capacity };
  }

  /** A lease runs from its request. After an outage of Redis in between, it runs from when Redis granted it. */
  #leaseOf({ beginResult }: JobAnswer, { lockToken, requestedAtMs }: FetchRequest): JobLease {
    const { clock, leaseMs } = this.#deps;
    const isLate = clock.monotonic() - requestedAtMs > leaseMs * LATE_SHARE;
    if (!isLate || beginResult?.kind !== 'started') return { lockToken, requestedAtMs };
    return { lockToken, requestedAtMs: Math.max(requestedAtMs, this.#monotonicAt(beginResult.nowMs)) };
  }

  /** Converts a time on Redis' clock to this process's monotonic clock. */
  #monotonicAt(atMs: number): number {
    const { clock, redisClock } = this.#deps;
    return clock.monotonic() - Math.max(0, redisClock.now() - atMs);
  }

  /** Marks the job as holding a slot. False for a job that came back while it still runs here: it has its slot already. */
  #occupiesSlot({ job }: JobAnswer): boolean {
    const before = this.#slotHolders.size;
    return this.#slotHolders.add(job[1] as string).size > before;
  }

  #start(answer: JobAnswer, lease: JobLease): void {
    const running = (this.#closed ? this.#returnJob(answer, lease) : this.#run(answer, lease))
      .catch(this.#deps.onError)
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #run(answer: JobAnswer, lease: JobLease): Promise<void> {
    const job = activeJob(answer, lease);
    let end: JobEnd | undefined;
    let keepsSlot = false;
    try {
      end = await this.#deps.run(job);
    } finally {
      keepsSlot = this.#leaveSlot(job, end);
    }
    if (end === undefined) return;
    const next = await this.#endAndFetch(job, end, keepsSlot);
    if (next !== undefined) this.#start(next, this.#leaseOf(next, next.fetched));
  }

  /** Releases the job's slot, or keeps it for the next job of the queue, unless another queue waits for a slot. */
  #leaveSlot(job: ActiveJob, end: JobEnd | undefined): boolean {
    const { slots } = this.#deps;
    if (!this.#slotHolders.delete(job.id)) return false;
    if (end !== undefined && !this.#closed && slots.mayKeep(this)) return true;
    slots.release(1);
    return false;
  }

  /** Ends a job. The job that was fetched with it takes the slot that was kept; without one, the slot is released. */
  async #endAndFetch(job: ActiveJob, end: JobEnd, keepsSlot: boolean): Promise<NextJob | undefined> {
    let next: NextJob | undefined;
    try {
      next = await this.#finish(job, end, keepsSlot);
      return next;
    } finally {
      if (keepsSlot && (next === undefined || !this.#occupiesSlot(next))) this.#deps.slots.release(1);
    }
  }

  async #finish(job: ActiveJob, end: JobEnd, fetchNext: boolean): Promise<NextJob | undefined> {
    const request = this.#fetchRequest(job.lockToken);
    const { returnValue } = end;
    const finishedJob = { id: job.id, returnValue, keptJobs: retainedJobs(job.raw), fetchNext };
    const finished = await end.write(() => this.#deps.dispatch.finish(end.settle, finishedJob, request));
    if (finished === undefined || finished.code === 'fenced') return undefined;
    if (finished.refused !== undefined)
      this.#deps.onError(new Error(`BullMQ could not end job ${job.id}: code ${finished.refused}`));
    if (finished.next !== undefined && hasJob(finished.next)) return finished.next;
    // A job is queued that this command could not fetch.
    if (!finished.idle) this.#marker.interrupt();
    return undefined;
  }

  /** Returns a job that arrived while this worker closes. */
  async #returnJob({ job, beginResult }: JobAnswer, { lockToken }: JobLease): Promise<void> {
    const jobId = job[1] as string;
    if (this.#slotHolders.delete(jobId)) this.#deps.slots.release(1);
    if (beginResult?.kind === 'started')
      await this.#deps.ledger.postpone(callOfJob(jobId).callId, beginResult.fence, {
        phase: 'unstarted',
        attempts: beginResult.earlierAttempts,
        delayMs: 0,
      });
    await this.#backend?.moveJobFromActiveToWait(jobId, lockToken);
  }

  /** Fetches no further jobs; those that still arrive are returned. */
  close(): void {
    this.#closed = true;
  }

  /** Resolves when no job runs here any more. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}

function hasJob<Found extends FetchedJob>(fetched: Found): fetched is Found & JobAnswer {
  return Array.isArray(fetched.job) && typeof fetched.job[1] === 'string';
}

/** BullMQ's reply without a job, which says when the next one is due. */
function emptyAnswer(answer: FetchedJob['job']): unknown[] {
  return Array.isArray(answer) ? [undefined, undefined, answer[2], answer[3]] : [];
}

function activeJob({ job: raw, token, beginResult }: JobAnswer, { lockToken, requestedAtMs }: JobLease): ActiveJob {
  const id = raw[1] as string;
  const attempt = beginResult === undefined ? {} : { attempt: { token, requestedAtMs, answer: beginResult } };
  return { id, name: fieldOf(raw, 'name') ?? '', data: fieldOf(raw, 'data') ?? '', lockToken, raw, ...attempt };
}

function retainedJobs(raw: unknown[]): number {
  return fieldOf(raw, 'opts') === REMOVED_JOB_OPTIONS ? 0 : KEPT_JOBS;
}

/** Names and values alternate in the list. */
function fieldOf([fields]: unknown[], name: string): string | undefined {
  const list = fields as readonly string[];
  for (let index = 0; index < list.length; index += 2) if (list[index] === name) return list[index + 1];
  return undefined;
}
