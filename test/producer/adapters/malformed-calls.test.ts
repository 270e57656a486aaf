/** What model servers and gateways write instead of a call, through every adapter: an error that names the place, or an answer for the model. */
import { describe, expect, test } from 'vitest';
import { aiSdkTools } from '../../../src/producer/adapters/ai-sdk.ts';
import { messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { langchainTools } from '../../../src/producer/adapters/langchain.ts';
import { chatTools, responsesTools } from '../../../src/producer/adapters/openai.ts';
import type { Session } from '../../../src/producer/sessions/session.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { NO_TEXT } from '../../helpers/odd-values.ts';
import { weather } from './weather.ts';

/** No call is one of these. */
const NO_OBJECTS = [null, undefined, 'weather', 7, true, []];
/** Members of a call that are missing, or of another type. */
const NO_MEMBERS = [null, undefined, 7, true, [], {}, Symbol('x'), Object.create(null)];

async function openSession(): Promise<Session> {
  const { session } = await startFleet({ tools: [weather().tool] });
  return session;
}

type Run = (session: Session) => Promise<(calls: never, options?: never) => Promise<readonly object[]>>;
const LISTS: Record<string, Run> = {
  chat: async (session: Session) => (await chatTools(session)).run as never,
  responses: async (session) => (await responsesTools(session)).run as never,
  messages: async (session) => (await messagesTools(session)).run as never,
};
const lists = Object.entries(LISTS);

describe.each(lists)('%s', (kind, adapter) => {
  test('what is no list of calls, or has what is no call, rejects with its place', async () => {
    const run = await adapter(await openSession());
    for (const value of ['calls', 7, true, {}, ...(kind === 'chat' ? [] : [null, undefined])])
      await expect(run(value as never), String(value)).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining('must be a list'),
      });
    for (const value of NO_OBJECTS)
      await expect(run([value] as never), String(value)).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringMatching(/\[0\]: must be an object/),
      });
    for (const options of [null, 'turn', 7, []])
      await expect(run([] as never, options as never), String(options)).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining('options: must be an object'),
      });
  });
});

test.each(lists)('a call of %s whose ID is an object is answered', async (_kind, adapter) => {
  const run = await adapter(await openSession());
  for (const id of [NO_TEXT, [NO_TEXT]]) {
    const call = { id, call_id: id, name: 'weather', input: {}, function: { name: 'weather' } };
    const calls = ['tool_use', 'function_call'].map((type) => ({ ...call, type }));
    expect(JSON.stringify(await run(calls as never))).toMatch(/INVALID_PARAMS/);
  }
});

const NAMED: Record<string, (name: unknown, args: unknown) => readonly [kind: string, call: object][]> = {
  chat: (name, args) => [
    ['chat', { id: 'a', function: { name, arguments: args } }],
    ['chat', { id: 'a', function: args }],
  ],
  responses: (name, args) => [
    ['responses', { type: 'function_call', call_id: 'a', name, arguments: args }],
    ['responses', { type: 'custom_tool_call', call_id: 'a', name, input: args }],
    ['responses', { type: 'local_shell_call', call_id: 'a', action: args }],
  ],
  messages: (name, args) => [['messages', { type: 'tool_use', id: 'a', name, input: args }]],
};

test.each(Object.entries(NAMED))('a call of %s with a wrong member is answered', async (_kind, callsOf) => {
  const session = await openSession();
  for (const value of NO_MEMBERS)
    for (const [kind, call] of [...callsOf(value, '{}'), ...callsOf('weather', value), ...callsOf(value, value)]) {
      const run = await LISTS[kind]?.(session);
      const answers = await run?.([call] as never);
      expect(answers, JSON.stringify(call)).toHaveLength(1);
      expect(JSON.stringify(answers)).toMatch(/UNKNOWN_TOOL|INVALID_PARAMS|CONTRACT_INVALID/);
    }
});

test('a call that is decoded by itself is refused by its member', async () => {
  const session = await openSession();
  const exported = await session.toolsFor('gemini');
  const kinds = ['function', 'custom', 'local-shell'];
  for (const kind of kinds)
    for (const value of NO_MEMBERS)
      for (const call of [
        { kind, name: value },
        { kind, name: 'weather', arguments: value, input: value, action: value },
      ])
        await session.decode(exported, call as never).then(
          ({ name }) => expect(name).toBe('weather'),
          (error) =>
            expect(error).toMatchObject({
              code: expect.stringMatching(/^(UNKNOWN_TOOL|INVALID_PARAMS|CONTRACT_INVALID)$/),
            }),
        );
  for (const value of NO_OBJECTS)
    await expect(session.decode(exported, value as never)).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
});

test('tools of LangChain and of the AI SDK answer arguments of any type', async () => {
  const session = await openSession();
  const [langchainTool] = await langchainTools(session);
  const { weather: sdkTool } = (await aiSdkTools(session, { preliminary: false })) as Record<
    string,
    { execute(input: unknown, options: object): Promise<{ text: string }> }
  >;
  for (const value of [...NO_OBJECTS, ...NO_MEMBERS, { id: 'a', args: null, name: 'weather', type: 'tool_call' }]) {
    const what = typeof value === 'symbol' ? 'symbol' : JSON.stringify(value);
    // Of what is not JSON, LangChain's own check throws.
    if (JSON.stringify(value) !== undefined) {
      const made = await langchainTool?.invoke(value as never);
      expect(JSON.stringify(made), `langchain ${what}`).toContain('INVALID_PARAMS');
    }
    const { text } = (await sdkTool?.execute(value, { toolCallId: 'a', messages: [] })) ?? {};
    expect(text, `ai-sdk ${what}`).toMatch(/INVALID_PARAMS/);
  }
});

test('options of an adapter that are none are refused by their name', async () => {
  const session = await openSession();
  const adapters = { chatTools, responsesTools, messagesTools, langchainTools, aiSdkTools };
  for (const [name, make] of Object.entries(adapters))
    for (const options of [null, 'strict', 7, []])
      await expect(
        (make as (session: Session, options: never) => Promise<unknown>)(session, options as never),
        name,
      ).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining('options: must be an object'),
      });
});

const WRONG_OPTIONS = {
  turnId: [7, true, {}, []],
  maxOutputBytes: [0, -1, Number.NaN, '5', null, {}],
};

test('members of an adapter’s options that are none are refused by their name', async () => {
  const session = await openSession();
  for (const [name, values] of Object.entries(WRONG_OPTIONS))
    for (const value of values)
      for (const make of [chatTools, responsesTools, messagesTools, langchainTools, aiSdkTools])
        await expect(
          (make as (session: Session, options: never) => Promise<unknown>)(session, { [name]: value } as never),
          `${make.name} ${name} ${String(value)}`,
        ).rejects.toMatchObject({
          code: 'CONTRACT_INVALID',
          message: expect.stringContaining(`options.${name}: must`),
        });
});

test('misspelt options of an adapter, and of one answer, are refused by their name', async () => {
  const session = await openSession();
  for (const make of [chatTools, responsesTools, messagesTools, langchainTools, aiSdkTools])
    await expect(
      (make as (session: Session, options: never) => Promise<unknown>)(session, { maxOutputByte: 5 } as never),
      make.name,
    ).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      message: expect.stringContaining('options: has no member "maxOutputByte" (did you mean maxOutputBytes?)'),
    });
  const { run } = await chatTools(session);
  await expect(run([], { turnID: 'a' } as never)).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    message: expect.stringContaining('options: has no member "turnID" (did you mean turnId?)'),
  });
});

test.each(lists)(
  'a turn of %s may have a name of any length, and a turn that is no text is refused',
  async (_kind, adapter) => {
    const run = await adapter(await openSession());
    const callOf = (city: string) => {
      const input = { city };
      const call = { id: 'a', call_id: 'a', name: 'weather', input, arguments: input };
      const types = ['tool_use', 'function_call'];
      return types.map((type) => ({ ...call, type, function: { name: 'weather', arguments: input } }));
    };
    const turnId = `resp_${'x'.repeat(500)}`;
    const first = JSON.stringify(await run(callOf('Paris') as never, { turnId } as never));
    expect(first).toContain('degrees');
    expect(JSON.stringify(await run(callOf('Paris') as never, { turnId } as never))).toBe(first);
    for (const value of WRONG_OPTIONS.turnId)
      await expect(run(callOf('Rome') as never, { turnId: value } as never)).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining('options.turnId: must be a text'),
      });
  },
);

test('arguments that are not JSON are refused by their own path', async () => {
  const run = await LISTS['messages']?.(await openSession());
  for (const [value, kind] of [
    [Number.NaN, 'NaN'],
    [10n, 'bigint'],
    [new Map(), 'Map'],
  ] as const) {
    const input = { city: 'Paris', deep: [{ value }] };
    const [answer] = (await run?.([{ type: 'tool_use', id: 'a', name: 'weather', input }] as never)) ?? [];
    expect(JSON.stringify(answer)).toContain(`holds ${kind} in deep[0].value,`);
  }
});

test('arguments that hold themselves are answered, with and without a null', async () => {
  const run = await LISTS['messages']?.(await openSession());
  for (const more of [{}, { units: null }]) {
    const input: Record<string, unknown> = { city: 'Paris', ...more };
    input['self'] = [input];
    const answers = await run?.([{ type: 'tool_use', id: 'a', name: 'weather', input }] as never);
    expect(JSON.stringify(answers)).toMatch(/CONTRACT_INVALID|INVALID_PARAMS/);
  }
});
