/**
 * Jobs taken from a queue together with the begin of their attempts, and ended together with their calls.
 */
import { type BeginAnswer, beginAnswerOf } from './begin.ts';
import type { Place, PlaceKeys } from './keys.ts';
import type { LedgerAccess } from './ledger-access.ts';
import { callOfJob, KEPT_EVENTS, MOVE_LUA } from './queues.ts';
import { luaFunction, Script } from './redis.ts';
import { type Settle, settleArguments, settleKeys, type WriteAnswer } from './settle.ts';

/** How a worker takes a job. */
export interface Delivery {
  /** Of BullMQ's lock. */
  readonly lockToken: string;
  /** The worker's own clock, for BullMQ's answers about the future. */
  readonly timestampMs: number;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly workerId: string;
  /** Of the attempt, if one is started; of several, each one's number is added. */
  readonly token: string;
}

/** How much of a queue a worker takes at a time. */
export interface Share {
  /** As many as it has free lanes for. */
  readonly most: number;
  /** How many workers take from this queue. */
  readonly workers: number;
}

/** A job that has been taken, as BullMQ's scripts answer it, or BullMQ's code for none. */
export interface Taken {
  readonly job: unknown[] | number | undefined;
  /** Of its attempt. */
  readonly token: string;
  /** Absent when the attempt is to be started by itself. */
  readonly begun?: BeginAnswer;
}

export interface FinishedJob {
  readonly id: string;
  /** JSON. */
  readonly returnValue: string;
  /** How many finished jobs the queue keeps, 0 for none. */
  readonly kept: number;
  readonly takeNext: boolean;
}

export interface Finished extends Taken {
  readonly code: WriteAnswer;
}

const NEXT_JOBS_LUA = [luaFunction('next-jobs'), luaFunction('begin'), luaFunction('begin-taken')];
const takeScript = new Script('take', 2, [...NEXT_JOBS_LUA, MOVE_LUA.toActive]);
const finishScript = new Script('finish', 7, [
  ...NEXT_JOBS_LUA,
  luaFunction('settle'),
  luaFunction('complete-job'),
  MOVE_LUA.toFinished,
]);

export async function takeJobs(
  access: LedgerAccess,
  place: Place,
  delivery: Delivery,
  share: Share = { most: 1, workers: 1 },
): Promise<Taken[]> {
  const keys = access.keys(place);
  const answers = await takeScript.run(
    access.redis,
    [keys.circuits, keys.job('wait')],
    [...deliveryArguments(keys, delivery), share.most, share.workers],
  );
  const taken: Taken[] = [];
  for (let index = 0; index < answers.length; index += 2)
    taken.push({ ...takenOf(access, answers[index], answers[index + 1]), token: `${delivery.token}.${index / 2 + 1}` });
  return taken;
}

export async function finishJob(
  access: LedgerAccess,
  settle: Settle,
  job: FinishedJob,
  delivery: Delivery,
): Promise<Finished> {
  const keys = access.placed(settle.callId);
  const [code, next, begun] = await finishScript.run(
    access.redis,
    [...settleKeys(access, settle), keys.job('wait')],
    [
      ...deliveryArguments(keys, delivery),
      job.takeNext ? '1' : '0',
      job.id,
      job.returnValue,
      job.kept,
      KEPT_EVENTS,
      ...settleArguments(access, settle),
    ],
  );
  return { code: code as WriteAnswer, token: delivery.token, ...takenOf(access, next, begun) };
}

function takenOf(access: LedgerAccess, job: unknown, begun: unknown): Omit<Taken, 'token'> {
  if (!Array.isArray(job)) return { job: job as number | undefined };
  if (!Array.isArray(begun) || begun[0] === 'apart') return { job };
  return { job, begun: beginAnswerOf(access, callOfJob(job[1] as string), begun) };
}

function deliveryArguments(keys: PlaceKeys, delivery: Delivery): (string | number)[] {
  const { lockToken, timestampMs, leaseMs, workerId, token } = delivery;
  return [keys.records, keys.inboxes, keys.job(''), lockToken, timestampMs, leaseMs, workerId, token];
}
