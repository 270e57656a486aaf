// Many calls in one request: each has a result of its own, and one that is wrong stops no other.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const weather = defineTool({
  name: 'get_weather',
  version: '1.0.0',
  description: 'Current weather of a city.',
  tier: 'read-only',
  input: z.object({ city: z.string().min(2) }),
  run: ({ city }) => ({ output: { city, celsius: city.length } }),
});

const worker = await startWorker({ tools: [weather] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const results = await session.batch(
  [
    { tool: weather, params: { city: 'Paris' }, idempotencyKey: 'paris' },
    { tool: weather, params: { city: '' } },
    { tool: weather, params: { city: 'Oslo' } },
  ],
  { concurrency: 2 },
);
for (const { status, output, error } of results)
  console.log(status, output?.content.celsius ?? error?.issues?.[0]?.path);

// The ID of the batch, for another process; and one cancel for all of its calls.
const running = session.batch(['Rome', 'Bern'].map((city) => ({ tool: weather, params: { city } })));
const { batchId, calls } = await running.accepted;
console.log(`${calls.length} calls accepted`);
await running;
await running.cancel(); // too late: a batch that is over stays as it is
console.log(`the batch is ${(await pawl.batches.read(batchId)).state}`);

await pawl.close();
await worker.close();
