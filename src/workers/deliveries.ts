/**
 * The way of jobs between a queue and this worker, in one step each way: jobs are taken together with the start of their attempts,
 * and a success is written together with the end of its job and the next one's beginning. BullMQ's worker keeps the rest: when
 * to take, how many run at a time, locks, stalled jobs. It asks for one job after the other; it gets them from here, where as many
 * as it has free lanes for were taken in one step.
 */
import { type BackendFactory, createRedisBackend, type RedisQueueBackend, raw2NextJobData } from 'bullmq';
import type { BeginAnswer } from '../shared/store/begin.ts';
import type { Delivery, Finished, Taken } from '../shared/store/deliveries.ts';
import type { Place } from '../shared/store/keys.ts';
import type { Ledger } from '../shared/store/ledger.ts';
import { callOfJob } from '../shared/store/queues.ts';
import type { Settle } from '../shared/store/settle.ts';
import type { Clock } from '../shared/time.ts';

export interface DeliveryParts {
  readonly ledger: Pick<Ledger, 'take' | 'finish' | 'postpone'>;
  readonly place: Place;
  readonly workerId: string;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly clock: Clock;
  /** Names an attempt, or several that are taken together. */
  nextToken(): string;
  /** How many jobs more this worker could run now. */
  freeLanes(): number;
  /** How many workers take from the same queue. */
  workers(): number;
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

type Ahead = { readonly taken: Taken & { readonly job: unknown[] }; readonly delivery: Delivery };
type MoveToActive = RedisQueueBackend['moveToActive'];
type MoveToCompleted = RedisQueueBackend['moveToCompleted'];
type MoveToFailed = RedisQueueBackend['moveToFailed'];

export class Deliveries {
  readonly #parts: DeliveryParts;
  readonly #taken = new Map<string, TakenJob>();
  readonly #endings = new Map<string, Ending>();
  /** Taken, and not asked for yet: BullMQ's worker asks again in the same turn. */
  readonly #ahead: Ahead[] = [];
  #backend: RedisQueueBackend | undefined;
  #closed = false;
  /**
   * There is no need to ask again: nothing was left when the last job was taken, or several were taken and may run first. Whatever
   * is there or came since has left its marker: waiting finds it.
   */
  #enough = false;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** What BullMQ's worker runs on: its own backend, with these two ways replaced. */
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
        takeNext: takeNext && backend.closing === undefined,
        lockToken,
      });
    };
    const moveToFailed: MoveToFailed = (job, reason, kept, laneToken, _takeNext, ...rest) =>
      ownFailed(job, reason, kept, lockTokenOf(job) ?? laneToken, false, ...rest);
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = async (blockSeconds) => {
      try {
        return await wait(blockSeconds);
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

  #delivery(lockToken: string): Delivery {
    const { workerId, leaseMs, clock } = this.#parts;
    const [token, workers] = [this.#parts.nextToken(), this.#parts.workers()];
    return { lockToken, timestampMs: clock.now(), askedAtMs: clock.monotonic(), leaseMs, workerId, token, workers };
  }

  async #take(lockToken: string): Promise<unknown[]> {
    const ahead = this.#ahead.shift();
    if (ahead !== undefined) return this.#next(ahead.taken, ahead.delivery);
    if (this.#closed) return [];
    if (this.#enough) {
      this.#enough = false;
      return [];
    }
    const delivery = this.#delivery(lockToken);
    const { ledger, place, freeLanes } = this.#parts;
    const most = Math.min(MAX_TAKEN, Math.max(1, freeLanes()));
    const [first, ...others] = await ledger.take(place, delivery, most);
    for (const taken of others) if (isJob(taken)) this.#ahead.push({ taken, delivery });
    if (first === undefined || !isJob(first)) return [];
    if (!this.#closed) return this.#next(first, delivery);
    this.#ahead.push({ taken: first, delivery });
    await this.#putBack();
    return [];
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
    const finished = await ending.write(() => this.#parts.ledger.finish(ending.settle, job, delivery));
    const { timestampMs: finishedOn } = delivery;
    if (finished === undefined || finished.code === 'fenced') return { result: undefined, finishedOn };
    const { refused, next, idle } = finished;
    if (refused !== undefined)
      throw backend.finishedErrors({ code: refused, jobId: job.id, command: 'moveToFinished', state: 'active' });
    if (next !== undefined && isJob(next)) return { result: this.#next(next, next.delivery), finishedOn };
    if (idle) this.#enough = true;
    return { result: [], finishedOn };
  }

  /** A job as BullMQ's worker wants it. */
  #next({ job, begun, token }: Ahead['taken'], { lockToken, askedAtMs }: Delivery): unknown[] {
    this.#enough = job[4] === 1;
    this.#taken.set(job[1] as string, {
      lockToken,
      ...(begun === undefined ? {} : { attempt: { token, askedAtMs, answer: begun } }),
    });
    return raw2NextJobData(job);
  }
}

function isJob<Answer extends Taken>(taken: Answer): taken is Answer & Ahead['taken'] {
  return Array.isArray(taken.job);
}

/** BullMQ's worker names a token of its own for a job that was taken together with others (`worker.ts` puts that right). */
function lockTokenOf(job: object): string | undefined {
  return (job as { readonly token?: string }).token;
}
