import { AIMessage, type ToolMessage } from '@langchain/core/messages';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { langchainTools } from '../../../src/producer/adapters/langchain.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { countingTool } from '../../helpers/tools.ts';
import { weather } from './weather.ts';

test('pawl/langchain: a message’s tool calls become tool messages, with custom events on the way', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const [made] = await langchainTools(session);
  if (made === undefined) throw new Error('there is no tool');
  const { tool_calls: calls = [] } = new AIMessage({
    content: '',
    tool_calls: [
      { type: 'tool_call', id: 'x', name: 'weather', args: { city: 'Bern' } },
      { type: 'tool_call', id: 'y', name: 'weather', args: { city: 7 } },
    ],
  });
  const events: unknown[] = [];
  const answers: ToolMessage[] = [];
  for (const call of calls)
    answers.push(
      (await made.invoke({ ...call, type: 'tool_call' } as never, {
        callbacks: [{ handleCustomEvent: (name: string, data: unknown) => void events.push([name, data]) }],
      })) as unknown as ToolMessage,
    );
  expect(answers).toMatchObject([
    { tool_call_id: 'x', status: 'success', content: expect.stringContaining('Bern') },
    { tool_call_id: 'y', status: 'error', content: expect.stringContaining('INVALID_PARAMS') },
  ]);
  // LangChain calls back in its own time.
  await eventually(() => {
    expect(events).toContainEqual(['pawl', expect.objectContaining({ type: 'progress', message: 'asking for Bern' })]);
    return true;
  });
});

test('pawl/langchain: a call whose null LangChain refuses runs once, too, and is cancelled with its request', async () => {
  const request = new AbortController();
  let runs = 0;
  const tool = defineTool({
    name: 'wait',
    version: '1.0.0',
    description: 'Waits until it is cancelled.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ long: z.boolean(), why: z.string().optional() }),
    async run({ long }, ctx) {
      runs += 1;
      if (long) {
        request.abort();
        await new Promise((_, reject) => ctx.signal.addEventListener('abort', reject));
      }
      return { output: 'waited' };
    },
  });
  const { session } = await startFleet({ tools: [tool] });
  const [made] = await langchainTools(session);
  const call = (id: string, long: boolean) => ({ type: 'tool_call', id, name: 'wait', args: { long, why: null } });
  const invoke = (asked: object) =>
    made?.invoke(asked as never, { signal: request.signal }) as unknown as Promise<ToolMessage>;
  const short = call('a', false);
  expect(await invoke(short)).toMatchObject({ tool_call_id: 'a', status: 'success' });
  expect(await invoke(short)).toMatchObject({ tool_call_id: 'a', status: 'success' });
  expect(runs).toBe(1);
  expect(await invoke(call('b', true))).toMatchObject({
    status: 'error',
    content: expect.stringContaining('CANCELLED'),
  });
});

test('pawl/langchain: a loop within one LangGraph task has a call for each response, and the same ones when the task runs again', async () => {
  const { tool } = countingTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  const runTask = async (responses: number) => {
    const [read] = await langchainTools(await pawl.session(session.key));
    const config = { configurable: { checkpoint_ns: 'agent:1' }, executionInfo: {} };
    const answers: unknown[] = [];
    for (let response = 1; response <= responses; response += 1) {
      const call = { type: 'tool_call', id: 'read:0', name: 'read', args: { path: 'n.txt' } };
      const message = (await read?.invoke(call as never, config)) as unknown as ToolMessage;
      answers.push(message.content);
    }
    return answers;
  };
  expect(await runTask(2)).toEqual(['run 1', 'run 2']);
  expect(await runTask(3)).toEqual(['run 1', 'run 2', 'run 3']);
});
