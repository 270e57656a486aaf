/** Fetches jobs and starts their attempts in one script; settles calls, ends their jobs and fetches the next ones in another. */
import { type BeginResult, beginResult } from '../calls/begin-attempt.ts';
import { ADD_RECORDS_LUA, type LedgerAccess, PARTITION_LUA } from '../calls/ledger-context.ts';
import {
  type PreparedSettle,
  prepareSettle,
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

export interface FetchRequest {
  readonly lockToken: string;
  /** The worker's own clock: BullMQ's answer about the next due job is converted to it. */
  readonly timestampMs: number;
  /** When the worker sent the request, on its monotonic clock: locks and leases run from then on. */
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
  /** Free slots, including those that this request may fill. */
  readonly free: number;
  /** The worker's name for direct dispatch (`direct-dispatch.ts`), and how many jobs have arrived there. Absent: no dispatch. */
  readonly dispatches?: { readonly name: string; readonly received: number };
}

/** In place of a job: all waiting jobs are left to other workers (`skipWorker`). */
export const LEFT_TO_OTHERS = 'elsewhere';

/** A fetched job in the form of BullMQ's scripts, or BullMQ's code for none. */
export interface FetchedJob {
  readonly job: unknown[] | number | typeof LEFT_TO_OTHERS | undefined;
  readonly token: string;
  /** Absent when the attempt must be started separately (`beginAttempt`). */
  readonly beginResult?: BeginResult;
}

interface FinishedJob {
  readonly id: string;
  /** JSON. */
  readonly returnValue: string;
  /** How many finished jobs the queue keeps, 0 for none. */
  readonly keptJobs: number;
  readonly fetchNext: boolean;
}

/** The result of ending a call, and the job that was fetched for its slot, if any. */
export interface FinishResult {
  readonly code: WriteAnswer;
  /** BullMQ's code when it could not end the job, such as -2 for a lost lock. */
  readonly refused?: number;
  readonly next?: FetchedJob & { readonly fetched: FetchRequest };
  /** No job waits, and none becomes due soon: a new job will set BullMQ's marker. */
  readonly idle: boolean;
}

/** Calls that one script run settles. More would share its cost, but keep Redis from its other clients. */
const MAX_ENDINGS = 64;
/** The same while jobs wait for slots, so that a worker runs some jobs while Redis ends others. */
const MAX_ENDINGS_IN_BACKLOG = 32;

/** How long a worker is skipped for a need. Then such calls are offered to it again, and end if no compatible worker is alive. */
const SKIPPED_TTL_MS = 15_000;

const NEXT_JOBS_LUA = [
  luaFunction(new URL('../queues/next-fair.lua', import.meta.url)),
  luaFunction(new URL('../queues/enqueue-fair.lua', import.meta.url)),
  luaFunction(new URL('../queues/start-due.lua', import.meta.url)),
  luaFunction(new URL('../queues/fetch-jobs.lua', import.meta.url)),
  luaFunction(new URL('../calls/begin-attempt.lua', import.meta.url)),
  luaFunction(new URL('./begin-fetched.lua', import.meta.url)),
];
const fetchScript = new Script(new URL('../queues/fetch-and-begin.lua', import.meta.url), [
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
  ADD_RECORDS_LUA,
  ...SETTLE_LUA,
  luaFunction(new URL('../calls/settle.lua', import.meta.url)),
  JOBS_LUA,
  ...NEXT_JOBS_LUA,
  luaFunction(new URL('../queues/complete-job.lua', import.meta.url)),
  MOVE_LUA.toFinished,
]);

/** The need of a call that these workers must not run. */
export function needExcept(workers: readonly string[]): string {
  return `except ${workers.toSorted().join(' ')} `;
}

interface SkippedWorker {
  readonly jobId: string;
  readonly lockToken: string;
  readonly session: string;
  /** The need of the call that this worker does not support. */
  readonly need: string;
  readonly workerId: string;
  /** IDs of the workers that should get it. */
  readonly others: readonly string[];
}

interface CallEnding {
  readonly settle: PreparedSettle;
  readonly job: FinishedJob;
  readonly request: FetchRequest;
}

/** Fetches jobs for a worker, and settles calls together with their jobs. Calls of a partition that end together share one script run. */
export class JobDispatch {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<CallEnding, FinishResult>(MAX_ENDINGS, (keys, batch) =>
    this.#finishBatch(keys, batch),
  );

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /**
   * Fetches up to `maxJobs` of a partition's jobs, and starts their attempts unless a lost answer could do harm (`once`). The last element
   * may be BullMQ's code for none.
   */
  async fetch(partition: Partition, request: FetchRequest, maxJobs = 1): Promise<FetchedJob[]> {
    const access = this.#access;
    const args = [...fetchArguments(request), maxJobs];
    const answers = await fetchScript.run(access.redis, fetchKeys(access, access.keys(partition)), args);
    return parseFetchedJobs(access, request, answers);
  }

  /** Leaves a job to compatible workers; false when none of `others` is compatible, and the job stays with this worker. */
  async skipWorker(partition: Partition, skipped: SkippedWorker): Promise<boolean> {
    const { jobId, lockToken, session, need, workerId, others } = skipped;
    const args = [jobId, lockToken, need, workerId, SKIPPED_TTL_MS, session, ...others];
    const moved = await skipWorkerScript.run(this.#access.redis, [this.#access.keys(partition).job('')], args);
    return Number(moved) === 1;
  }

  /** Settles a call, ends its job and fetches the next job for its slot, in one script. */
  finish(settle: Settle, job: FinishedJob, request: FetchRequest): Promise<FinishResult> {
    const preparation = prepareSettle(this.#access, settle);
    if (preparation instanceof Promise)
      return preparation.then((prepared) => this.#add({ settle: prepared, job, request }));
    return this.#add({ settle: preparation, job, request });
  }

  #add(ending: CallEnding): Promise<FinishResult> {
    return this.#batches.add(this.#access.callKeys(ending.settle.callId), ending);
  }

  async #finishBatch(keys: PartitionKeys, batch: readonly CallEnding[]): Promise<(FinishResult | Error)[]> {
    const access = this.#access;
    const [{ request }] = batch as readonly [CallEnding, ...CallEnding[]];
    const args = [...fetchArguments(request), batch.length];
    for (const { settle, job, request: ownRequest } of batch) {
      args.push(job.id, ownRequest.lockToken, job.returnValue, job.keptJobs, job.fetchNext ? '1' : '0');
      args.push(...settleArguments(access, settle));
    }
    const othersFirst = batch.length === 1;
    const { answers: results } = await access.runWithRecords(finishScript, fetchKeys(access, keys), args, othersFirst);
    const [endings, waiting, ...answers] = results as [(string | [string, number | string])[], string, ...unknown[]];
    const nextJobs = parseFetchedJobs(access, request, answers);
    this.#batches.forPartition(keys).maxItems = waiting === 'more' ? MAX_ENDINGS_IN_BACKLOG : MAX_ENDINGS;
    return endings.map((ending, index) => {
      const [code, refused] = typeof ending === 'string' ? [ending] : ending;
      if (code === 'error')
        return backendError(new Error(String(refused)), `a key of the call ${batch[index]?.settle.callId}`) as Error;
      const freesSlot = batch[index]?.job.fetchNext === true && refused === undefined && code !== 'fenced';
      const next = freesSlot ? nextJobs.shift() : undefined;
      return {
        code: code as WriteAnswer,
        idle: waiting === 'none',
        ...(typeof refused === 'number' ? { refused } : {}),
        ...(next !== undefined && { next: { ...next, fetched: request } }),
      };
    });
  }
}

function fetchKeys(access: LedgerAccess, keys: PartitionKeys): string[] {
  return [...access.bases(keys), keys.job('')];
}

function fetchArguments(request: FetchRequest): (string | number)[] {
  const { lockToken, timestampMs, leaseMs, workerId, token, workers } = request;
  const { free, dispatches } = request.capacity();
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

function parseFetchedJobs(access: LedgerAccess, { token }: FetchRequest, answers: readonly unknown[]): FetchedJob[] {
  const jobs: FetchedJob[] = [];
  for (let index = 0; index < answers.length; index += 2)
    jobs.push({ ...parseFetchedJob(access, answers[index], answers[index + 1]), token: `${token}.${index / 2 + 1}` });
  return jobs;
}

/** Parses a job as a script returns it, and the answer of `begin-attempt.lua`. */
export function parseFetchedJob(access: LedgerAccess, job: unknown, answer: unknown): Omit<FetchedJob, 'token'> {
  if (!Array.isArray(job)) return { job: job as Exclude<FetchedJob['job'], unknown[]> };
  if (!Array.isArray(answer) || answer[0] === 'apart') return { job };
  return { job, beginResult: beginResult(access, callOfJob(job[1] as string), answer) };
}
