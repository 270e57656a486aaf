/** On the way: BullMQ and Pawl use one Redis. The old processor calls the tool, and new code calls it directly. */
import { Queue, QueueEvents, Worker } from 'bullmq';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const sent: string[] = [];
const sendLetter = defineTool({
  name: 'send_letter',
  version: '1.0.0',
  description: 'Sends a letter.',
  tier: 'system',
  effects: 'once',
  input: z.object({ to: z.string(), text: z.string() }),
  run: async ({ to, text }) => {
    sent.push(text);
    return { output: `sent to ${to}` };
  },
});

const pawlWorker = await startWorker({ tools: [sendLetter] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'mail' });

// The old queue has a prefix of its own, so neither system touches the other's keys.
const url = process.env['REDIS_URL'] ?? 'redis://127.0.0.1:6379';
const options = {
  connection: { url, maxRetriesPerRequest: null },
  prefix: `${process.env['PAWL_PREFIX'] ?? 'mail'}-beside`,
};
const bullWorker = new Worker<{ to: string; text: string }, string>(
  'letters',
  async ({ id = '', data }) => {
    // The job's ID is the key: a job that runs twice still sends one letter.
    const result = await session.call(sendLetter, data, { idempotencyKey: id });
    if (result.status !== 'success') throw new Error(result.error.message);
    return String(result.output.content);
  },
  options,
);
bullWorker.on('error', (error) => console.error(error));
const queue = new Queue<{ to: string; text: string }, string>('letters', options);
const events = new QueueEvents('letters', options);
await Promise.all([bullWorker.waitUntilReady(), events.waitUntilReady()]);

const letter = { to: 'Ada', text: 'Hello' };
const job = await queue.add('letter', letter, { jobId: 'letter-1' });
console.log(`the old way: ${await job.waitUntilFinished(events, 10_000)}`);

const again = await session.call(sendLetter, letter, { idempotencyKey: 'letter-1' });
console.log(`the new way, same key: ${again.output?.content}, from the record ${again.fromCache}`);
console.log(`letters that went out: ${sent.length}`);

await queue.obliterate({ force: true });
await bullWorker.close();
await events.close();
await queue.close();
await pawl.close();
await pawlWorker.close();
