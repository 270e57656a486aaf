/**
 * A worker dies in the middle of a call that must not run twice. Whether the effect took place is unknown, so the call ends in doubt,
 * and a person who can look it up resolves the call.
 *
 * This file is both processes: `node unknown-outcome.ts worker FILE` is the worker.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const letters = defineTool({
  name: 'send_letter',
  version: '1.0.0',
  description: 'Sends a letter.',
  tier: 'system',
  effects: 'once',
  input: z.object({ outbox: z.string(), to: z.string() }),
  run: async ({ outbox, to }, ctx) => {
    await appendFile(outbox, `letter to ${to}\n`); // the effect …
    ctx.progress({ progress: 1 });
    await sleep(60_000, undefined, { signal: ctx.signal }); // … and much too long a wait for its confirmation
    return { output: { to } };
  },
});
/** A dead worker's calls are found after this long; 30 s by default. */
const recovery = { lockDurationMs: 3_000, stalledIntervalMs: 1_000 };

async function demonstrate(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-example-'));
  const outbox = join(folder, 'outbox.txt');
  const pawl = await connect(recovery);
  const session = await pawl.openSession({ actorId: 'ada' });
  const key = { idempotencyKey: 'letter-1' };

  const doomed = spawn(process.execPath, [fileURLToPath(import.meta.url), 'worker'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await once(doomed.stdout, 'data');
  session.events.once('progress', () => doomed.kill('SIGKILL'));
  const sending = session.call(letters, { outbox, to: 'Bob' }, key);
  await once(doomed, 'exit');
  const worker = await startWorker({ tools: [letters], ...recovery });

  const result = await sending;
  console.log(`the worker died: ${result.error?.code}`);
  const again = await session.call(letters, { outbox, to: 'Bob' }, key);
  console.log(`asked again: ${again.error?.code}, nothing runs`);

  const sent = await readFile(outbox, 'utf8');
  console.log(`the outbox holds: ${sent.trim()}`);
  const as = sent.includes('Bob') ? ({ as: 'succeeded', output: { to: 'Bob' } } as const) : ({ as: 'retry' } as const);
  await pawl.resolve(result.callId ?? '', as);
  const resolved = await session.call(letters, { outbox, to: 'Bob' }, key);
  console.log(
    `resolved as ${as.as}: ${resolved.status}, ${(await readFile(outbox, 'utf8')).split('\n').length - 1} letter`,
  );

  await pawl.close();
  await worker.close();
  await rm(folder, { recursive: true });
}

if (process.argv[2] === 'worker') {
  await startWorker({ tools: [letters], ...recovery });
  console.log('ready');
  // Ends with the process that started it, whatever happens there.
  process.stdin.resume().once('end', () => process.exit());
} else {
  await demonstrate();
}
