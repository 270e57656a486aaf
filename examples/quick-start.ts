/** The program of the README: one tool, one worker, one session; the same key gives the same call. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const weather = defineTool({
  name: 'get_weather',
  version: '1.0.0',
  description: 'Current weather of a city.',
  tier: 'read-only',
  input: z.object({ city: z.string().describe('City name') }),
  run: async ({ city }) => ({ output: { city, celsius: 21 }, display: `21 degrees in ${city}` }),
});

const worker = await startWorker({ tools: [weather] }); //  usually another process: npx pawl worker --tools weather.ts
const pawl = await connect(); //                            REDIS_URL, or a private Redis that starts by itself
const session = await pawl.openSession({ actorId: 'ada' });

const first = await session.call(weather, { city: 'Paris' }, { idempotencyKey: 'trip-1' });
const again = await session.call(weather, { city: 'Paris' }, { idempotencyKey: 'trip-1' });
console.log(first.status, again.fromCache); //              success true

await pawl.close();
await worker.close();
