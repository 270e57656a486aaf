/** Failures are classified; those that may pass are tried again, where a second run does no harm. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

let failuresLeft = 2;
/** As HTTP clients throw: an error with `status` (or `response.status`, or a `code` such as ECONNREFUSED). */
function unreliable(): void {
  if (failuresLeft === 0) return;
  failuresLeft -= 1;
  throw Object.assign(new Error('the service is busy'), { status: 503 });
}

const look = defineTool({
  name: 'look_up',
  version: '1.0.0',
  description: 'Looks something up.',
  tier: 'read-only', // effects 'none': may run again
  retry: { baseMs: 50 }, // random waits up to 50 ms, 100 ms, 200 ms…; 4 attempts unless told otherwise
  input: z.object({ id: z.string() }),
  run: async ({ id }) => {
    unreliable();
    return { output: { id } };
  },
});
const pay = defineTool({
  name: 'pay',
  version: '1.0.0',
  description: 'Pays.',
  tier: 'system',
  effects: 'once', // after a 503 nobody knows whether it was paid
  input: z.object({ amount: z.number() }),
  run: async ({ amount }) => {
    unreliable();
    return { output: { amount } };
  },
});

const worker = await startWorker({ tools: [look, pay] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });
session.events.on('retrying', ({ attempt, reasonCode }) => console.log(`attempt ${attempt} failed: ${reasonCode}`));

const found = await session.call(look, { id: 'a1' });
console.log(`look_up: ${found.status} after ${found.attempts} attempts`);

failuresLeft = 2;
const exhausted = await session.call(look, { id: 'a2' }, { retryBudget: { maxAttempts: 2 } });
console.log(`look_up with 2 attempts at most: ${exhausted.status}`);

failuresLeft = 1;
const paid = await session.call(pay, { amount: 10 });
console.log(`pay: ${paid.status} after ${paid.attempts} attempt; another try could help, but could also pay twice`);

failuresLeft = 1;
const safe = await session.call(pay, { amount: 11 }, { expectedRetrySafe: true, retryBudget: { maxAttempts: 3 } });
console.log(`pay, the caller vouches for a second run: ${safe.status} after ${safe.attempts} attempts`);

await pawl.close();
await worker.close();
