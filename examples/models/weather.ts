/** The tool of the examples with agent libraries, a worker that runs it, and a session that calls it. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const weather = defineTool({
  name: 'get_weather',
  version: '1.0.0',
  description: 'Current weather of a city.',
  tier: 'read-only',
  input: z.object({ city: z.string().describe('City name') }),
  run({ city }, ctx) {
    ctx.progress({ progress: 1, total: 2, message: `asking for ${city}` });
    return { output: { city, celsius: 21 } };
  },
});

export async function startWeather() {
  const worker = await startWorker({ tools: [weather] });
  const pawl = await connect();
  const session = await pawl.openSession({ actorId: 'ada' });
  const close = async () => {
    await pawl.close();
    await worker.close();
  };
  return { session, close };
}
