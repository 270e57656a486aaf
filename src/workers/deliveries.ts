/**
 * The way of jobs between a queue and this worker, in one step each way: jobs are taken together with the start of their attempts,
 * and a success is written together with the end of its job and the next one's beginning. A worker with free slots is pushed new
 * jobs, and takes what had to stand in line. BullMQ's worker keeps the rest: when to take, how many run at a time, locks, stalled
 * jobs. It asks for one job after the other; it gets them from here, where several may have come in one step.
 */
import { type BackendFactory, createRedisBackend, type RedisQueueBackend, raw2NextJobData } from 'bullmq';
import type { BeginAnswer } from '../shared/store/begin.ts';
import type { Delivery, Finished, Lanes, Taken } from '../shared/store/deliveries.ts';
import type { Place } from '../shared/store/keys.ts';
import type { Ledger } from '../shared/store/ledger.ts';
import type { Pushed } from '../shared/store/pushes.ts';
import { callOfJob } from '../shared/store/queues.ts';
import type { Settle } from '../shared/store/settle.ts';
import type { Clock } from '../shared/time.ts';
import { type Marker, MarkerWait } from './marker-wait.ts';
import type { Slots } from './slots.ts';

export interface DeliveryParts {
  readonly ledger: Pick<Ledger, 'take' | 'finish' | 'postpone'>;
  readonly place: Place;
  readonly workerId: string;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly redisClock: Pick<Clock, 'now'>;
  /** Names an attempt, or several that are taken together. */
  nextToken(): string;
  /** How many jobs more of this queue this worker could run now, its slots aside. */
  freeLanes(): number;
  /** Of the tier: each job that was taken holds one until it ends. */
  readonly slots: Slots;
  /** How many workers take from the same queue. */
  workers(): number;
  /** How jobs are pushed here. None are while other queues share the slots. */
  pushes(): Lanes['pushes'];
  /** Gives a marker that nobody here waits for, or has a slot for, to another worker. */
  passOn(marker: NonNullable<Marker>): void;
}

/** A job as it was taken. */
export interface TakenJob {
  readonly lockToken: string;
  /** Its attempt, when that was started in the same step. */
  readonly attempt?: TakenAttempt;
}

export interface TakenAttempt {
  readonly token: string;
  /** When the job was asked for, on this process's monotonic clock: the lease runs since then. */
  readonly askedAtMs: number;
  readonly answer: BeginAnswer;
}

/** So many jobs are taken in one step at most: Redis has others to serve, and other workers may come. */
const MAX_TAKEN = 16;

/** A call's outcome, to be written when its job ends. */
export interface Ending {
  readonly settle: Settle;
  /** Runs the write as often as it takes; undefined when the lease is lost. */
  write(attempt: () => Promise<Finished>): Promise<Finished | undefined>;
}

type Answer = Taken & { readonly job: unknown[] };
type Ahead = { readonly taken: Answer; readonly delivery: Pick<Delivery, 'lockToken' | 'askedAtMs'> };
type MoveToActive = RedisQueueBackend['moveToActive'];
type MoveToCompleted = RedisQueueBackend['moveToCompleted'];
type MoveToFailed = RedisQueueBackend['moveToFailed'];

export class Deliveries {
  readonly #parts: DeliveryParts;
  readonly #taken = new Map<string, TakenJob>();
  readonly #endings = new Map<string, Ending>();
  /** Here, and not asked for yet: BullMQ's worker asks again in the same turn. */
  readonly #ahead: Ahead[] = [];
  /** Jobs with a slot. */
  readonly #holding = new Set<string>();
  readonly #marker: MarkerWait;
  #backend: RedisQueueBackend | undefined;
  #closed = false;
  /**
   * There is no need to ask again: nothing was left when the last job was taken, or several were taken and may run first. Whatever
   * is there or came since has left its marker: waiting finds it.
   */
  #enough = false;
  /** BullMQ's worker has waited for this question, and goes on meanwhile with whatever else there is. */
  #waited = false;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
    this.#marker = new MarkerWait(parts.passOn, () => !this.#closed && parts.slots.free > 0);
  }

  /** What BullMQ's worker runs on: its own backend, with our ways of taking, ending and waiting. */
  readonly backend: BackendFactory<RedisQueueBackend> = (name, options, connections) => {
    const backend = createRedisBackend(name, options, connections);
    this.#backend = backend;
    const own: MoveToCompleted = backend.moveToCompleted.bind(backend);
    const ownFailed: MoveToFailed = backend.moveToFailed.bind(backend);
    const moveToActive: MoveToActive = (lockToken) => this.#take(lockToken);
    // BullMQ's text would take the next job by its own rule, under a lock that the lane does not know: the worker asks for it instead.
    const moveToCompleted: MoveToCompleted = (job, returnValue, kept, laneToken, takeNext) => {
      const lockToken = lockTokenOf(job) ?? laneToken;
      const ending = this.#endings.get(job.id ?? '');
      if (ending === undefined) return own(job, returnValue, kept, lockToken, false);
      this.#endings.delete(job.id ?? '');
      return this.#finish(backend, ending, {
        id: job.id ?? '',
        returnValue: JSON.stringify(returnValue),
        kept: typeof kept === 'object' ? (kept.count ?? 0) : 0,
        takeNext: takeNext && backend.closing === undefined && this.#parts.slots.takeNow(1) === 1,
        lockToken,
      });
    };
    const moveToFailed: MoveToFailed = (job, reason, kept, laneToken, _takeNext, ...rest) => {
      // BullMQ fails some jobs by itself, without having them run.
      this.ended(job.id ?? '');
      return ownFailed(job, reason, kept, lockTokenOf(job) ?? laneToken, false, ...rest);
    };
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = async (blockSeconds) => {
      try {
        const waiting = this.#marker.wait(blockSeconds, () => wait(blockSeconds));
        if (this.#ahead.length > 0) this.#marker.wake();
        const marker = await waiting;
        this.#waited = true;
        return marker;
      } finally {
        // The marker is gone now: only asking tells what it stood for, whatever was said while this waited.
        this.#enough = false;
      }
    };
    return Object.assign(backend, { moveToActive, moveToCompleted, moveToFailed, waitForJob });
  };

  /** How a job was taken, once. */
  taken(jobId: string): TakenJob | undefined {
    const taken = this.#taken.get(jobId);
    this.#taken.delete(jobId);
    return taken;
  }

  /** Has the outcome written when BullMQ's worker ends the job. */
  endWith(jobId: string, ending: Ending): void {
    this.#endings.set(jobId, ending);
  }

  /** Jobs were pushed to this worker. With none, it listens from now on: it asks, to say what it has room for. */
  pushed(jobs: readonly Pushed[]): void {
    const { clock, redisClock, slots } = this.#parts;
    for (const taken of jobs.filter(isAnswer)) {
      const { lockToken, atMs } = taken;
      const askedAtMs = clock.monotonic() - Math.max(0, redisClock.now() - atMs);
      this.#ahead.push({ taken, delivery: { lockToken, askedAtMs } });
      if (this.#holds(taken)) slots.use(1);
    }
    // What comes while this closes is put back at its end.
    if (this.#closed) return;
    if (jobs.length > 0) this.#marker.wake();
    else this.#marker.wakeNow();
  }

  /** `asked`: slots for which jobs are asked for in the same step. */
  #lanes(asked = 0): Lanes {
    const pushes = this.#closed ? undefined : this.#parts.pushes();
    return { free: this.#parts.slots.free + asked, ...(pushes === undefined ? {} : { pushes }) };
  }

  #delivery(lockToken: string, lanes = () => this.#lanes()): Delivery {
    const { workerId, leaseMs, clock } = this.#parts;
    const [token, workers] = [this.#parts.nextToken(), this.#parts.workers()];
    const [timestampMs, askedAtMs] = [clock.now(), clock.monotonic()];
    return { lockToken, timestampMs, askedAtMs, leaseMs, workerId, token, workers, lanes };
  }

  async #take(lockToken: string): Promise<unknown[]> {
    const waited = this.#waited;
    this.#waited = false;
    const ahead = this.#ahead.shift();
    if (ahead !== undefined) return this.#next(ahead.taken, ahead.delivery);
    if (this.#closed) return [];
    if (this.#enough) {
      this.#enough = false;
      return [];
    }
    const { ledger, place, freeLanes, slots } = this.#parts;
    // BullMQ's worker starts nothing that it has until this is answered: it comes back for the next job, and waits for its slot then.
    if (!waited && slots.free < 1) {
      this.#marker.wakeNow();
      return [];
    }
    await slots.take();
    const most = 1 + slots.takeNow(Math.min(MAX_TAKEN, Math.max(1, freeLanes())) - 1);
    let used = 0;
    try {
      const delivery = this.#delivery(lockToken, () => this.#lanes(most));
      const taken = this.#closed ? [] : await ledger.take(place, delivery, most);
      for (const answer of taken.filter(isAnswer)) {
        this.#ahead.push({ taken: answer, delivery });
        if (this.#holds(answer)) used += 1;
      }
    } finally {
      slots.give(most - used);
    }
    if (this.#closed) await this.#putBack();
    const first = this.#ahead.shift();
    return first === undefined ? [] : this.#next(first.taken, first.delivery);
  }

  /** Whether it is a job, which keeps a slot from here on; BullMQ may also say when the next one is due. */
  #holds({ job }: Answer): boolean {
    const [, jobId] = job;
    // One that came back although it still runs here has its slot already.
    if (typeof jobId !== 'string' || this.#holding.has(jobId)) return false;
    this.#holding.add(jobId);
    return true;
  }

  /** The job has ended here, or went elsewhere: another may have its slot. */
  ended(jobId: string): void {
    if (this.#holding.delete(jobId)) this.#parts.slots.give(1);
  }

  /** Takes no further jobs, and puts back those that nobody has asked for yet. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#putBack();
  }

  async #putBack(): Promise<void> {
    for (const { taken, delivery } of this.#ahead.splice(0)) {
      const { job, begun } = taken;
      const jobId = job[1] as string;
      this.ended(jobId);
      if (begun?.kind === 'started')
        await this.#parts.ledger.postpone(callOfJob(jobId).callId, begun.fence, 'unstarted', begun.earlier, 0);
      await this.#backend?.moveJobFromActiveToWait(jobId, delivery.lockToken);
    }
  }

  async #finish(
    backend: RedisQueueBackend,
    ending: Ending,
    job: {
      readonly id: string;
      readonly returnValue: string;
      readonly kept: number;
      readonly takeNext: boolean;
      readonly lockToken: string;
    },
  ): ReturnType<MoveToCompleted> {
    const delivery = this.#delivery(job.lockToken);
    const { timestampMs: finishedOn } = delivery;
    let next: (Answer & { readonly delivery: Delivery }) | undefined;
    let holds = false;
    try {
      const finished = await ending.write(() => this.#parts.ledger.finish(ending.settle, job, delivery));
      if (finished === undefined || finished.code === 'fenced') return { result: undefined, finishedOn };
      if (finished.refused !== undefined)
        throw backend.finishedErrors({
          code: finished.refused,
          jobId: job.id,
          command: 'moveToFinished',
          state: 'active',
        });
      if (finished.next !== undefined && isAnswer(finished.next)) next = finished.next;
      else if (finished.idle) this.#enough = true;
      // BullMQ's worker would wait for a marker, and that of a delayed job may be gone: only asking tells when it is due.
      else this.#marker.wakeNow();
      holds = next !== undefined && this.#holds(next);
    } finally {
      if (job.takeNext && !holds) this.#parts.slots.give(1);
    }
    return { result: next === undefined ? [] : this.#next(next, next.delivery), finishedOn };
  }

  /** A job as BullMQ's worker wants it. */
  #next({ job, begun, token }: Answer, { lockToken, askedAtMs }: Ahead['delivery']): unknown[] {
    this.#enough = job[4] === 1;
    this.#taken.set(job[1] as string, {
      lockToken,
      ...(begun === undefined ? {} : { attempt: { token, askedAtMs, answer: begun } }),
    });
    return raw2NextJobData(job);
  }
}

function isAnswer<Found extends Taken>(taken: Found): taken is Found & Answer {
  return Array.isArray(taken.job);
}

/** BullMQ's worker names a token of its own for a job that was taken together with others (`worker.ts` puts that right). */
function lockTokenOf(job: object): string | undefined {
  return (job as { readonly token?: string }).token;
}
