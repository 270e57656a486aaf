/** Sub-agents: a session's calls start them, the program that holds the session does their thinking, and wait brings the answer. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { baseTools, connect, startWorker, type ToolResultEnvelope } from 'pawl';
import type { AgentEvent } from 'pawl/types';

const folder = await mkdtemp(join(tmpdir(), 'pawl-example-'));
await writeFile(join(folder, 'notes.txt'), 'one\ntwo\nthree\n');
const worker = await startWorker({ tools: baseTools });
const pawl = await connect();
const session = await pawl.openSession({ workspaceRoot: folder });

/** Stands in for a model: whatever the message says, it calls a tool through the agent's own session. */
async function think({ message, session: own }: AgentEvent) {
  if (message === 'count the lines of notes.txt') {
    const found = await own.call('grep_files', { pattern: '.', path: 'notes.txt' });
    const { length } = (found.output?.content as { lines: unknown[] } | undefined)?.lines ?? [];
    console.log(`the sub-agent reads: ${length} lines`);
    return { state: 'completed', output: `notes.txt has ${length} lines` } as const;
  }
  const refused = await own.call('write', { path: 'notes.txt', content: '' });
  console.log(`the sub-agent writes: ${refused.error?.code}`);
  return { state: 'failed', output: 'I may not write' } as const;
}

// The main session’s model calls these tools.
const spawned = agentOf(await session.call('spawn_agent', { message: 'count the lines of notes.txt' }));
console.log(`spawned: ${spawned.state}`);

session.events.on('agent', async (event) => {
  if (event.type !== 'closed') await session.reply(event, await think(event));
});
await waitFor('waited');
await session.call('send_input', { id: spawned.id, message: 'now empty it' });
await waitFor('told more');
const closed = agentOf(await session.call('close_agent', { id: spawned.id }));
console.log(`closed: ${closed.state}`);
const late = await session.call('send_input', { id: spawned.id, message: 'are you there?' });
console.log(`after that: ${late.error?.code}`);

await pawl.close();
await worker.close();
await rm(folder, { recursive: true });

function agentOf(result: ToolResultEnvelope) {
  return result.output?.content as { id: string; state: string };
}

async function waitFor(what: string) {
  const { output } = await session.call('wait', { ids: [spawned.id] });
  const [agent] = (output?.content as { agents: { state: string; output?: string }[] } | undefined)?.agents ?? [];
  console.log(`${what}: ${agent?.state}, "${agent?.output}"`);
}
