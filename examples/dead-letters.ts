// A service is down, and calls fail for good. They are dead letters: when the service is back, an operator redrives them, each once.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

let bankIsUp = false;
const paid: string[] = [];
const pay = defineTool({
  name: 'pay',
  version: '1.0.0',
  description: 'Pays an invoice.',
  tier: 'system',
  effects: 'keyed',
  input: z.object({ invoice: z.string() }),
  run: ({ invoice }, { idempotencyKey }) => {
    if (!bankIsUp) throw Object.assign(new Error('the bank is closed'), { status: 503 });
    paid.push(idempotencyKey);
    return { output: { invoice, receipt: `r-${paid.length}` } };
  },
});

const worker = await startWorker({ tools: [pay] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });
const retryBudget = { maxAttempts: 1, maxElapsedMs: 1_000 };
for (const invoice of ['a', 'b', 'c'])
  await session.call(pay, { invoice }, { idempotencyKey: `invoice-${invoice}`, retryBudget });

const { counts } = await pawl.deadLetters.list({ tool: 'pay' });
console.log(`failed: ${counts?.total}, ${JSON.stringify(counts?.codes)}`);

const outage = { filter: { tool: 'pay', code: 'HTTP_503' } };
const tried = await pawl.deadLetters.redrive({ ...outage, dryRun: true });
console.log(`a dry run: ${tried.matched} match, ${tried.skipped.length} would be skipped, ${paid.length} paid`);

bankIsUp = true;
const { started } = await pawl.deadLetters.redrive({ ...outage, perSecond: 100, reason: 'the bank is back' });
console.log(`redriven: ${started}`);
for (const invoice of ['a', 'b', 'c']) {
  const again = await session.call(pay, { invoice }, { idempotencyKey: `invoice-${invoice}` });
  console.log(`${invoice}: ${again.status}`);
}
console.log(`paid: ${[...paid].sort().join(', ')}`);
console.log(`left: ${(await pawl.deadLetters.list()).counts?.total}`);

await pawl.close();
await worker.close();
