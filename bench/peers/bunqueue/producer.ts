/** A producer of bunqueue. The key is the job's ID; its adds go out in groups, as by default. */
import { Queue, QueueEvents } from 'bunqueue/client';
import { serve } from '../../child.ts';
import { runLoad } from '../../load.ts';
import { type CallData, connection, QUEUE } from './queue.ts';

const queue = new Queue<CallData>(QUEUE, { connection });
const events = new QueueEvents(QUEUE, { connection });
await events.waitUntilReady();

async function call(key: string, resultBytes: number): Promise<string> {
  const job = await queue.add('reply', { bytes: resultBytes }, { jobId: key });
  const { text } = (await job.waitUntilFinished(events, 60_000)) as { readonly text: string };
  return text;
}

serve(
  async () => {
    events.close();
    await queue.close();
  },
  { load: (load) => runLoad(call, load) },
);
