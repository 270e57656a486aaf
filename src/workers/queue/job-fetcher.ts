/**
 * Moves jobs between a queue and this worker, in one command each way. Jobs are taken together with the start of their attempts. A
 * success is written together with the end of its job and the start of the next one. A worker with free slots receives new jobs by
 * direct dispatch, and takes those that were queued. BullMQ's worker says when to take: it waits for markers and for due jobs, and
 * looks for stalled ones. It never gets a job itself.
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
  readonly leaseMs: number;
  /** The worker asks at least so often: a worker that was killed may have taken the marker of a job. */
  readonly lookEveryMs: number;
  readonly clock: Clock;
  readonly redisClock: Pick<Clock, 'now'>;
  /** Names an attempt, or several that are taken together. */
  nextToken(): string;
  /** The slots of the tier. Each job that was taken holds one until it ends. */
  readonly slots: ConcurrencyLimiter;
  /** How many workers take from the same queue. */
  workers(): number;
  /** How jobs are dispatched here. Undefined while other queues share the slots. */
  dispatches(): Capacity['dispatches'];
  /** Gives a marker to another worker, where this one does not wait for it or has no free slot. */
  skipWorker(marker: NonNullable<Marker>): void;
  /** Runs a job. The answer is written together with the job's end. Undefined: the job has ended already. */
  run(job: TakenJob): Promise<JobEnd | undefined>;
  onError(error: Error): void;
}

export interface TakenJob {
  readonly id: string;
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

/** The end of a job, to be written together with its call's outcome. */
export interface JobEnd {
  readonly settle: Settle;
  /** The job's return value, as JSON. */
  readonly returnValue: string;
  /** Repeats the write until it succeeds. Undefined when the lease is lost. */
  write(attempt: () => Promise<Finished>): Promise<Finished | undefined>;
}

/** A worker that lacks what all waiting calls need looks again after this. Jobs that it can run are dispatched to it meanwhile. */
const OTHERS_FIRST_MS = 50;

/** An answer that took so much of the lease was long on its way: most likely there was no Redis to ask. */
const LATE_SHARE = 1 / 6;

/** So many jobs are taken in one step at most: Redis has others to serve, and other workers may come. */
const MAX_TAKEN = 16;

type TakenAnswer = Taken & { readonly job: unknown[] };
type Under = Pick<FetchedJob, 'lockToken' | 'askedAtMs'>;
type MoveToActive = RedisQueueBackend['moveToActive'];

export class JobFetcher {
  readonly #deps: JobFetcherDeps;
  readonly #holding = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  readonly #marker: MarkerWait;
  #backend: RedisQueueBackend | undefined;
  #closed = false;
  /** A job is due later, or others wait: this worker is to ask again. */
  #awaitsDue = false;

  constructor(deps: JobFetcherDeps) {
    this.#deps = deps;
    this.#marker = new MarkerWait(deps.skipWorker, () => !this.#closed && deps.slots.free > 0);
  }

  /** The backend of BullMQ's worker, with our own `moveToActive` and `waitForJob`. */
  readonly backend: BackendFactory<RedisQueueBackend> = (name, options, connections) => {
    const backend = createRedisBackend(name, options, connections);
    this.#backend = backend;
    const moveToActive: MoveToActive = (lockToken) => this.#take(lockToken);
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = (blockSeconds) => {
      const seconds = Math.min(blockSeconds, this.#deps.lookEveryMs / 1_000);
      return this.#marker.wait(seconds, () => wait(seconds));
    };
    return Object.assign(backend, { moveToActive, waitForJob });
  };

  /** Jobs were dispatched to this worker. An empty list says that it may listen now: it asks, to report its capacity. */
  dispatched(jobs: readonly DispatchedJobs[]): void {
    const { slots } = this.#deps;
    for (const taken of jobs.filter(isAnswer)) {
      const { lockToken, atMs } = taken;
      if (this.#holds(taken)) slots.use(1);
      this.#start(taken, { lockToken, askedAtMs: this.#monotonicAt(atMs) });
    }
    if (jobs.length === 0 && !this.#closed) this.#marker.interrupt();
  }

  /** Asked by BullMQ's worker: takes jobs and runs them. What it gets is no job, and when to ask again. */
  async #take(lockToken: string): Promise<unknown[]> {
    const { dispatch, partition, slots } = this.#deps;
    if (this.#closed) return [];
    if (slots.free < 1) this.#handOver();
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
      if (answers.length === 0) {
        const none = noJob(taken[0]?.job);
        this.#awaitsDue = Number(none[3] ?? 0) > 0;
        return none;
      }
      for (const answer of answers) {
        if (this.#holds(answer)) used += 1;
        this.#start(answer, this.#leased(answer, fetched));
      }
      // The last says whether there is more: now, or when something is due.
      this.#awaitsDue = answers.at(-1)?.job[4] !== 1;
      if (this.#awaitsDue) this.#marker.interrupt();
      return [];
    } finally {
      slots.give(most - used);
      // The marker is for other workers, which need time to get it.
      if (isElsewhere) await sleep(OTHERS_FIRST_MS);
    }
  }

  /** A worker without a free slot does not wait for delayed jobs: a marker lets another worker ask when the next one is due. */
  #handOver(): void {
    if (this.#awaitsDue) this.#deps.skipWorker({ member: '0', score: 0 });
    this.#awaitsDue = false;
  }

  /** `asked`: slots for which jobs are asked for in the same step. */
  #capacity(asked = 0): Capacity {
    const dispatches = this.#closed ? undefined : this.#deps.dispatches();
    return { free: this.#deps.slots.free + asked, ...(dispatches === undefined ? {} : { dispatches }) };
  }

  #fetched(lockToken: string, capacity = () => this.#capacity()): FetchedJob {
    const { workerId, leaseMs, clock } = this.#deps;
    const [token, workers] = [this.#deps.nextToken(), this.#deps.workers()];
    const [timestampMs, askedAtMs] = [clock.now(), clock.monotonic()];
    return { lockToken, timestampMs, askedAtMs, leaseMs, workerId, token, workers, capacity };
  }

  /** A lease runs since it was asked for, or, where Redis was away in between, since Redis gave it. */
  #leased({ begun }: TakenAnswer, { lockToken, askedAtMs }: FetchedJob): Under {
    const { clock, leaseMs } = this.#deps;
    const isLate = clock.monotonic() - askedAtMs > leaseMs * LATE_SHARE;
    if (!isLate || begun?.kind !== 'started') return { lockToken, askedAtMs };
    return { lockToken, askedAtMs: Math.max(askedAtMs, this.#monotonicAt(begun.nowMs)) };
  }

  /** Converts a time on Redis' clock to this process's monotonic clock. */
  #monotonicAt(atMs: number): number {
    const { clock, redisClock } = this.#deps;
    return clock.monotonic() - Math.max(0, redisClock.now() - atMs);
  }

  /** Whether the job keeps a slot from here on. One that came back although it still runs here has its slot already. */
  #holds({ job }: TakenAnswer): boolean {
    const before = this.#holding.size;
    return this.#holding.add(job[1] as string).size > before;
  }

  #start(answer: TakenAnswer, under: Under): void {
    const running = (this.#closed ? this.#putBack(answer, under) : this.#run(answer, under))
      .catch(this.#deps.onError)
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #run(answer: TakenAnswer, under: Under): Promise<void> {
    const { slots, run } = this.#deps;
    const job = jobOf(answer, under);
    let end: JobEnd | undefined;
    let next: (TakenAnswer & { readonly fetched: FetchedJob }) | undefined;
    let holds = false;
    try {
      end = await run(job);
    } finally {
      // The job leaves its slot to the next one of its queue, if no other queue waits for it.
      holds = this.#holding.delete(job.id);
      if (holds && (end === undefined || this.#closed || !slots.mayKeep(this))) {
        slots.give(1);
        holds = false;
      }
    }
    if (end === undefined) return;
    try {
      next = await this.#finish(job, end, holds);
    } finally {
      if (holds && (next === undefined || !this.#holds(next))) slots.give(1);
    }
    if (next !== undefined) this.#start(next, this.#leased(next, next.fetched));
  }

  async #finish(
    job: TakenJob,
    end: JobEnd,
    takeNext: boolean,
  ): Promise<(TakenAnswer & { fetched: FetchedJob }) | undefined> {
    const fetched = this.#fetched(job.lockToken);
    const { returnValue } = end;
    const finishedJob = { id: job.id, returnValue, kept: keptOf(job.raw), takeNext };
    const finished = await end.write(() => this.#deps.dispatch.finish(end.settle, finishedJob, fetched));
    if (finished === undefined || finished.code === 'fenced') return undefined;
    if (finished.refused !== undefined)
      this.#deps.onError(new Error(`BullMQ could not end job ${job.id}: code ${finished.refused}`));
    if (finished.next !== undefined && isAnswer(finished.next)) return finished.next;
    // A job is there that could not be taken in the same command.
    if (!finished.idle) this.#marker.interrupt();
    return undefined;
  }

  /** Puts back a job that came while this worker closes. */
  async #putBack({ job, begun }: TakenAnswer, { lockToken }: Under): Promise<void> {
    const jobId = job[1] as string;
    if (this.#holding.delete(jobId)) this.#deps.slots.give(1);
    if (begun?.kind === 'started')
      await this.#deps.ledger.postpone(callOfJob(jobId).callId, begun.fence, {
        phase: 'unstarted',
        attempts: begun.earlier,
        delayMs: 0,
      });
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

function isAnswer<Found extends Taken>(taken: Found): taken is Found & TakenAnswer {
  return Array.isArray(taken.job) && typeof taken.job[1] === 'string';
}

/** BullMQ's answer for no job says when the next one is due. */
function noJob(answer: Taken['job']): unknown[] {
  return Array.isArray(answer) ? [undefined, undefined, answer[2], answer[3]] : [];
}

function jobOf({ job: raw, token, begun }: TakenAnswer, { lockToken, askedAtMs }: Under): TakenJob {
  const id = raw[1] as string;
  const attempt = begun === undefined ? {} : { attempt: { token, askedAtMs, answer: begun } };
  return { id, name: fieldOf(raw, 'name') ?? '', data: fieldOf(raw, 'data') ?? '', lockToken, raw, ...attempt };
}

function keptOf(raw: unknown[]): number {
  return fieldOf(raw, 'opts') === REMOVED_AT_ONCE ? 0 : KEPT_JOBS;
}

/** Names and values alternate in the list. */
function fieldOf([fields]: unknown[], name: string): string | undefined {
  const list = fields as readonly string[];
  for (let at = 0; at < list.length; at += 2) if (list[at] === name) return list[at + 1];
  return undefined;
}
