// A tool leaves its work to an outside system, which completes the call later: a bank's webhook, say, or a person.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const mailbox: string[] = []; // What the bank was sent.

const pay = defineTool({
  name: 'pay',
  version: '1.0.0',
  description: 'Pays an invoice. The bank answers later.',
  tier: 'system',
  effects: 'once',
  input: z.object({ invoice: z.string() }),
  output: z.object({ receipt: z.string() }),
  run: async (_params, ctx) => {
    mailbox.push(ctx.completionToken()); // POST /v1/completions/{token} is the address for the bank's webhook.
    return ctx.pending({ expiresInMs: 7 * 24 * 3_600_000 });
  },
});

const worker = await startWorker({ tools: [pay], concurrency: 1 });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const submitted = await session.submit(pay, { invoice: 'INV-7' });
const waiting = async () => (await pawl.calls.list({ state: 'pending' })).length;
while ((await waiting()) === 0) await new Promise((resolve) => setTimeout(resolve, 10));
console.log(`pending: ${await waiting()} call, and no worker runs it`);

const [token = ''] = mailbox;
await pawl.complete(token, { progress: 1, total: 2, message: 'the bank has the order' });
const wrong = await pawl.complete(token, { status: 'success', output: { receipt: 7 } }).catch((error) => error);
console.log(`an output that does not fit: ${wrong.code} at ${wrong.issues[0].path}`);
await pawl.complete(token, { status: 'success', output: { receipt: 'R-1' } });
const result = await submitted.result;
console.log(`completed: ${result.status}, ${JSON.stringify(result.output?.content)}`);
const again = await pawl.complete(token, { status: 'success', output: { receipt: 'R-2' } }).catch((error) => error);
console.log(`completed again: ${again.code}`);

await pawl.close();
await worker.close();
