// A tool says how its effect is taken back; a plan that fails half-way is undone, step by step.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const booked = new Set<string>();
const book = defineTool({
  name: 'book',
  version: '1.0.0',
  description: 'Books a part of a journey.',
  tier: 'system',
  input: z.object({ what: z.string() }),
  run: ({ what }) => {
    if (what === 'car') throw Object.assign(new Error('no cars left'), { status: 422 });
    booked.add(what);
    return { output: { reservation: `${what}-1` } };
  },
  compensate: async (_params, { output }) => {
    booked.delete(output.reservation.split('-')[0] ?? '');
  },
});

const worker = await startWorker({ tools: [book] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const steps: [string, string | undefined][] = [];
const told: string[] = [];
for (const what of ['hotel', 'flight', 'car']) {
  const { status, error, callId } = await session.call(book, { what });
  told.push(`${what}: ${status === 'success' ? 'booked' : error?.code}`);
  steps.push([what, callId]);
}
console.log(told.join(', '));

const undone: string[] = [];
for (const [what, callId] of steps.slice(0, 2).reverse())
  if ((await session.compensate(callId ?? '')).status === 'success') undone.push(what);
console.log(`undone: ${undone.join(', ')}`);
const again = await session.compensate(steps[0]?.[1] ?? '');
console.log(`undone again: from the record ${again.fromCache}`);
console.log(`booked in the end: ${[...booked].join(', ') || 'nothing'}`);
await session.compensate(steps[2]?.[1] ?? '').catch((error) => console.log(`what failed: ${error.code}`));

await pawl.close();
await worker.close();
