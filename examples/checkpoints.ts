/**
 * A long tool copies one page after the other. Its worker is killed in the middle, and the next attempt goes on with the page behind the
 * last checkpoint.
 *
 * This file is both processes: `node checkpoints.ts worker` is a worker.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const copyPages = defineTool({
  name: 'copy_pages',
  version: '1.0.0',
  description: 'Copies pages.',
  tier: 'system',
  effects: 'idempotent', // a page that is copied twice is the same page
  input: z.object({ folder: z.string(), pages: z.number() }),
  run: async ({ folder, pages }, ctx) => {
    const first = z.number().default(0).parse(ctx.lastCheckpoint);
    ctx.progress({ progress: first, message: `attempt ${ctx.attempt} starts at page ${first}` });
    for (let page = first; page < pages; page += 1) {
      await writeFile(join(folder, String(page)), 'text');
      await ctx.checkpoint(page + 1);
      if (page === 2) process.kill(process.pid, 'SIGKILL'); // the machine fails
    }
    return { output: `${pages} pages` };
  },
});
/** A dead worker's calls are found after this long; 30 s by default. */
const recovery = { lockDurationMs: 3_000, stalledIntervalMs: 1_000 };

async function startProcess(): Promise<ChildProcess> {
  const worker = spawn(process.execPath, [fileURLToPath(import.meta.url), 'worker'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await once(worker.stdout, 'data');
  return worker;
}

async function demonstrate(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-example-'));
  const pawl = await connect(recovery);
  const session = await pawl.openSession({ actorId: 'ada' });
  session.events.on('progress', ({ message }) => console.log(message));

  const doomed = await startProcess();
  const copying = session.call(copyPages, { folder, pages: 6 }, { idempotencyKey: 'copy-1' });
  await once(doomed, 'exit');
  console.log('killed after page 2');
  const next = await startProcess();

  const result = await copying;
  console.log(`${result.status}: ${result.output?.content}`);
  console.log(`pages that were written: ${(await readdir(folder)).sort().join(' ')}`);

  next.stdin?.end();
  await once(next, 'exit');
  await pawl.close();
  await rm(folder, { recursive: true });
}

if (process.argv[2] === 'worker') {
  const worker = await startWorker({ tools: [copyPages], ...recovery });
  console.log('ready');
  process.stdin.resume().once('end', () => worker.close());
} else {
  await demonstrate();
}
