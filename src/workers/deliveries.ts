/**
 * The way of jobs between a queue and this worker, in one step each way: a job is taken together with the start of its attempt,
 * and a success is written together with the end of its job and the next one's beginning. BullMQ's worker keeps the rest: when
 * to take, how many at a time, locks, stalled jobs.
 */
import { type BackendFactory, createRedisBackend, type RedisQueueBackend, raw2NextJobData } from 'bullmq';
import type { Place } from '../shared/store/keys.ts';
import type { BeginAnswer, Delivery, Finished, Ledger, Settle, Taken } from '../shared/store/ledger.ts';
import type { Clock } from '../shared/time.ts';

export interface DeliveryParts {
  readonly ledger: Pick<Ledger, 'take' | 'finish'>;
  readonly place: Place;
  readonly workerId: string;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly clock: Clock;
  /** Names an attempt. */
  nextToken(): string;
}

/** A job's attempt that was started when the job was taken. */
export interface TakenAttempt {
  readonly token: string;
  /** When the job was asked for, on this process's monotonic clock: the lease runs since then. */
  readonly askedAtMs: number;
  readonly answer: BeginAnswer;
}

/** A call's outcome, to be written when its job ends. */
export interface Ending {
  readonly settle: Settle;
  /** Runs the write as often as it takes; undefined when the lease is lost. */
  write(attempt: () => Promise<Finished>): Promise<Finished | undefined>;
}

type Asked = Delivery & { readonly askedAtMs: number };
type MoveToActive = RedisQueueBackend['moveToActive'];
type MoveToCompleted = RedisQueueBackend['moveToCompleted'];

export class Deliveries {
  readonly #parts: DeliveryParts;
  readonly #taken = new Map<string, TakenAttempt>();
  readonly #endings = new Map<string, Ending>();
  /** Nothing was left when the last job was taken, and whatever came since has left its marker: waiting finds it. */
  #exhausted = false;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** What BullMQ's worker runs on: its own backend, with these two ways replaced. */
  readonly backend: BackendFactory<RedisQueueBackend> = (name, options, connections) => {
    const backend = createRedisBackend(name, options, connections);
    const own: MoveToCompleted = backend.moveToCompleted.bind(backend);
    const moveToActive: MoveToActive = (lockToken) => this.#take(lockToken);
    const moveToCompleted: MoveToCompleted = (job, returnValue, kept, lockToken, takeNext) => {
      const ending = this.#endings.get(job.id ?? '');
      if (ending === undefined) return own(job, returnValue, kept, lockToken, takeNext);
      this.#endings.delete(job.id ?? '');
      return this.#finish(backend, ending, {
        id: job.id ?? '',
        returnValue: JSON.stringify(returnValue),
        kept: typeof kept === 'object' ? (kept.count ?? 0) : 0,
        takeNext: takeNext && backend.closing === undefined,
        lockToken,
      });
    };
    const wait = backend.waitForJob.bind(backend);
    const waitForJob: RedisQueueBackend['waitForJob'] = (blockSeconds) => {
      // The marker is gone then: only asking tells what it stood for.
      this.#exhausted = false;
      return wait(blockSeconds);
    };
    return Object.assign(backend, { moveToActive, moveToCompleted, waitForJob });
  };

  /** The attempt that was started with a job, once. */
  begun(jobId: string): TakenAttempt | undefined {
    const taken = this.#taken.get(jobId);
    this.#taken.delete(jobId);
    return taken;
  }

  /** Has the outcome written when BullMQ's worker ends the job. */
  endWith(jobId: string, ending: Ending): void {
    this.#endings.set(jobId, ending);
  }

  #delivery(lockToken: string): Asked {
    const { workerId, leaseMs, clock } = this.#parts;
    const token = this.#parts.nextToken();
    return { lockToken, timestampMs: clock.now(), askedAtMs: clock.monotonic(), leaseMs, workerId, token };
  }

  async #take(lockToken: string): Promise<unknown[]> {
    if (this.#exhausted) {
      this.#exhausted = false;
      return [];
    }
    const delivery = this.#delivery(lockToken);
    return this.#next(await this.#parts.ledger.take(this.#parts.place, delivery), delivery) ?? [];
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
    if (typeof finished?.job === 'number' && finished.job < 0)
      throw backend.finishedErrors({ code: finished.job, jobId: job.id, command: 'moveToFinished', state: 'active' });
    const result = finished === undefined ? undefined : this.#next(finished, delivery);
    return { result, finishedOn: delivery.timestampMs };
  }

  /** The next job as BullMQ's worker wants it. */
  #next({ job, begun }: Taken, { token, askedAtMs }: Asked): unknown[] | undefined {
    if (job === undefined) return undefined;
    if (!Array.isArray(job)) return [];
    this.#exhausted = job[4] === 1;
    if (begun !== undefined) this.#taken.set(job[1] as string, { token, askedAtMs, answer: begun });
    return raw2NextJobData(job);
  }
}
