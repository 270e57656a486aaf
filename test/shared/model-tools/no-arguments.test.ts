/** What model servers send where a call has no arguments, or puts more around them, is read as what was meant. */
import { expect, test } from 'vitest';
import { messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { chatTools, responsesTools } from '../../../src/producer/adapters/openai.ts';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { repairParams } from '../../../src/shared/model-tools/repair-params.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { startFleet } from '../../helpers/fleet.ts';

const tool = defineUntypedTool({
  name: 'status',
  version: '1.0.0',
  description: 'Says how things are.',
  tier: 'read-only',
  inputSchema: { type: 'object', properties: { city: { type: 'string' } }, additionalProperties: false },
  run: (params) => ({ output: params }),
});
const MARK = '\uFEFF';
const TEXTS = ['', ' ', '\n\t ', 'null', ' null\n', MARK, `${MARK} `, '{}', `${MARK}{}`];
const NOTHING = [...TEXTS, ...TEXTS.map((text) => JSON.stringify(text)), null, undefined, {}];

test.each(NOTHING)('%j is no arguments', async (given) => {
  const call = { kind: 'function', name: 'status', arguments: given as never } as const;
  expect(decodeCall(toolsFor('openai', [tool]), [tool], call).params).toEqual({});
});

test.each([
  `${MARK}{"city":"Oslo"}`,
  ' {"city":"Oslo"}\n',
  `{"city":"Oslo"}${MARK}`,
  JSON.stringify('{"city":"Oslo"}'),
])('%j has an argument', (given) => {
  const call = { kind: 'function', name: 'status', arguments: given } as const;
  expect(decodeCall(toolsFor('openai', [tool]), [tool], call).params).toEqual({ city: 'Oslo' });
});

test.each(['7', '[]', '"7"', '"[]"', '"nul"', 'nul', '{'])('%j is refused', (given) => {
  const call = { kind: 'function', name: 'status', arguments: given } as const;
  expect(() => decodeCall(toolsFor('openai', [tool]), [tool], call)).toThrow(/arguments of status/);
});

test('a number that would become another one is refused, and so is one that a text holds', () => {
  const ids = defineUntypedTool({
    name: 'ids',
    version: '1.0.0',
    description: 'Takes an ID.',
    tier: 'read-only',
    inputSchema: { type: 'object', properties: { id: { type: 'integer' } }, additionalProperties: false },
    run: (params) => ({ output: params }),
  });
  const decode = (sent: string) =>
    decodeCall(toolsFor('openai', [ids]), [ids], { kind: 'function', name: 'ids', arguments: sent });
  expect(() => decode('{"id":12345678901234567890}')).toThrow(/arguments of ids hold 12345678901234567890 as "id"/);
  expect(decode('{"id":9007199254740991}').params).toEqual({ id: 9_007_199_254_740_991 });
  for (const id of ['12345678901234567890', '9007199254740993.0', '9007199254740993.5', `${'9'.repeat(400)}.0`])
    expect(repairParams(ids.inputSchema, { id }), id).toEqual({ id });
  expect(repairParams(ids.inputSchema, { id: '42.0' })).toEqual({ id: 42 });
  expect(repairParams(ids.inputSchema, { id: '42' })).toEqual({ id: 42 });
});

test('each adapter runs a call without arguments, however its server says so', async () => {
  const { session } = await startFleet({ tools: [tool] });
  const [messages, chat, responses] = await Promise.all([
    messagesTools(session),
    chatTools(session),
    responsesTools(session),
  ]);
  // More would be taken for a loop.
  for (const [index, given] of [null, ' ', 'null', MARK].entries()) {
    const id = `call-${index}`;
    const item = { type: 'function_call', call_id: id, name: 'status', arguments: given };
    expect(await responses.run([item])).toMatchObject([{ output: '{}' }]);
    expect(await chat.run([{ id, function: { name: 'status', arguments: given } }])).toMatchObject([{ content: '{}' }]);
    expect(await messages.run([{ type: 'tool_use', id, name: 'status', input: given }])).toMatchObject([
      { content: '{}' },
    ]);
  }
});
