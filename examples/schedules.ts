/**
 * A schedule makes a call every second, on time, in the name of a session. It is paused, let run by hand, and removed. Cron expressions
 * name times in a zone, whose clocks may change.
 */
import { EventEmitter, once } from 'node:events';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const seconds: string[] = [];
const reports = new EventEmitter();
const report = defineTool({
  name: 'report',
  version: '1.0.0',
  description: 'Writes the report of a moment.',
  tier: 'workspace',
  input: z.object({ title: z.string() }),
  run: ({ title }, ctx) => {
    seconds.push(String(ctx.values.get('scheduledAt')).slice(17, -1));
    reports.emit('written');
    return { output: { title } };
  },
});

const worker = await startWorker({ tools: [report] });
// `pawl up` and `pawl serve` start what is due; a program of its own does so with `schedules: true`.
const pawl = await connect({ schedules: true });
const session = await pawl.openSession({ actorId: 'ada' });

await pawl.schedules.put({ id: 'often', tool: report, params: { title: 'hi' }, session: session.key, every: '1s' });
for (const _ of [1, 2]) await once(reports, 'written');
const paused = await pawl.schedules.pause('often', { reason: 'enough' });
console.log(
  `every second: ${seconds.every((second) => second.endsWith('.000'))}, now ${paused.state}: ${paused.pauseReason}`,
);

const { callId } = await pawl.schedules.run('often');
console.log(`by hand: ${(await pawl.result(callId))?.status}`);
await pawl.schedules.remove('often');

const nightly = await pawl.schedules.put({
  id: 'nightly',
  tool: report,
  params: { title: 'night' },
  session: session.key,
  cron: '30 2 * * *',
  timezone: 'Europe/Berlin',
  from: '2099-03-28T00:00:00Z',
});
console.log(`the clocks change: ${nightly.next.slice(0, 3).join(', ')}`);

const wrong = { id: 'wrong', tool: report, params: { title: '' }, session: session.key, cron: '0 25 * * *' };
const refused = await pawl.schedules.put(wrong).catch((error: { code: string; issues: { path: string }[] }) => error);
if ('issues' in refused) console.log(`a wrong one: ${refused.code} at ${refused.issues[0]?.path}`);

await pawl.close();
await worker.close();
