// A plan is a graph of calls: values flow from one to the other, and a plan that fails is undone.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const booked = new Set<string>();
const cities = defineTool({
  name: 'cities',
  version: '1.0.0',
  description: 'The cities of a journey.',
  tier: 'read-only',
  input: z.object({}),
  output: z.object({ list: z.array(z.object({ name: z.string() })) }),
  run: () => ({ output: { list: [{ name: 'Paris' }, { name: 'Oslo' }] } }),
});
const book = defineTool({
  name: 'book',
  version: '1.0.0',
  description: 'Books a hotel.',
  tier: 'system',
  input: z.object({ city: z.string() }),
  output: z.object({ reservation: z.string() }),
  run: ({ city }) => {
    if (city === 'Paris-1') throw Object.assign(new Error('no such city'), { status: 422 });
    booked.add(city);
    return { output: { reservation: `${city}-1` } };
  },
  compensate: async ({ city }) => {
    booked.delete(city);
  },
});

const worker = await startWorker({ tools: [cities, book] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const nodes = {
  cities: { tool: 'cities' },
  each: { tool: 'book', forEach: { $from: 'cities.list' }, params: { city: { $from: 'item.name' } } },
};
const plan = await session.plan({ nodes });
console.log(`${plan.state}: ${[...booked].toSorted().join(', ')}`);

const failing = { tool: 'book', params: { city: { $from: 'each.0.reservation' } }, onFailure: 'undo' as const };
const undone = await session.plan({ nodes: { ...nodes, failing } });
console.log(`${undone.state} because of ${undone.because}: booked in the end: ${[...booked].join(', ') || 'nothing'}`);

const wrong = { tool: 'book', params: { city: { $from: 'cities.list' } } };
await session.plan({ nodes: { ...nodes, wrong } }).catch((error) => console.log(error.code, error.issues[0].path));

await pawl.close();
await worker.close();
