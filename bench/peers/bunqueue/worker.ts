/** A worker of bunqueue: it takes as many jobs at a time as it has slots, over TCP. */
import { Worker } from 'bunqueue/client';
import { processOptions, serve } from '../../child.ts';
import { replyText } from '../../reply-text.ts';
import { noteRun } from '../../runs.ts';
import { type CallData, connection, QUEUE } from './queue.ts';

const { concurrency } = processOptions();
const worker = new Worker<CallData, { readonly text: string }>(
  QUEUE,
  async ({ data }) => {
    noteRun();
    return { text: replyText(data.bytes) };
  },
  { connection, concurrency, batchSize: concurrency },
);
await worker.waitUntilReady();
serve(() => worker.close(true), {});
