/**
 * A producer as one writes it by hand with BullMQ: `add` with a job ID, then `waitUntilFinished`.
 *
 * Done right: one QueueEvents for the whole process, ready before the first job; room for any number of listeners; finished
 * jobs and events kept, but boundedly, because with `removeOnComplete: true` a fast job counts as failed; a time limit on each wait.
 */
import { Queue, QueueEvents } from 'bullmq';
import { processOptions, serve } from './child.ts';
import { fill, runLoad } from './load.ts';

const WAIT_MS = 60_000;

const { storeUrl, prefix, kept } = processOptions();
const queue = new Queue<{ readonly bytes: number; readonly ms: number }, { readonly text: string }>('calls', {
  connection: { url: storeUrl },
  prefix,
  defaultJobOptions: { removeOnComplete: { count: kept }, removeOnFail: { count: kept } },
  streams: { events: { maxLen: 10 * kept } },
});
const events = new QueueEvents('calls', { connection: { url: storeUrl, maxRetriesPerRequest: null }, prefix });
queue.setMaxListeners(0);
events.setMaxListeners(0);
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);

async function call(key: string, bytes: number, ms: number): Promise<string> {
  const job = await queue.add('reply', { bytes, ms }, { jobId: key });
  const { text } = await job.waitUntilFinished(events, WAIT_MS);
  return text;
}

serve(
  async () => {
    await events.close();
    await queue.close();
  },
  {
    load: (load) => runLoad(call, load),
    fill: ({ calls }) => fill(calls, (key) => queue.add('reply', { bytes: 200, ms: 0 }, { jobId: key })),
  },
);
