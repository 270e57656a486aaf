/** The idempotency key names the call: at the same time, later, and with other parameters. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

let transfers = 0;
const transfer = defineTool({
  name: 'transfer',
  version: '1.0.0',
  description: 'Transfers money.',
  tier: 'system',
  effects: 'once', // a second run would be a second transfer
  input: z.object({ to: z.string(), amount: z.number().positive() }),
  run: async ({ to, amount }) => {
    transfers += 1;
    return { output: { number: transfers }, display: `${amount} to ${to}` };
  },
});

const worker = await startWorker({ tools: [transfer] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });
const key = { idempotencyKey: 'rent-november' };

// A hundred callers at once: one runs, the others wait for its outcome.
const answers = await Promise.all(
  Array.from({ length: 100 }, () => session.call(transfer, { to: 'landlord', amount: 900 }, key)),
);
const numbers = new Set(answers.map((answer) => answer.output?.content.number));
console.log(`${answers.length} calls, ${transfers} transfer, ${numbers.size} answer`);

// Later: replayed from the record, for 24 hours.
const later = await session.call(transfer, { to: 'landlord', amount: 900 }, key);
console.log(`later: from the record ${later.fromCache}, matched on ${later.cache?.matchedOn}`);

// The same key for something else is a mistake of the caller: nothing runs.
const other = await session.call(transfer, { to: 'casino', amount: 900 }, key);
console.log(`other parameters: ${other.error?.code}, still ${transfers} transfer`);

// Another session's keys are its own.
const elsewhere = await (await pawl.openSession({ actorId: 'bob' })).call(
  transfer,
  { to: 'landlord', amount: 900 },
  key,
);
console.log(`another session: from the record ${elsewhere.fromCache}, now ${transfers} transfers`);

await pawl.close();
await worker.close();
