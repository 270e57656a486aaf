/**
 * The queue side of a call: how its BullMQ job is named, added and kept.
 *
 * A job is added by BullMQ's own script, which runs as a function inside ours: claim and enqueue are one step, so that no
 * crash can come between them. The text is that of the pinned BullMQ version; `queues.test.ts` notices when it changes.
 */
import { createRequire } from 'node:module';
import type { Worker } from 'bullmq';
import { Packr } from 'msgpackr';
import type { PlaceKeys } from './keys.ts';

const require = createRequire(import.meta.url);
const { addStandardJob } = require('bullmq/dist/cjs/scripts/addStandardJob-9.js') as {
  readonly addStandardJob: { readonly content: string };
};

/** Finished jobs that Bull Board can show, for each queue. Results live in the ledger, so none of them is needed. */
export const KEPT_JOBS = 500;
/** Entries of BullMQ's event stream, for each queue. */
export const KEPT_EVENTS = 1_000;

/** Lua: `enqueue(KEYS, ARGV)` with the keys and arguments of BullMQ's addStandardJob. */
export const ENQUEUE_LUA = `local function enqueue(KEYS, ARGV)\n${addStandardJob.content}\nend\n`;

/** BullMQ's scripts that compare times; the caller's clock is their second argument. */
const TIMED_SCRIPTS = ['moveToActive-11', 'moveToDelayed-11', 'moveToFinished-14', 'retryJob-11'] as const;

/**
 * The same scripts with Redis' clock in the place of the caller's, so that a worker whose clock is wrong neither promotes a delayed
 * job early nor leaves one lying. When the next job is due, the fourth of four answers, is told on the caller's clock again.
 * A connection that has them under BullMQ's names (`scripts` of ioredis) keeps them.
 */
export function scriptsOnRedisTime(): Record<string, { readonly lua: string; readonly numberOfKeys: number }> {
  const { version } = require('bullmq/package.json') as { readonly version: string };
  const scripts = TIMED_SCRIPTS.map((file) => {
    const [name = ''] = file.split('-');
    const { content, keys } = (require(`bullmq/dist/cjs/scripts/${file}.js`) as Record<string, TimedScript>)[
      name
    ] as TimedScript;
    return [`${name}:${version}`, { lua: onRedisTime(content), numberOfKeys: keys }] as const;
  });
  return Object.fromEntries(scripts);
}

interface TimedScript {
  readonly content: string;
  readonly keys: number;
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
 * A marker says on Redis' clock when the next job is due. The worker would compare that with its own: it fetches at once instead,
 * and hears on its own clock how long to wait.
 */
export function fetchAtEveryMarker({ backend }: Pick<Worker, 'backend'>): void {
  const waitForJob = backend.waitForJob.bind(backend);
  backend.waitForJob = async (blockSeconds) => {
    const marker = await waitForJob(blockSeconds);
    return marker === null ? null : { ...marker, score: 0 };
  };
}

const packer = new Packr({ useRecords: false, encodeUndefinedAsNil: true });
const options = new Map<number, Buffer>();

/** Kept for Bull Board, or gone as soon as it is finished. */
function packedOptions(kept: boolean): Buffer {
  const key = Number(kept);
  let packed = options.get(key);
  if (packed === undefined) {
    packed = Buffer.from(
      packer.pack({
        attempts: 1,
        removeOnComplete: kept ? { count: KEPT_JOBS } : true,
        removeOnFail: { count: KEPT_JOBS },
      }),
    );
    options.set(key, packed);
  }
  return packed;
}

export function queueKeys(keys: PlaceKeys): string[] {
  return ['wait', 'paused', 'meta', 'id', 'completed', 'delayed', 'active', 'events', 'marker'].map((name) =>
    keys.job(name),
  );
}

/** What a job carries: enough to find the call, and to recognise it on Bull Board. Never the parameters. */
export interface CallJob {
  readonly callId: string;
  readonly generation: string;
  readonly session: string;
}

/** A job's name for a call: one per generation, so that neither retention nor an earlier failure blocks it. */
export function jobIdOf(callId: string, generation: string): string {
  return `${callId}.${generation}`;
}

/** Arguments of `enqueue` for one call. */
export function enqueueArguments(
  keys: PlaceKeys,
  toolName: string,
  job: CallJob,
  timestampMs: number,
  kept: boolean,
): (string | Buffer)[] {
  const head = packer.pack([
    keys.job(''),
    jobIdOf(job.callId, job.generation),
    toolName,
    timestampMs,
    null,
    null,
    null,
    null,
    null,
    null,
  ]);
  return [Buffer.from(head), JSON.stringify(job), packedOptions(kept)];
}
