import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, inject, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { aiSdkTools } from '../../../src/producer/adapters/ai-sdk.ts';
import { messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { langchainTools } from '../../../src/producer/adapters/langchain.ts';
import type { AdapterOptions } from '../../../src/producer/adapters/model-tools.ts';
import { agentTools, responsesTools } from '../../../src/producer/adapters/openai.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineUntypedTool, functionTool } from '../../../src/shared/tools/tool-forms.ts';
import type { ToolResult } from '../../../src/shared/tools/tool-result.ts';
import { read } from '../../../src/workers/tools/read.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { startScript } from '../../helpers/process.ts';
import { weather } from './weather.ts';

test('pawl/anthropic runs the tool_use blocks of a message, sent over HTTP by a scripted model', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const tools = await messagesTools(session);
  const asked: { readonly messages: readonly { readonly content: unknown }[]; readonly tools: unknown }[] = [];
  const script = [
    [
      { type: 'text', text: 'Let me look.' },
      { type: 'tool_use', id: 'a', name: 'weather', input: { city: 'Paris' } },
      { type: 'tool_use', id: 'b', name: 'weather', input: { town: 'Paris' } },
    ],
    [{ type: 'text', text: 'It is 21 degrees.' }],
  ];
  const model = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      asked.push(JSON.parse(Buffer.concat(parts).toString()));
      response.end(JSON.stringify({ content: script[asked.length - 1] }));
    });
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void model.close());
  await new Promise((resolve) => model.once('listening', resolve));
  const messages: { role: string; content: unknown }[] = [{ role: 'user', content: 'The weather in Paris?' }];
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${(model.address() as AddressInfo).port}`, {
      method: 'POST',
      body: JSON.stringify({ messages, tools: tools.tools }),
    });
    const { content } = (await answer.json()) as { readonly content: { readonly type: string }[] };
    const results = await tools.run(content);
    if (results.length === 0) break;
    messages.push({ role: 'assistant', content }, { role: 'user', content: results });
  }
  expect(asked[0]?.tools).toMatchObject([{ name: 'weather', input_schema: { type: 'object' } }]);
  expect(asked[1]?.messages.at(-1)?.content).toMatchObject([
    { type: 'tool_result', tool_use_id: 'a', content: expect.stringContaining('21') },
    { type: 'tool_result', tool_use_id: 'b', is_error: true, content: expect.stringContaining('INVALID_PARAMS') },
  ]);
});

test('a fault of parameters is reported once', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const tools = await messagesTools(session);
  const [answer] = await tools.run([{ type: 'tool_use', id: 'a', name: 'weather', input: { city: 7 } }]);
  expect(answer?.content).toMatch(
    /^INVALID_PARAMS: The parameters of weather are not valid:\n- city: must be string; got 7\nCall weather again/,
  );
});

test('a tool whose parameters are a choice is called by its alternatives, beside the other tools', async () => {
  const input = z.discriminatedUnion('op', [
    z.object({ op: z.literal('add'), text: z.string(), mark: z.number().optional() }),
    z.object({ op: z.literal('remove'), index: z.number() }),
  ]);
  const list = defineTool({
    name: 'list',
    version: '1.0.0',
    description: 'A list.',
    tier: 'read-only',
    input,
    run: (params) => ({ output: params }),
  });
  const { session } = await startFleet({ tools: [list, weather().tool] });
  const responses = await responsesTools(session);
  const messages = await messagesTools(session);
  for (const tool of [...responses.tools, ...messages.tools]) {
    const schema = 'input_schema' in tool ? tool.input_schema : 'parameters' in tool ? tool.parameters : {};
    expect(schema).toMatchObject({ type: 'object' });
    expect(schema).not.toHaveProperty('oneOf');
  }
  const sent = { op: 'add', text: 'x', mark: null, index: null };
  const call = { type: 'function_call', call_id: '1', name: 'list', arguments: JSON.stringify(sent) };
  expect(await responses.run([call])).toMatchObject([{ output: '{"op":"add","text":"x"}' }]);
  const wrong = { type: 'tool_use', id: '2', name: 'list', input: { op: 'remove', text: 'x' } };
  const [refused] = await messages.run([wrong]);
  expect(String(refused?.content).split('\n').slice(1, 3)).toEqual([
    '- index: is required and missing',
    '- text: is unknown. Allowed: op, index',
  ]);
});

test('a soft failure is marked as an error, if the library supports that', async () => {
  const png = { type: 'image', data: 'iVBORw0KGgoA', mimeType: 'image/png' } as const;
  const check = defineTool({
    name: 'check',
    version: '1.0.0',
    description: 'Runs the tests.',
    tier: 'read-only',
    input: z.object({ shot: z.boolean().optional() }),
    run: ({ shot }) => ({ output: 'two failed', success: false, ...(shot ? { content: [png] } : {}) }),
  });
  const { session } = await startFleet({ tools: [check] });
  const messages = await messagesTools(session);
  const use = (input: object) => messages.run([{ type: 'tool_use', id: JSON.stringify(input), name: 'check', input }]);
  expect(await use({})).toMatchObject([{ content: 'two failed', is_error: true }]);
  // With an image the API would refuse the whole request.
  expect((await use({ shot: true }))[0]).not.toHaveProperty('is_error');
  const [chain] = await langchainTools(session);
  const call = { type: 'tool_call', id: 'x', name: 'check', args: {} };
  expect(await chain?.invoke(call as never)).toMatchObject({ status: 'error', content: 'two failed' });
  const { check: made } = await aiSdkTools(session, { preliminary: false });
  const output = await made?.execute?.({}, { toolCallId: 'y', messages: [], context: undefined } as never);
  expect(output).toMatchObject({ isError: true });
});

test('a failure without a message gets one, because Anthropic refuses an empty error', async () => {
  const check = defineTool({
    name: 'check',
    version: '1.0.0',
    description: 'Runs the tests.',
    tier: 'read-only',
    input: z.object({ display: z.string().optional() }),
    run: ({ display }) => ({ output: '', success: false, ...(display === undefined ? {} : { display }) }),
  });
  const { session } = await startFleet({ tools: [check] });
  const { run } = await messagesTools(session);
  const use = (id: string, input: object) => ({ type: 'tool_use', id, name: 'check', input });
  expect(await run([use('a', {}), use('b', { display: 'two failed' })])).toEqual([
    {
      type: 'tool_result',
      tool_use_id: 'a',
      content: 'The tool answered that it failed, and gave no reason.',
      is_error: true,
    },
    { type: 'tool_result', tool_use_id: 'b', content: 'two failed', is_error: true },
  ]);
});

test('libraries that talk to every provider get parameters that none refuses, and calls lead back', async () => {
  const list = defineUntypedTool({
    name: 'list',
    version: '1.0.0',
    description: 'Lists files.',
    tier: 'read-only',
    inputSchema: {
      type: 'object',
      properties: { $filter: { type: 'string' }, range: { type: 'array', prefixItems: [{ type: 'number' }] } },
      required: ['$filter'],
      additionalProperties: false,
    },
    run: (params) => ({ output: params }),
  });
  const { session } = await startFleet({ tools: [list] });
  const shown = { properties: { _filter: { type: 'string' }, range: { items: {} } }, required: ['_filter'] };
  const params = { _filter: 'x', range: [1] };
  const { list: made } = await aiSdkTools(session, { preliminary: false });
  expect(made?.inputSchema).toMatchObject({ jsonSchema: shown });
  const output = await made?.execute?.(params, { toolCallId: 'a', messages: [], context: undefined } as never);
  expect(output).toMatchObject({ text: '{"$filter":"x","range":[1]}', isError: false });
  const [chain] = await langchainTools(session);
  expect(chain?.schema).toMatchObject(shown);
  const call = { type: 'tool_call', id: 'b', name: 'list', args: params };
  expect(await chain?.invoke(call as never)).toMatchObject({ content: '{"$filter":"x","range":[1]}' });
  // A wrong call is explained with the parameters that the model was shown.
  const wrong = await made?.execute?.({}, { toolCallId: 'c', messages: [], context: undefined } as never);
  expect(wrong).toMatchObject({ text: expect.stringContaining(JSON.stringify(chain?.schema)), isError: true });
  expect(await chain?.invoke({ ...call, id: 'd', args: { range: 1 } } as never)).toMatchObject({
    content: expect.stringContaining(JSON.stringify(chain?.schema)),
  });
});

test('a record’s names, which are texts like all names, are not described: the AI SDK warns of them at each request', async () => {
  const tags = z.record(z.string(), z.string());
  const label = functionTool('label', 'Labels a file.', z.object({ tags }), () => 'done');
  expect(JSON.stringify(label.inputSchema)).toContain('propertyNames');
  const { session } = await startFleet({ tools: [label], tiers: ['system'] });
  const { label: made } = await aiSdkTools(session);
  const open = { tags: { type: 'object', additionalProperties: { type: 'string' } } };
  expect(made?.inputSchema).toMatchObject({ jsonSchema: { properties: open } });
  expect(JSON.stringify(made?.inputSchema)).not.toContain('propertyNames');
});

test('a large result comes to the model up to a size, and whole to the caller', async () => {
  const rows = Array.from({ length: 20_000 }, (_, index) => `row ${index}`);
  const table = defineTool({
    name: 'table',
    version: '1.0.0',
    description: 'Has many rows.',
    tier: 'read-only',
    input: z.object({ beside: z.boolean() }),
    run: ({ beside }): ToolResult<unknown> =>
      beside ? { output: 'rows', content: [{ type: 'text', text: rows.join(' ') }] } : { output: { rows } },
  });
  const { session } = await startFleet({ tools: [table] });
  const shown = async (options: AdapterOptions, beside = false) => {
    const tools = await messagesTools(session, options);
    return String(
      (await tools.run([{ type: 'tool_use', id: `${beside}`, name: 'table', input: { beside } }]))[0]?.content,
    );
  };
  const text = await shown({});
  expect(text).toMatch(/^\{"rows":\["row 0".*\[cut: 65536 of \d+ bytes are shown/);
  expect(text.split('\n').at(-1)).toBe('[This is not all of it: call again for a smaller part to see more.]');
  expect(text.length).toBeLessThan(66_000);
  expect((await shown({ maxOutputBytes: 1_000 }, true)).length).toBeLessThan(1_200);
  expect(JSON.parse(await shown({ maxOutputBytes: 10_000_000 }))).toEqual({ rows });
  const result = await session.call(table, { beside: false }, { toolCallId: 'false' });
  expect(result).toMatchObject({ output: { content: { rows } } });
});

test('a call without arguments has none, in every form, and an answer', async () => {
  const tool = defineTool({
    name: 'shell',
    version: '1.0.0',
    description: 'Runs a program.',
    tier: 'read-only',
    effects: 'none',
    variant: { type: 'local-shell' },
    input: z.object({ command: z.array(z.string()).optional() }),
    run: ({ command = ['true'] }) => ({ output: command.join(' ') }),
  });
  const { session } = await startFleet({ tools: [tool] });
  const messages = await messagesTools(session);
  expect(await messages.run([{ type: 'tool_use', id: 'a', name: 'shell' }])).toMatchObject([{ content: 'true' }]);
  const responses = await responsesTools(session, { native: true });
  expect(await responses.run([{ type: 'local_shell_call', call_id: 'b' }])).toMatchObject([{ output: 'true' }]);
  const { shell } = await aiSdkTools(session, { preliminary: false });
  const options = { toolCallId: 'c', messages: [], context: {} };
  expect(await shell?.execute?.(undefined as never, options as never)).toMatchObject({ text: 'true' });
});

test('calls belong to the given turn, and its budget counts through every adapter', async () => {
  const { tool } = weather();
  const { pawl } = await startFleet({ tools: [tool] });
  const session = await pawl.openSession({ budget: { perTurn: { calls: 1 } } });
  let turn = 0;
  const turnId = () => `turn-${turn}`;
  const messages = await messagesTools(session, { turnId });
  const responses = await responsesTools(session);
  const { weather: ai } = await aiSdkTools(session, { turnId, preliminary: false });
  const [agent] = await agentTools(session, (definition) => definition, { turnId });
  const [chain] = await langchainTools(session, { turnId });
  const input = { city: 'Bern' };
  const ask: ((id: string) => Promise<unknown>)[] = [
    (id) => messages.run([{ type: 'tool_use', id, name: 'weather', input }]),
    (id) => {
      const call = { type: 'function_call', call_id: id, name: 'weather', arguments: JSON.stringify(input) };
      return responses.run([call], { turnId: turnId() });
    },
    async (id) => ai?.execute?.(input, { toolCallId: id, messages: [], context: undefined } as never),
    async (id) => agent?.execute(input, undefined, { toolCall: { callId: id } }),
    async (id) => chain?.invoke({ type: 'tool_call', id, name: 'weather', args: input } as never),
  ];
  for (const answer of ask) {
    turn += 1;
    expect(JSON.stringify(await answer(`${turn}a`))).toContain('degrees');
    expect(JSON.stringify(await answer(`${turn}b`))).toContain('BUDGET_EXHAUSTED');
    // The same answer of a model, run again.
    expect(JSON.stringify(await answer(`${turn}a`))).toContain('degrees');
  }
});

test('calls of one answer that are wrong together are one correction, and the model may try again', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const given: string[] = [];
  const tools = await messagesTools(session, { onGivenUp: (name) => given.push(name) });
  const answer = (round: number) =>
    tools.run(
      ['a', 'b', 'c', 'd'].map((id) => ({
        type: 'tool_use',
        id: `${round}${id}`,
        name: 'weather',
        input: { town: id },
      })),
    );
  for (const round of [1, 2])
    for (const { content } of await answer(round)) expect(content).toContain('Call weather again with parameters');
  expect(given).toEqual([]);
  for (const { content } of await answer(3)) expect(content).toContain('Do not call weather again');
  expect(given).toEqual(['weather']);
});

test('the parent session is notified of a tool whose arguments a model could not correct, as by callWithReask (A15)', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const branch = await session.branch();
  const heard: unknown[] = [];
  session.events.on('invalid-params', (event) => heard.push(event));
  const tools = await messagesTools(branch, {
    onGivenUp() {
      throw new Error('mine');
    },
  });
  for (const [index, input] of ([{ city: 7 }, 'no object', { city: 8 }] as const).entries())
    await tools.run([{ type: 'tool_use', id: `${index}`, name: 'weather', input: input as never }]);
  const result = { status: 'error', toolName: 'weather', error: { code: 'INVALID_PARAMS' } };
  expect(heard).toMatchObject([{ sessionKey: branch.key, toolName: 'weather', reasks: 2, result }]);
});

test('a call of a model is reported as settled, and a listener that throws does not keep its answer from the model', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const settled: string[] = [];
  session.events.on('settled', ({ status }) => settled.push(status));
  const tools = await messagesTools(session, {
    onEvent() {
      throw new Error('mine');
    },
  });
  const [answer] = await tools.run([{ type: 'tool_use', id: 'a', name: 'weather', input: { city: 'Paris' } }]);
  expect(answer?.content).toContain('degrees');
  expect(settled).toEqual(['success']);
});

test('parameters that follow the schema and that the tool refuses are not counted, and bring no schema', async () => {
  const { pawl } = await startFleet({ tools: [read] });
  const workspaceRoot = temporaryFolder();
  const session = await pawl.openSession({ workspaceRoot });
  const file = join(workspaceRoot, 'a.bin');
  writeFileSync(file, Buffer.from([0, 1, 2]));
  const given: string[] = [];
  const tools = await messagesTools(session, { onGivenUp: (name) => given.push(name) });
  for (const id of ['a', 'b', 'c', 'd']) {
    const input = { path: basename(file) };
    const [answer] = await tools.run([{ type: 'tool_use', id, name: 'read', input }]);
    expect(answer).toMatchObject({ is_error: true, content: expect.stringMatching(/^INVALID_PARAMS: .*binary/) });
    expect(answer?.content).not.toMatch(/schema|again/);
  }
  expect(given).toEqual([]);
});

test('whatever a model server gives as a call’s ID, the call runs: an empty one, a very long one', async () => {
  const { tool, runs } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const tools = await responsesTools(session);
  const made = (id: string) => {
    return { type: 'function_call', call_id: id, name: 'weather', arguments: '{"city":"Rome","units":null}' };
  };
  const long = `call_1__thought__${'x'.repeat(2_000)}`;
  const signed = made(long);
  // The signed one comes in the same answer twice.
  for (const call of [made(''), made(''), signed, signed, made(`${long}y`)])
    expect((await tools.run([call]))[0]).toMatchObject({
      call_id: call.call_id,
      output: expect.stringContaining('degrees'),
    });
  expect(runs()).toBe(4);
});

test('many calls in one answer of a model are no leak of listeners', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const tools = await messagesTools(session);
  const warn = vi.spyOn(process, 'emitWarning');
  onTestFinished(() => warn.mockRestore());
  const ids = Array.from({ length: 12 }, (_, index) => `call-${index}`);
  const answers = await tools.run(
    ids.map((id) => ({ type: 'tool_use', id, name: 'weather', input: { city: id } })),
    { signal: new AbortController().signal },
  );
  expect(answers).toHaveLength(ids.length);
  expect(warn).not.toHaveBeenCalled();
});

test.each([
  ['ai-sdk', 'aiSdkTools', 'ai'],
  ['langchain', 'langchainTools', '@langchain/core'],
])('pawl/%s without its peer names the package, and how to install it', async (entry, name, peer) => {
  const adapter = pathToFileURL(join(inject('builtPackage'), `dist/producer/adapters/${entry}.js`)).href;
  const file = join(temporaryFolder(), 'program.mjs');
  writeFileSync(
    file,
    `import { registerHooks } from 'node:module';
registerHooks({
  resolve(name, context, next) {
    if (!(name + '/').startsWith('${peer}/')) return next(name, context);
    throw new Error("Cannot find package '${peer}' imported from " + context.parentURL);
  },
});
const { ${name} } = await import('${adapter}');
await ${name}({}).catch(({ code, message }) => console.log(code, message));
`,
  );
  const program = startScript(file);
  await program.ended;
  expect(program.stdout() + program.stderr()).toBe(
    `CONFIGURATION pawl/${entry} needs ${peer}, which cannot be loaded: npm install ${peer}, and restart the program. (Cannot find package '${peer}')\n`,
  );
});
