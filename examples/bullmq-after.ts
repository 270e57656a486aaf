/** After: the same letters are sent by a tool, which may send each letter once. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const sent: string[] = [];
const sendLetter = defineTool({
  name: 'send_letter',
  version: '1.0.0',
  description: 'Sends a letter.',
  tier: 'system',
  effects: 'once', // a second run would send a second letter
  input: z.object({ to: z.string(), text: z.string() }),
  run: async ({ to, text }) => {
    sent.push(text); //                                                                             the effect
    if (text === 'Hello') throw Object.assign(new Error('connection reset'), { code: 'ECONNRESET' }); // the answer is lost
    return { output: `sent to ${to}` };
  },
});

const worker = await startWorker({ tools: [sendLetter] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const first = await session.call(sendLetter, { to: 'Ada', text: 'Hello' }, { idempotencyKey: 'letter-1' });
console.log(`the answer was lost: ${first.error?.code}, may have happened: ${first.error?.mayHaveHappened}`);
console.log(`letters that went out: ${sent.length}`); // 1: only a person, or the agent, may send it again

const other = await session.call(sendLetter, { to: 'Ada', text: 'Goodbye' }, { idempotencyKey: 'letter-1' });
console.log(`same key, other text: ${other.error?.code}, still ${sent.length}`);

const next = await session.call(sendLetter, { to: 'Bob', text: 'Good morning' }, { idempotencyKey: 'letter-2' });
console.log(`the next letter: ${next.status}`);

await pawl.close();
await worker.close();
