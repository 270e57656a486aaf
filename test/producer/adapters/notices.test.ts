/** The notices of calls that run for long, many of them in one session. */
import { setImmediate } from 'node:timers/promises';
import { queryObjects } from 'node:v8';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { type CallNotice, messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { signal } from '../../helpers/signal.ts';

const NOTICES = 100;

test('a notice leaves nothing with a call that goes on, whichever call it is of', async () => {
  const started = signal<string>();
  const release = signal();
  const hold = defineTool({
    name: 'hold',
    version: '1.0.0',
    description: 'Takes its time.',
    tier: 'read-only',
    input: z.object({}),
    async run(_params, { callId }) {
      started.fire(callId);
      await release.promise;
      return { output: 'held' };
    },
  });
  const { session } = await startFleet({ tools: [hold] });
  const heard: CallNotice[] = [];
  const tools = await messagesTools(session, { onEvent: (notice) => heard.push(notice) });
  const running = tools.run([{ type: 'tool_use', id: 'a', name: 'hold', input: {} }]);
  const callId = await started.promise;
  const emitAll = async () => {
    for (let progress = 0; progress < NOTICES; progress += 1) {
      for (const of of [callId, 'another']) session.emit('progress', { callId: of, progress });
      await setImmediate();
    }
  };
  await emitAll();
  const before = queryObjects(Promise, { format: 'count' });
  await emitAll();
  expect(queryObjects(Promise, { format: 'count' }) - before).toBeLessThan(NOTICES / 2);
  expect(heard).toHaveLength(2 * NOTICES);
  release.fire();
  expect(await running).toMatchObject([{ tool_use_id: 'a', content: 'held' }]);
});
