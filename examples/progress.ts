/** The events of a session’s calls while they run. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const indexing = defineTool({
  name: 'build_index',
  version: '1.0.0',
  description: 'Builds a search index.',
  tier: 'workspace',
  effects: 'idempotent',
  input: z.object({ documents: z.number().int().positive() }),
  run: async ({ documents }, ctx) => {
    for (let done = 1; done <= documents; done += 1) {
      await new Promise((resolve) => setTimeout(resolve, 150)); // the work
      ctx.progress({ progress: done, total: documents, message: `document ${done}` });
    }
    return { output: { documents }, display: `${documents} documents indexed` };
  },
});

const worker = await startWorker({ tools: [indexing] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });
session.events.on('queued', ({ toolName }) => console.log(`${toolName} is queued`));
// At most ten reports a second; what comes faster is left out.
session.events.on('progress', ({ progress, total }) => console.log(`${progress} of ${total}`));
session.events.on('settled', ({ status, output }) => console.log(`${status}: ${output?.metadata?.['display']}`));

await session.call(indexing, { documents: 5 });

await pawl.close();
await worker.close();
