/**
 * The queue side of a call: how its BullMQ job is named, added and kept.
 *
 * A job is added by BullMQ's own script, which runs as a function inside ours: claim and enqueue are one step, so that no
 * crash can come between them. The text is that of the pinned BullMQ version; `queues.test.ts` notices when it changes.
 */
import { createRequire } from 'node:module';
import { Packr } from 'msgpackr';
import type { PlaceKeys } from './keys.ts';

const { addStandardJob } = createRequire(import.meta.url)('bullmq/dist/cjs/scripts/addStandardJob-9.js') as {
  readonly addStandardJob: { readonly content: string };
};

/** Finished jobs that Bull Board can show, for each queue. Results live in the ledger, so none of them is needed. */
export const KEPT_JOBS = 500;
/** Entries of BullMQ's event stream, for each queue. */
export const KEPT_EVENTS = 1_000;

/** Lua: `enqueue(KEYS, ARGV)` with the keys and arguments of BullMQ's addStandardJob. */
export const ENQUEUE_LUA = `local function enqueue(KEYS, ARGV)\n${addStandardJob.content}\nend\n`;

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
