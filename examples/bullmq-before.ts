/** Before: letters are sent by a BullMQ queue and worker, written by hand. It needs a Redis at REDIS_URL. */
import { Queue, QueueEvents, Worker } from 'bullmq';

interface Letter {
  readonly to: string;
  readonly text: string;
}

const url = process.env['REDIS_URL'] ?? 'redis://127.0.0.1:6379';
const options = {
  connection: { url, maxRetriesPerRequest: null },
  prefix: `${process.env['PAWL_PREFIX'] ?? 'mail'}-before`,
};

const sent: string[] = [];
const worker = new Worker<Letter, string>(
  'letters',
  async ({ data, attemptsMade }) => {
    sent.push(data.text); //                                        the effect
    if (attemptsMade === 0) throw new Error('connection reset'); //  the answer of the mail server is lost
    return `sent to ${data.to}`;
  },
  options,
);
worker.on('error', (error) => console.error(error));

const queue = new Queue<Letter, string>('letters', options);
const events = new QueueEvents('letters', options);
await Promise.all([worker.waitUntilReady(), events.waitUntilReady()]);

async function send(letter: Letter, key: string): Promise<string> {
  const job = await queue.add('letter', letter, { jobId: key, attempts: 3, backoff: 50 });
  return job.waitUntilFinished(events, 10_000);
}

console.log(`the answer was lost: ${await send({ to: 'Ada', text: 'Hello' }, 'letter-1')}`);
console.log(`letters that went out: ${sent.length}`); // 2: the retry sent it again

// The same key with another text is the same job: its result comes back, and the new text never goes out.
console.log(`same key, other text: ${await send({ to: 'Ada', text: 'Goodbye' }, 'letter-1')}, still ${sent.length}`);

await queue.obliterate({ force: true });
await worker.close();
await events.close();
await queue.close();
