/** A call is cancelled wherever it is, and the answer says how that ended. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const search = defineTool({
  name: 'search',
  version: '1.0.0',
  description: 'Searches for a long time.',
  tier: 'read-only',
  input: z.object({ text: z.string() }),
  run: async ({ text }, ctx) => {
    ctx.progress({ progress: 0, message: 'searching' });
    await sleep(60_000, undefined, { signal: ctx.signal }); // aborted by a cancellation, a time limit, a drain
    return { output: { text } };
  },
});

const worker = await startWorker({ tools: [search], concurrency: 1 });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

// By ID, from any process: `submit` returns without waiting for the call’s end.
const running = await session.submit(search, { text: 'needle' });
await once(session.events, 'progress');
const waiting = await session.submit(search, { text: 'haystack' }); // the worker is busy: this one stays in the queue
if (running.kind !== 'pending' || waiting.kind !== 'pending') throw new Error('Both calls should be on their way.');

const queued = await session.cancel(waiting.callId);
console.log(`in the queue: ${queued.settlement}`);
const stopped = await session.cancel(running.callId);
console.log(`while it ran: ${stopped.settlement}, its caller gets ${(await running.result).error?.code}`);
const late = await session.cancel(running.callId);
console.log(`once more: ${late.settlement}`);

// Or by an AbortSignal of the caller.
const abortion = new AbortController();
session.events.once('progress', () => abortion.abort());
const aborted = await session.call(search, { text: 'thread' }, { signal: abortion.signal });
console.log(`by a signal: ${aborted.error?.code}`);

// Or by a time limit.
const slow = await session.call(search, { text: 'pin' }, { timeoutMs: 200 });
console.log(`by a time limit: ${slow.status}`);

await pawl.close();
await worker.close();
