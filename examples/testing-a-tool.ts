/** Tests of a tool: with its caller's eyes, with its own, and with time in your hands. No Redis, no workers, the same rules. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { defineTool } from 'pawl';
import { createLocalRunner, fakeClock, runTool, testContext } from 'pawl/testing';
import { z } from 'zod';

/** The service fails this often before it answers. */
let failuresLeft = 0;

const note = defineTool({
  name: 'take_note',
  version: '1.0.0',
  description: 'Writes a note into the workspace.',
  tier: 'workspace',
  effects: 'idempotent',
  needs: ['workspace:write'],
  input: z.object({ title: z.string().min(1), text: z.string() }),
  async run({ title, text }, ctx) {
    if (failuresLeft-- > 0) throw Object.assign(new Error('the disk is busy'), { status: 503 });
    ctx.progress({ progress: 1, total: 2, message: title });
    const { bytes } = await ctx.workspace.write(`${title}.md`, text);
    return { output: { bytes } };
  },
});

// One call, as its caller sees it. Nothing waits between two attempts.
failuresLeft = 2;
const result = await runTool(note, { title: 'milk', text: 'Buy milk.' });
assert.equal(result.status, 'success');
assert.equal(result.attempts, 3);
console.log(`one call: ${result.status} after ${result.attempts} attempts, ${result.output?.content.bytes} bytes`);

// The tool must refuse wrong parameters, and sessions without its permission.
const invalid = await runTool(note, { title: '', text: '' });
console.log(`an empty title: ${invalid.error?.code} at ${invalid.error?.issues?.[0]?.path}`);
const denied = await runTool(note, { title: 'milk', text: '' }, { kind: 'worker' });
console.log(`from a worker session: ${denied.error?.code}`);

// The function alone, and what it left behind.
const ctx = testContext({ needs: note.needs });
await note.run({ title: 'tea', text: 'Buy tea.' }, ctx);
const written = readFileSync(`${ctx.workspaceRoot}/tea.md`, 'utf8');
console.log(`the function alone: reported ${ctx.progressed[0]?.message}, wrote ${JSON.stringify(written)}`);
ctx.dispose();

// Time in your hands: the waits of the retries, and a replay that ends after 24 hours.
const clock = fakeClock();
const workspace = testContext();
const runner = createLocalRunner({ tools: [note], clock, workspaceRoot: workspace.workspaceRoot, random: () => 0.5 });
const call = () => clock.until(runner.run(note, { title: 'bread', text: 'Buy bread.' }, { idempotencyKey: 'bread' }));
failuresLeft = 3;
const { durationMs } = await call();
const replayed = await call();
await clock.advance(24 * 60 * 60_000 + 1);
const again = await call();
console.log(`with a fake clock: ${durationMs} ms, replayed ${replayed.fromCache}, a day later ${again.fromCache}`);
await runner.close();
workspace.dispose();
