/** A worker as one writes it by hand with BullMQ, whose jobs answer at once or after a while. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'bullmq';
import { processOptions, serve, workerAnswers } from './child.ts';
import { replyText } from './reply-text.ts';
import { noteRun } from './runs.ts';

const { storeUrl, prefix, concurrency } = processOptions();
const worker = new Worker<{ readonly bytes: number; readonly ms: number }, { readonly text: string }>(
  'calls',
  async (job) => {
    noteRun();
    if (job.data.ms > 0) await sleep(job.data.ms);
    return { text: replyText(job.data.bytes) };
  },
  { connection: { url: storeUrl, maxRetriesPerRequest: null }, prefix, concurrency },
);
worker.on('error', (error) => console.error(error));
await worker.waitUntilReady();
serve(() => worker.close(), workerAnswers);
