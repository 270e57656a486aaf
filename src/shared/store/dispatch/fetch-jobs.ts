/** Fetching jobs from a queue and starting their attempts in one step, and ending calls with their jobs while fetching the next ones. */

import { type BeginResult, beginResult } from '../calls/begin-attempt.ts';
import { CARRY_LUA, type LedgerAccess, PARTITION_LUA } from '../calls/ledger-context.ts';
import {
  type ReadySettle,
  readySettle,
  SETTLE_LUA,
  type Settle,
  settleArguments,
  type WriteAnswer,
} from '../calls/settle.ts';
import { callOfJob, ENQUEUE_LUA, JOBS_LUA, MOVE_LUA, PUSH_LUA } from '../queues/jobs.ts';
import { backendError } from '../redis/backend-error.ts';
import { PartitionBatches } from '../redis/batching.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { luaFunction, Script } from '../redis/script.ts';

export interface FetchedJob {
  readonly lockToken: string;
  /** The worker's own clock, for BullMQ's answers about the future. */
  readonly timestampMs: number;
  /** When the worker asked, on its monotonic clock: locks and leases run since then. */
  readonly requestedAtMs: number;
  readonly leaseMs: number;
  readonly workerId: string;
  /** The prefix of the tokens of the started attempts: the number of each is appended. */
  readonly token: string;
  /** How many workers fetch from this queue: each takes at most its share of the waiting jobs. */
  readonly workers: number;
  /** The capacity of the worker at the time of sending. */
  capacity(): Capacity;
}

export interface Capacity {
  /** The free slots, those that this request may fill included. */
  readonly free: number;
  /** The name under which jobs may be dispatched to it (`direct-dispatch.ts`), and how many have arrived. Absent: no dispatch. */
  readonly dispatches?: { readonly name: string; readonly received: number };
}

/** In the place of a job: all that waits is left to other workers (`skipWorkerForJob`). */
export const ELSEWHERE = 'elsewhere';

/** A job that has been taken, as BullMQ's scripts answer it, or BullMQ's code for none. */
export interface Taken {
  readonly job: unknown[] | number | typeof ELSEWHERE | undefined;
  readonly token: string;
  /** Absent when the attempt is to be started by itself. */
  readonly begun?: BeginResult;
}

export interface FinishedJob {
  readonly id: string;
  /** JSON. */
  readonly returnValue: string;
  /** How many finished jobs the queue keeps, 0 for none. */
  readonly kept: number;
  readonly takeNext: boolean;
}

/** The result of ending a call, and the job that was fetched for its slot, if any. */
export interface Finished {
  readonly code: WriteAnswer;
  /** BullMQ's code when it could not end the job, such as -2 for a lost lock. */
  readonly refused?: number;
  readonly next?: Taken & { readonly fetched: FetchedJob };
  /** No job was waiting, and none becomes due by itself: any job that comes sets a marker. */
  readonly idle: boolean;
}

/**
 * The number of endings in one step. A producer that receives several results continues several calls at once; Redis has other clients to
 * serve.
 */
const MAX_ENDINGS = 64;
/** The limit while jobs wait for slots: a worker runs some jobs while Redis ends others. */
const MAX_ENDINGS_IN_BACKLOG = 32;

/** How long Redis remembers which worker lacks what. Then the calls are offered again, and end if no compatible worker is alive. */
const LACKED_MS = 15_000;

const NEXT_JOBS_LUA = [
  luaFunction(new URL('../queues/next-fair.lua', import.meta.url)),
  luaFunction(new URL('../queues/enqueue-fair.lua', import.meta.url)),
  luaFunction(new URL('../queues/start-due.lua', import.meta.url)),
  luaFunction(new URL('../queues/fetch-jobs.lua', import.meta.url)),
  luaFunction(new URL('../calls/begin-attempt.lua', import.meta.url)),
  luaFunction(new URL('./begin-fetched.lua', import.meta.url)),
];
const takeScript = new Script(new URL('../queues/fetch-and-begin.lua', import.meta.url), [
  PARTITION_LUA,
  JOBS_LUA,
  ...NEXT_JOBS_LUA,
  MOVE_LUA.toActive,
]);
const skipWorkerScript = new Script(new URL('../queues/skip-worker.lua', import.meta.url), [
  ...ENQUEUE_LUA,
  ...PUSH_LUA,
]);
const finishScript = new Script(new URL('./settle-and-fetch.lua', import.meta.url), [
  CARRY_LUA,
  ...SETTLE_LUA,
  JOBS_LUA,
  ...NEXT_JOBS_LUA,
  luaFunction(new URL('../calls/settle.lua', import.meta.url)),
  luaFunction(new URL('../queues/complete-job.lua', import.meta.url)),
  MOVE_LUA.toFinished,
]);

/** The need of a call that these workers must not run. */
export function needExcept(workers: readonly string[]): string {
  return `except ${workers.toSorted().join(' ')} `;
}

/** A job that its worker leaves to others. */
export interface SkippedWorker {
  readonly jobId: string;
  readonly lockToken: string;
  readonly session: string;
  /** The feature that its call needs and this worker lacks. */
  readonly need: string;
  readonly workerId: string;
  /** IDs of the workers that should get it. */
  readonly others: readonly string[];
}

interface FinishedCall {
  readonly settle: ReadySettle;
  readonly job: FinishedJob;
  readonly fetched: FetchedJob;
}

/** Gives jobs to a worker, and ends calls together with their jobs: calls of one partition that end at the same time share one step. */
export class JobDispatch {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<FinishedCall, Finished>(MAX_ENDINGS, (keys, all) => this.#finish(keys, all));

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /**
   * Takes the next jobs of a partition's queue, at most `most` and at least one if there is any, and starts their attempts where a lost
   * answer can do no harm. The last answer may be BullMQ's code for none.
   */
  async take(partition: Partition, fetched: FetchedJob, most = 1): Promise<Taken[]> {
    const access = this.#access;
    const args = [...takeArguments(fetched), most];
    const answers = await takeScript.run(access.redis, takeKeys(access, access.keys(partition)), args);
    return takenOf(access, fetched, answers);
  }

  /** Leaves a job to workers that meet its call's needs; false when none of them is alive, so that the job stays where it is. */
  async skipWorker(partition: Partition, skipped: SkippedWorker): Promise<boolean> {
    const { jobId, lockToken, session, need, workerId, others } = skipped;
    const args = [jobId, lockToken, need, workerId, LACKED_MS, session, ...others];
    const moved = await skipWorkerScript.run(this.#access.redis, [this.#access.keys(partition).job('')], args);
    return Number(moved) === 1;
  }

  /** Ends a call together with its job, and takes the next job for its slot. Calls that end together take jobs as one worker. */
  finish(settle: Settle, job: FinishedJob, fetched: FetchedJob): Promise<Finished> {
    const ready = readySettle(this.#access, settle);
    if (ready instanceof Promise) return ready.then((made) => this.#add({ settle: made, job, fetched }));
    return this.#add({ settle: ready, job, fetched });
  }

  #add(ended: FinishedCall): Promise<Finished> {
    return this.#batches.add(this.#access.placed(ended.settle.callId), ended);
  }

  async #finish(keys: PartitionKeys, ended: readonly FinishedCall[]): Promise<(Finished | Error)[]> {
    const access = this.#access;
    const fetched = ended[0]?.fetched as FetchedJob;
    const args = [...takeArguments(fetched), ended.length];
    for (const { settle, job, fetched: by } of ended) {
      args.push(job.id, by.lockToken, job.returnValue, job.kept, job.takeNext ? '1' : '0');
      args.push(...settleArguments(access, settle));
    }
    const { answers: told } = await access.carry(finishScript, takeKeys(access, keys), args, ended.length);
    const [endings, waiting, ...answers] = told as [[string, number | string, string][], string, ...unknown[]];
    const taken = takenOf(access, fetched, answers);
    this.#batches.of(keys).most = waiting === 'more' ? MAX_ENDINGS_IN_BACKLOG : MAX_ENDINGS;
    return endings.map(([code, refused, free]) => {
      if (code === 'error') return backendError(new Error(String(refused))) as Error;
      const next = free === '1' ? taken.shift() : undefined;
      return {
        code: code as WriteAnswer,
        idle: waiting === 'none',
        ...(typeof refused === 'number' && refused < 0 ? { refused } : {}),
        ...(next === undefined ? {} : { next: { ...next, fetched } }),
      };
    });
  }
}

function takeKeys(access: LedgerAccess, keys: PartitionKeys): string[] {
  return [...access.bases(keys), keys.job('')];
}

function takeArguments(fetched: FetchedJob): (string | number)[] {
  const { lockToken, timestampMs, leaseMs, workerId, token, workers } = fetched;
  const { free, dispatches } = fetched.capacity();
  return [
    lockToken,
    timestampMs,
    leaseMs,
    workerId,
    token,
    workers,
    dispatches?.name ?? '',
    free,
    dispatches?.received ?? 0,
  ];
}

function takenOf(access: LedgerAccess, { token }: FetchedJob, answers: readonly unknown[]): Taken[] {
  const taken: Taken[] = [];
  for (let index = 0; index < answers.length; index += 2)
    taken.push({ ...oneTaken(access, answers[index], answers[index + 1]), token: `${token}.${index / 2 + 1}` });
  return taken;
}

/** A job as a script gives it, and what begin says of its attempt. */
export function oneTaken(access: LedgerAccess, job: unknown, begun: unknown): Omit<Taken, 'token'> {
  if (!Array.isArray(job)) return { job: job as Exclude<Taken['job'], unknown[]> };
  if (!Array.isArray(begun) || begun[0] === 'apart') return { job };
  return { job, begun: beginResult(access, callOfJob(job[1] as string), begun) };
}
