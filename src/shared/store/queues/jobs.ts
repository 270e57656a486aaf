/**
 * The BullMQ job of a call: its name, data and options, and the scripts that add, fetch and end it.
 *
 * Jobs are added, fetched and ended inside our own scripts (`enqueue.lua`, `fetch-jobs.lua`, `complete-job.lua`), so that no crash can
 * come between a call's step and its job's. For an ordinary job they do what BullMQ's scripts do; for all others they call BullMQ's own
 * Lua text of the pinned version.
 */
import { createRequire } from 'node:module';
import type { Worker } from 'bullmq';
import { queueNameOf } from '../../queues/priority.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { luaConstants, luaFunction, namedLuaFunction } from '../redis/script.ts';

const require = createRequire(import.meta.url);

/** Finished jobs that Bull Board can show, for each queue. Results live in the ledger, so none of them is needed. */
export const KEPT_JOBS = 500;
/** Finished jobs that a queue keeps of each second, as a sample of a busy queue. */
export const KEPT_PER_SECOND = 20;
/** Entries of BullMQ's event stream, for each queue. */
export const KEPT_EVENTS = 1_000;

/** For `Script`: `moveToActive` and `moveToFinished`. */
export const MOVE_LUA = {
  toActive: bullmqFunction('moveToActive-11'),
  toFinished: bullmqFunction('moveToFinished-14'),
};

/** BullMQ's scripts that compare times; the caller's clock is their second argument. */
const TIMED_SCRIPTS = ['moveToActive-11', 'moveToDelayed-11', 'moveToFinished-14', 'retryJob-11'] as const;

/**
 * BullMQ's scripts with Redis' clock in place of the caller's, so that a worker with a wrong clock neither promotes a delayed job early nor
 * leaves one waiting. The due time of the next job, the fourth of four answers, is converted back to the caller's clock. BullMQ does not
 * replace scripts that a connection already defines under its names (`scripts` of ioredis).
 */
export function scriptsOnRedisTime(): Record<string, { readonly lua: string; readonly numberOfKeys: number }> {
  const { version } = require('bullmq/package.json') as { readonly version: string };
  const scripts = TIMED_SCRIPTS.map((file) => {
    const { name, content, keys } = bullmqScript(file);
    return [`${name}:${version}`, { lua: onRedisTime(content), numberOfKeys: keys }] as const;
  });
  return Object.fromEntries(scripts);
}

interface BullmqScript {
  readonly name: string;
  readonly content: string;
  readonly keys: number;
}

/** `file`: the script's name and the number of its keys, as in `retryJob-11`. */
function bullmqScript(file: string): BullmqScript {
  const [script] = Object.values(require(`bullmq/dist/cjs/scripts/${file}.js`) as Record<string, BullmqScript>);
  return script as BullmqScript;
}

function onRedisTime(content: string): string {
  return `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local aheadMs = ARGV[2] - now
ARGV[2] = string.format('%.0f', now)
local function script()
${content}
end
local answer = script()
if type(answer) == 'table' and tonumber(answer[4] or 0) > 0 then answer[4] = answer[4] + aheadMs end
return answer
`;
}

/**
 * A marker's score is the due time of the next job on Redis' clock, which BullMQ's worker would compare with its own. With score 0 it
 * fetches at once, and the answer tells it on its own clock how long to wait.
 */
export function fetchAtEveryMarker({ backend }: Pick<Worker, 'backend'>): void {
  const waitForJob = backend.waitForJob.bind(backend);
  backend.waitForJob = async (blockSeconds) => {
    const marker = await waitForJob(blockSeconds);
    return marker === null ? null : { ...marker, score: 0 };
  };
}

/** A BullMQ script as a Lua function. It takes tables where the script unpacks MessagePack. */
function bullmqFunction(file: string): string {
  const { name, content } = bullmqScript(file);
  const unpacked = 'local cmsgpack = {unpack = function(value) return value end}\n';
  return namedLuaFunction(name, `${unpacked}${content}`);
}

/** Options of a job that is removed when it completes. A failed job is kept. */
export const REMOVED_JOB_OPTIONS = JSON.stringify({
  attempts: 1,
  removeOnComplete: true,
  removeOnFail: { count: KEPT_JOBS },
});
/** Options of a job that is kept for Bull Board when it completes. */
export const KEPT_JOB_OPTIONS = JSON.stringify({
  attempts: 1,
  removeOnComplete: { count: KEPT_JOBS },
  removeOnFail: { count: KEPT_JOBS },
});

/** For `Script`: `job_options`, and constants of jobs. */
export const JOBS_LUA = [
  luaConstants({
    KEPT: KEPT_JOB_OPTIONS,
    REMOVED_AT_ONCE: REMOVED_JOB_OPTIONS,
    KEPT_PER_SECOND,
    PLAIN_LINE: queueNameOf('normal', undefined, 1),
  }),
  "local function job_options(kept) return kept == '1' and KEPT or REMOVED_AT_ONCE end\n",
].join('');
/** For `Script`: `enqueue`. */
export const ENQUEUE_LUA = [
  JOBS_LUA,
  luaFunction(new URL('./enqueue-fair.lua', import.meta.url)),
  luaFunction(new URL('./enqueue.lua', import.meta.url)),
];

/** For `Script`: `enqueue_delayed`, which needs `JOBS_LUA`. */
export const ENQUEUE_DELAYED_LUA = luaFunction(new URL('./enqueue-delayed.lua', import.meta.url));

/** For `Script`: `idle_worker`, `dispatch_job` and `push`, which need `ENQUEUE_LUA`. */
export const PUSH_LUA = [
  luaFunction(new URL('./idle-worker.lua', import.meta.url)),
  luaFunction(new URL('./dispatch-job.lua', import.meta.url)),
  luaFunction(new URL('./push.lua', import.meta.url)),
];

/** The content of a job: its ID names the call, its data the session. A job never contains the parameters. */
export interface CallJob {
  readonly callId: string;
  readonly generation: string;
  readonly session: string;
}

/** The ID of a call's job. Each generation has its own, so that a kept or failed job of an earlier one does not block it. */
export function jobIdOf(callId: string, generation: string): string {
  return `${callId}.${generation}`;
}

export function callOfJob(jobId: string): Pick<CallJob, 'callId' | 'generation'> {
  const separator = jobId.lastIndexOf('.');
  return { callId: jobId.slice(0, separator), generation: jobId.slice(separator + 1) };
}

/** A job's data as it is stored. A job that may be kept repeats the call's ID for Bull Board. */
export function jobData(job: CallJob, keepJob: boolean): string {
  return JSON.stringify(keepJob ? job : { session: job.session });
}

/** Key prefix of the queue and arguments of `enqueue.lua` for a requeued call, whose job is kept for Bull Board. */
export function enqueueArguments(keys: PartitionKeys, toolName: string, job: CallJob): string[] {
  const jobId = jobIdOf(job.callId, job.generation);
  return [keys.job(''), jobId, toolName, job.generation, jobData(job, true), '1'];
}
