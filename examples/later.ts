/** A call exists at once and starts later: it is listed, can be cancelled, and takes no capacity until its time. */
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const remind = defineTool({
  name: 'remind',
  version: '1.0.0',
  description: 'Reminds of something.',
  tier: 'workspace',
  input: z.object({ text: z.string() }),
  run: ({ text }) => ({ output: `Remember: ${text}` }),
});

const worker = await startWorker({ tools: [remind] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const tea = await session.submit(remind, { text: 'tea' }, { startAfterMs: 2_000, idempotencyKey: 'tea' });
console.log((await pawl.read(tea.callId ?? ''))?.phase); //                delayed
console.log((await tea.result).output?.content); //                        Remember: tea

const tomorrow = new Date(Date.now() + 24 * 3_600_000);
const train = await session.submit(remind, { text: 'train' }, { startAt: tomorrow });
console.log((await session.cancel(train.callId ?? '')).settlement); //     cancelled-before-start

await pawl.close();
await worker.close();
