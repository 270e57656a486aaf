/**
 * Calls that succeeded leave Redis for a file. Their keys still answer, byte for byte, and run nothing: also while the file is away.
 */
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

let runs = 0;
const count = defineTool({
  name: 'count',
  version: '1.0.0',
  description: 'Counts its runs.',
  tier: 'workspace',
  input: z.object({ of: z.string() }),
  run: ({ of }) => {
    runs += 1;
    return { output: `run ${runs} of ${of}` };
  },
});

const folder = await mkdtemp(join(tmpdir(), 'pawl-example-'));
const files = join(folder, 'blobs');
const settings = {
  blobStore: `file:${files}`, //  one folder for all processes
  segmentsAfterMs: 1_000, //      an hour, say
  stalledIntervalMs: 1_000, //    how often workers look; 30 s by default
};

const KEYS = ['a', 'b', 'c'];
const allMoved = Promise.withResolvers<void>();
let moved = 0;
const ignore = () => {};
const log = {
  ...{ debug: ignore, warn: ignore, error: console.error }, // it may warn of the file that is away below
  // The log of a worker says when calls have left.
  info(line: { readonly event?: string; readonly calls?: number }) {
    if (line.event === 'calls_moved') moved += line.calls ?? 0;
    if (moved === KEYS.length) allMoved.resolve();
  },
};
const worker = await startWorker({ tools: [count], log, ...settings });
const pawl = await connect(settings);
const session = await pawl.openSession({ sessionKey: 'demo', actorId: 'ada' });
const call = (by: typeof session, key: string) => by.call(count, { of: key }, { idempotencyKey: key });

for (const key of KEYS) await call(session, key);
await allMoved.promise;
console.log('the calls are in a file');

const again = await call(session, 'a');
console.log(`a: ${again.status}, ${again.output?.content}, from the record ${again.fromCache}`);

await rename(files, `${files}.away`);
const other = await connect({ ...settings, logLevel: 'error' }); // it has read no file before, and would warn of this one
const elsewhere = await other.session('demo');
const lost = await call(elsewhere, 'b');
console.log(`b, its file is away: ${lost.error?.code}, ${runs} runs`);

await rm(files, { recursive: true });
await rename(`${files}.away`, files);
const found = await call(elsewhere, 'b');
console.log(`b, its file is back: ${found.status}, ${found.output?.content}, ${runs} runs`);

await other.close();
await pawl.close();
await worker.close();
await rm(folder, { recursive: true });
