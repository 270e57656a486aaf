/** Each adapter with its library's own loop, where that is small enough to be here, and a model that follows a script. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import OpenAI from 'openai';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { CallNotice } from '../../../src/producer/adapters/model-tools.ts';
import {
  agentTools,
  type ChatToolMessage,
  chatTools,
  type ResponseItem,
  responsesTools,
} from '../../../src/producer/adapters/openai.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineFreeformTool } from '../../../src/shared/tools/tool-forms.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { countingTool } from '../../helpers/tools.ts';
import { weather } from './weather.ts';

describe('pawl/openai', () => {
  test('runs the function calls of a response, explains wrong ones, and gives up after two corrections (A15)', async () => {
    const { tool, runs } = weather();
    const { session } = await startFleet({ tools: [tool] });
    const given: string[] = [];
    const heard: CallNotice[] = [];
    const tools = await responsesTools(session, {
      onEvent: (event) => heard.push(event),
      onGivenUp: (name) => given.push(name),
    });
    expect(tools.tools).toMatchObject([
      { type: 'function', name: 'weather', strict: true, parameters: { required: ['city', 'units'] } },
    ]);
    const call = (id: string, args: string): ResponseItem => ({
      type: 'function_call',
      call_id: id,
      name: 'weather',
      arguments: args,
    });
    const good = call('1', '{"city":"Paris","units":null}');
    const outputs = await tools.run([{ type: 'reasoning' }, good, call('2', '{"city":"Atlantis","units":null}')]);
    expect(outputs).toMatchObject([
      { type: 'function_call_output', call_id: '1', output: '{"city":"Paris","degrees":21,"units":"celsius"}' },
      { call_id: '2', output: expect.stringContaining('no such city') },
    ]);
    expect(heard).toContainEqual(expect.objectContaining({ type: 'progress', message: 'asking for Paris' }));
    // The same answer of the model, run again after a restart of the loop.
    expect((await tools.run([good]))[0]?.output).toBe(outputs[0]?.output);
    expect(runs()).toBe(2);
    const wrong: string[] = [];
    for (const [index, args] of ['{', '{"city":7}', '{}'].entries())
      wrong.push(String((await tools.run([call(`w${index}`, args)]))[0]?.output));
    expect(wrong[0]).toContain('follow this schema: {"type":"object"');
    expect(wrong[1]).toContain('- city');
    expect(wrong[2]).toContain('Do not call weather again');
    expect(given).toEqual(['weather']);
  });

  test('runs no call of a response that was cut off before the call was complete', async () => {
    const { tool, runs } = weather();
    const pages: string[] = [];
    const base = { version: '1.0.0', description: 'Writes a page.', tier: 'read-only' } as const;
    const run = (text: string) => ({ output: pages.push(text) });
    const page = defineFreeformTool({ ...base, name: 'page', format: { type: 'text' }, run });
    const { session } = await startFleet({ tools: [tool, page] });
    const tools = await responsesTools(session);
    const calls: ResponseItem[] = [
      { type: 'function_call', call_id: '1', name: 'weather', arguments: '{"city":"Par"}', status: 'incomplete' },
      { type: 'custom_tool_call', call_id: '2', name: 'page', input: 'The first ha', status: 'incomplete' },
    ];
    const cutOff = expect.stringContaining('cut off before this call was complete');
    expect(await tools.run(calls)).toEqual([
      { type: 'function_call_output', call_id: '1', output: cutOff },
      { type: 'custom_tool_call_output', call_id: '2', output: cutOff },
    ]);
    expect([runs(), pages]).toEqual([0, []]);
    await tools.run(calls.map((call) => ({ ...call, status: 'completed' })));
    expect([runs(), pages]).toEqual([1, ['The first ha']]);
  });

  test('wrong parameters are explained with the tool’s current schema, even after a rollout of the fleet', async () => {
    const { tool } = weather();
    const { session, startWorker } = await startFleet({ tools: [tool] });
    const tools = await responsesTools(session);
    const next = defineTool({
      name: 'weather',
      version: '2.0.0',
      description: 'Current weather of a place.',
      tier: 'workspace',
      input: z.object({ partition: z.string() }),
      run: ({ partition }) => ({ output: { partition } }),
    });
    await startWorker({ tools: [next] });
    const call = { type: 'function_call', call_id: '1', name: 'weather', arguments: '{"city":"Paris","units":null}' };
    const explained = async () => String((await tools.run([call]))[0]?.output);
    const [, schema = ''] = (
      await eventually(async () => {
        const text = await explained();
        return text.startsWith('INVALID_PARAMS') ? text : undefined;
      })
    ).split('follow this schema: ');
    expect(JSON.parse(schema)).toMatchObject({ properties: { partition: { type: 'string' } } });
  });

  test('runs the tool calls of a message of Chat Completions, with OpenAI’s own client', async () => {
    const { tool, runs } = weather();
    const shot = defineTool({
      name: 'shot',
      version: '1.0.0',
      description: 'Shows the screen.',
      tier: 'read-only',
      input: z.object({}),
      run: () => ({ output: 'the screen', content: [{ type: 'image', data: 'iVBORw0KGgoA', mimeType: 'image/png' }] }),
    });
    const { session } = await startFleet({ tools: [tool, shot] });
    const call = (id: string, name: string, args: unknown) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    });
    const paris = call('1', 'weather', '{"city":"Paris","units":null}');
    const script = [
      // Some servers send an object, or nothing, where a text belongs.
      { tool_calls: [paris, call('2', 'weather', { city: 'Rome' }), call('3', 'shot', null), call('4', 'sun', '{}')] },
      { tool_calls: [paris, call('5', 'weather', '{"city":')] },
      { content: 'It is 21 degrees.' },
    ];
    const asked: { readonly messages: readonly object[]; readonly tools: readonly object[] }[] = [];
    const server = createServer((request, response) => {
      void json(request).then((body) => {
        const message = { role: 'assistant', content: null, ...script[asked.push(body as never) - 1] };
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify({ id: 'c', object: 'chat.completion', choices: [{ index: 0, message }] }));
      });
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const openai = new OpenAI({ baseURL: `http://127.0.0.1:${port}`, apiKey: 'none' });
    const { tools, run } = await chatTools(session);
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'The weather in Paris and Rome?' }];
    let answers: readonly ChatToolMessage[] = [];
    do {
      const { choices } = await openai.chat.completions.create({ model: 'gpt', messages, tools });
      const message = choices[0]?.message;
      if (message === undefined) throw new Error('no message');
      answers = await run(message.tool_calls);
      messages.push(message, ...answers);
    } while (answers.length > 0);
    expect(asked[0]?.tools).toMatchObject([
      { type: 'function', function: { name: 'shot', strict: true } },
      { type: 'function', function: { name: 'weather', strict: true, parameters: { required: ['city', 'units'] } } },
    ]);
    expect(asked.at(-1)?.messages.filter((message) => 'tool_call_id' in message)).toEqual([
      { role: 'tool', tool_call_id: '1', content: '{"city":"Paris","degrees":21,"units":"celsius"}' },
      { role: 'tool', tool_call_id: '2', content: '{"city":"Rome","degrees":21,"units":"celsius"}' },
      { role: 'tool', tool_call_id: '3', content: 'the screen\n[image/png, 9 bytes: cannot be shown to you]' },
      { role: 'tool', tool_call_id: '4', content: expect.stringContaining('UNKNOWN_TOOL: No tool "sun"') },
      { role: 'tool', tool_call_id: '1', content: '{"city":"Paris","degrees":21,"units":"celsius"}' },
      { role: 'tool', tool_call_id: '5', content: expect.stringContaining('are not JSON') },
    ]);
    expect(messages.at(-1)).toMatchObject({ content: 'It is 21 degrees.' });
    // Paris twice: an ID names a call within one answer.
    expect(runs()).toBe(3);
  });

  test('arguments that a gateway hands on as an object are those', async () => {
    const { tool } = weather();
    const { session } = await startFleet({ tools: [tool] });
    const { run } = await responsesTools(session);
    const call = { type: 'function_call', call_id: '1', name: 'weather', arguments: { city: 'Rome' } };
    expect(await run([call])).toMatchObject([{ output: expect.stringContaining('"city":"Rome"') }]);
  });

  test('makes tools of the Agents SDK with its own function', async () => {
    const { tool } = weather();
    const { session } = await startFleet({ tools: [tool] });
    const [made] = await agentTools(session, (definition) => definition);
    expect(made).toMatchObject({ name: 'weather', strict: true, parameters: { additionalProperties: false } });
    expect(await made?.execute({ city: 'Rome', units: null }, undefined, { toolCall: { callId: 'c' } })).toContain(
      'Rome',
    );
  });
});

test('Chat Completions gets descriptions that it takes, cut between characters; Responses gets the whole', async () => {
  const longTool = (name: string, description: string) =>
    defineTool({
      name,
      version: '1.0.0',
      description,
      tier: 'read-only',
      input: z.object({}),
      run: async () => ({ output: 1 }),
    });
  const texts = ['d'.repeat(1_024), 'd'.repeat(1_025), `${'d'.repeat(1_022)}\u{1F600}\u{1F600}`];
  const { session } = await startFleet({ tools: texts.map((text, index) => longTool(`tool${index}`, text)) });
  const { tools } = await chatTools(session);
  expect(tools.map((each) => each.function.description)).toEqual([
    texts[0],
    `${'d'.repeat(1_023)}…`,
    `${'d'.repeat(1_022)}…`,
  ]);
  expect((await responsesTools(session)).tools).toMatchObject(texts.map((description) => ({ description })));
});

const readCall = (path: string) => ({
  id: 'read:0',
  function: { name: 'read', arguments: JSON.stringify({ path }) },
});

const contents = (answers: readonly ChatToolMessage[]) => answers.map(({ content }) => content);

test('the same call twice in a later answer has one new result, whichever of the two is answered first', async () => {
  const { tool } = countingTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  await (await chatTools(session)).run([readCall('a')]);
  const resumed = await pawl.session(session.key);
  const second = Promise.withResolvers<void>();
  const submit = resumed.submit.bind(resumed);
  let submitted = 0;
  const submitSecondFirst = async (...args: Parameters<typeof submit>) => {
    submitted += 1;
    if (submitted === 1) await second.promise;
    else second.resolve();
    return submit(...args);
  };
  Object.assign(resumed, { submit: submitSecondFirst });
  const tools = await chatTools(resumed);
  await tools.run([]);
  const answer = [readCall('a'), readCall('a')];
  expect(contents(await tools.run(answer))).toEqual(['run 2', 'run 2']);
  for (const each of answer) expect(contents(await tools.run([each]))).toEqual(['run 2']);
});

test.each(['the same objects', 'copies'])(
  'a later answer that failed while its calls ran, and runs again as %s, has no earlier result and runs each call once',
  async (form) => {
    const { tool, runs } = countingTool();
    const { session, pawl } = await startFleet({ tools: [tool] });
    await (await chatTools(session)).run([readCall('a')]);
    const resumed = await pawl.session(session.key);
    const outage = Promise.withResolvers<void>();
    const submit = resumed.submit.bind(resumed);
    let isDown = true;
    const results: Promise<unknown>[] = [];
    const submitInOutage = async (...args: Parameters<typeof submit>) => {
      if (isDown && JSON.stringify(args[1]).includes('b')) throw new PawlError('BACKEND_UNAVAILABLE');
      if (isDown) await outage.promise;
      const submission = await submit(...args);
      results.push(Promise.resolve(submission.result));
      return submission;
    };
    Object.assign(resumed, { submit: submitInOutage });
    const tools = await chatTools(resumed);
    await tools.run([]);
    const answer = [readCall('a'), readCall('b')];
    await expect(tools.run(answer)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    isDown = false;
    const again = contents(await tools.run(form === 'copies' ? structuredClone(answer) : answer));
    expect(again.toSorted()).toEqual(['run 2', 'run 3']);
    // The first run's other call goes on.
    outage.resolve();
    await eventually(() => results.length === 5, { what: 'the calls of both runs' });
    await Promise.all(results);
    expect(runs()).toBe(3);
  },
);
