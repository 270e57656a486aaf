/**
 * The way of jobs between a queue and this worker, in one step each way: jobs are taken together with the start of their attempts,
 * and a success is written together with the end of its job and the next one's beginning. A worker with free slots is pushed new
 * jobs, and takes what had to stand in line. Jobs run as soon as they are here. BullMQ's worker says when to take: it waits for
 * markers and for what is due, and looks for stalled jobs; it never gets a job itself.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BackendFactory, createRedisBackend, type RedisQueueBackend } from 'bullmq';
import type { BeginResult } from '../../shared/store/calls/begin-attempt.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Settle } from '../../shared/store/calls/settle.ts';
import type { DispatchedJobs } from '../../shared/store/dispatch/direct-dispatch.ts';
import {
  type Capacity,
  ELSEWHERE,
  type FetchedJob,
  type Finished,
  type JobDispatch,
  type Taken,
} from '../../shared/store/dispatch/fetch-jobs.ts';
import { callOfJob, KEPT_JOBS, REMOVED_AT_ONCE } from '../../shared/store/queues/jobs.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ConcurrencyLimiter } from './concurrency-slots.ts';
import { type Marker, MarkerWait } from './marker-wait.ts';

export interface JobFetcherDeps {
  readonly ledger: Pick<Ledger, 'postpone'>;
  readonly dispatch: Pick<JobDispatch, 'take' | 'finish'>;
  readonly partition: Partition;
  readonly workerId: string;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly redisClock: Pick<Clock, 'now'>;
  /** Names an attempt, or several that are taken together. */
  nextToken(): string;
  /** Of the tier: each job that was taken holds one until it ends. */
  readonly slots: ConcurrencyLimiter;
  /** How many workers take from the same queue. */
  workers(): number;
  /** How jobs are pushed here. None are while other queues share the slots. */
  dispatches(): Capacity['dispatches'];
  /** Gives a marker that nobody here waits for, or has a slot for, to another worker. */
  skipWorker(marker: NonNullable<Marker>): void;
  /** Runs a job. What it resolves with is written together with the job's end; with nothing, the job has found its end already. */
  run(job: TakenJob): Promise<Ending | undefined>;
  onError(error: Error): void;
}

/** A job as it was taken. */
export interface TakenJob {
  readonly id: string;
  /** Of the tool. */
  readonly name: string;
  /** JSON. */
  readonly data: string;
  readonly lockToken: string;
  /** As BullMQ's scripts answer it. */
  readonly raw: unknown[];
  /** Its attempt, when that was started in the same step. */
  readonly attempt?: TakenAttempt;
}

export interface TakenAttempt {
  readonly token: string;
  /** When the job was asked for, on this process's monotonic clock: the lease runs since then. */
  readonly askedAtMs: number;
  readonly answer: BeginResult;
}

/** A call's outcome, to be written when its job ends. */
export interface Ending {
  readonly settle: Settle;
  /** Of the job, JSON. */
  readonly returnValue: string;
  /** Runs the write as often as it takes; undefined when the lease is lost. */
  write(attempt: () => Promise<Finished>): Promise<Finished | undefined>;
}

/** A worker that lacks what all waiting calls need looks again after this. What it can run is pushed to it meanwhile. */
const OTHERS_FIRST_MS = 50;

/** An answer that took so much of the lease was long on its way: most likely there was no Redis to ask. */
const LATE_SHARE = 1 / 6;

/** So many jobs are taken in one step at most: Redis has others to serve, and other workers may come. */
const MAX_TAKEN = 16;

type Answer = Taken & { readonly job: unknown[] };
type Under = Pick<FetchedJob, 'lockToken' | 'askedAtMs'>;
type MoveToActive = RedisQueueBackend['moveToActive'];

export class JobFetcher {
  readonly #parts: JobFetcherDeps;
  /** Jobs with a slot. */
  readonly #holding = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  readonly #marker: MarkerWait;
  #backend: RedisQueueBackend | undefined;
  #closed = false;

  constructor(parts: JobFetcherDeps) {
    this.#parts = parts;
    this.#marker = new MarkerWait(parts.skipWorker, () => !this.#closed && parts.slots.free > 0);
  }

  /** What BullMQ's worker runs on: its own backend, with our ways of taking and waiting. */
  readonly backend: BackendFactory<RedisQueueBackend> = (name, options, connections) => {
    const backend = createRedisBackend(name, options, connections);
    this.#backend = backend;
    const moveToActive: MoveToActive = (lockToken) => this.#take(lockToken);
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = (blockSeconds) =>
      this.#marker.wait(blockSeconds, () => wait(blockSeconds));
    return Object.assign(backend, { moveToActive, waitForJob });
  };

  /** Jobs were pushed to this worker. With none, it listens from now on: it asks, to say what it has room for. */
  dispatched(jobs: readonly DispatchedJobs[]): void {
    const { slots } = this.#parts;
    for (const taken of jobs.filter(isAnswer)) {
      const { lockToken, atMs } = taken;
      if (this.#holds(taken)) slots.use(1);
      this.#start(taken, { lockToken, askedAtMs: this.#monotonicAt(atMs) });
    }
    if (jobs.length === 0 && !this.#closed) this.#marker.promote();
  }

  /** Asked by BullMQ's worker: takes jobs and runs them. What it gets is no job, and when to ask again. */
  async #take(lockToken: string): Promise<unknown[]> {
    const { dispatch, partition, slots } = this.#parts;
    if (this.#closed) return [];
    await slots.take(this);
    const most = 1 + slots.takeNow(MAX_TAKEN - 1);
    let used = 0;
    let isElsewhere = false;
    try {
      if (this.#closed) return [];
      const fetched = this.#fetched(lockToken, () => this.#capacity(most));
      const taken = await dispatch.take(partition, fetched, most);
      const answers = taken.filter(isAnswer);
      isElsewhere = taken[0]?.job === ELSEWHERE;
      if (answers.length === 0) return noJob(taken[0]?.job);
      for (const answer of answers) {
        if (this.#holds(answer)) used += 1;
        this.#start(answer, this.#leased(answer, fetched));
      }
      // The last says whether there is more: now, or when something is due.
      if (answers.at(-1)?.job[4] !== 1) this.#marker.promote();
      return [];
    } finally {
      slots.give(most - used);
      // The marker that brought it here is for others, who must get hold of it.
      if (isElsewhere) await sleep(OTHERS_FIRST_MS);
    }
  }

  /** `asked`: slots for which jobs are asked for in the same step. */
  #capacity(asked = 0): Capacity {
    const dispatches = this.#closed ? undefined : this.#parts.dispatches();
    return { free: this.#parts.slots.free + asked, ...(dispatches === undefined ? {} : { dispatches }) };
  }

  #fetched(lockToken: string, capacity = () => this.#capacity()): FetchedJob {
    const { workerId, leaseMs, clock } = this.#parts;
    const [token, workers] = [this.#parts.nextToken(), this.#parts.workers()];
    const [timestampMs, askedAtMs] = [clock.now(), clock.monotonic()];
    return { lockToken, timestampMs, askedAtMs, leaseMs, workerId, token, workers, capacity };
  }

  /** A lease runs since it was asked for, or, where Redis was away in between, since Redis gave it. */
  #leased({ begun }: Answer, { lockToken, askedAtMs }: FetchedJob): Under {
    const { clock, leaseMs } = this.#parts;
    const isLate = clock.monotonic() - askedAtMs > leaseMs * LATE_SHARE;
    if (!isLate || begun?.kind !== 'started') return { lockToken, askedAtMs };
    return { lockToken, askedAtMs: Math.max(askedAtMs, this.#monotonicAt(begun.nowMs)) };
  }

  /** Of a time on Redis' clock. */
  #monotonicAt(atMs: number): number {
    const { clock, redisClock } = this.#parts;
    return clock.monotonic() - Math.max(0, redisClock.now() - atMs);
  }

  /** Whether the job keeps a slot from here on. One that came back although it still runs here has its slot already. */
  #holds({ job }: Answer): boolean {
    const before = this.#holding.size;
    return this.#holding.add(job[1] as string).size > before;
  }

  #start(answer: Answer, under: Under): void {
    const running = (this.#closed ? this.#putBack(answer, under) : this.#run(answer, under))
      .catch(this.#parts.onError)
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #run(answer: Answer, under: Under): Promise<void> {
    const { slots, run } = this.#parts;
    const job = jobOf(answer, under);
    let ending: Ending | undefined;
    let next: (Answer & { readonly fetched: FetchedJob }) | undefined;
    let holds = false;
    try {
      ending = await run(job);
    } finally {
      // It leaves its slot to the next one, if nobody else waits for it.
      holds = this.#holding.delete(job.id);
      if (holds && (ending === undefined || this.#closed || !slots.mayKeep(this))) {
        slots.give(1);
        holds = false;
      }
    }
    if (ending === undefined) return;
    try {
      next = await this.#finish(job, ending, holds);
    } finally {
      if (holds && (next === undefined || !this.#holds(next))) slots.give(1);
    }
    if (next !== undefined) this.#start(next, this.#leased(next, next.fetched));
  }

  async #finish(
    job: TakenJob,
    ending: Ending,
    takeNext: boolean,
  ): Promise<(Answer & { fetched: FetchedJob }) | undefined> {
    const fetched = this.#fetched(job.lockToken);
    const { returnValue } = ending;
    const finishedJob = { id: job.id, returnValue, kept: keptOf(job.raw), takeNext };
    const finished = await ending.write(() => this.#parts.dispatch.finish(ending.settle, finishedJob, fetched));
    if (finished === undefined || finished.code === 'fenced') return undefined;
    if (finished.refused !== undefined)
      this.#parts.onError(new Error(`BullMQ could not end job ${job.id}: code ${finished.refused}`));
    if (finished.next !== undefined && isAnswer(finished.next)) return finished.next;
    // What is there could not be taken in passing.
    if (!finished.idle) this.#marker.promote();
    return undefined;
  }

  /** It came while this worker closes. */
  async #putBack({ job, begun }: Answer, { lockToken }: Under): Promise<void> {
    const jobId = job[1] as string;
    if (this.#holding.delete(jobId)) this.#parts.slots.give(1);
    if (begun?.kind === 'started')
      await this.#parts.ledger.postpone(callOfJob(jobId).callId, begun.fence, 'unstarted', begun.earlier, 0);
    await this.#backend?.moveJobFromActiveToWait(jobId, lockToken);
  }

  /** Takes no further jobs; what still arrives goes back. */
  close(): void {
    this.#closed = true;
  }

  /** Resolves when no job is here any more. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}

function isAnswer<Found extends Taken>(taken: Found): taken is Found & Answer {
  return Array.isArray(taken.job) && typeof taken.job[1] === 'string';
}

/** BullMQ's answer for no job says when the next one is due. */
function noJob(answer: Taken['job']): unknown[] {
  return Array.isArray(answer) ? [undefined, undefined, answer[2], answer[3]] : [];
}

function jobOf({ job: raw, token, begun }: Answer, { lockToken, askedAtMs }: Under): TakenJob {
  const id = raw[1] as string;
  const attempt = begun === undefined ? {} : { attempt: { token, askedAtMs, answer: begun } };
  return { id, name: fieldOf(raw, 'name') ?? '', data: fieldOf(raw, 'data') ?? '', lockToken, raw, ...attempt };
}

function keptOf(raw: unknown[]): number {
  return fieldOf(raw, 'opts') === REMOVED_AT_ONCE ? 0 : KEPT_JOBS;
}

/** Names and values take turns. */
function fieldOf([fields]: unknown[], name: string): string | undefined {
  const list = fields as readonly string[];
  for (let at = 0; at < list.length; at += 2) if (list[at] === name) return list[at + 1];
  return undefined;
}
