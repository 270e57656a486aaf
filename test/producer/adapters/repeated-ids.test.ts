/** Many model servers number the calls of each answer from the start: an ID names a call within one answer. */
import { generateText, isStepCount, type ModelMessage } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import { describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { aiSdkTools } from '../../../src/producer/adapters/ai-sdk.ts';
import { messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { langchainTools } from '../../../src/producer/adapters/langchain.ts';
import type { AdapterOptions } from '../../../src/producer/adapters/model-tools.ts';
import { agentTools, chatTools, responsesTools } from '../../../src/producer/adapters/openai.ts';
import type { Session } from '../../../src/producer/sessions/session.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { countingTool } from '../../helpers/tools.ts';

const ID = 'read:0';
const input = { path: 'n.txt' };

/** Runs answers of a model, each of one call with the same ID; what an answer holds is made anew for each. */
interface Loop {
  answer(): object;
  run(answer: object, turnId?: string): Promise<string>;
}

const text = (value: unknown) => /run \d+/.exec(JSON.stringify(value))?.[0] ?? JSON.stringify(value);

const LOOPS: Readonly<Record<string, (session: Session, options?: AdapterOptions) => Promise<Loop>>> = {
  async chat(session, options) {
    const tools = await chatTools(session, options);
    return {
      answer: () => [{ id: ID, type: 'function', function: { name: 'read', arguments: JSON.stringify(input) } }],
      run: async (calls, turnId) => text(await tools.run(calls as never, { turnId })),
    };
  },
  async responses(session, options) {
    const tools = await responsesTools(session, options);
    return {
      answer: () => [{ type: 'function_call', call_id: ID, name: 'read', arguments: JSON.stringify(input) }],
      run: async (output, turnId) => text(await tools.run(output as never, { turnId })),
    };
  },
  async messages(session, options) {
    const tools = await messagesTools(session, options);
    return {
      answer: () => [{ type: 'tool_use', id: ID, name: 'read', input: { ...input } }],
      run: async (content, turnId) => text(await tools.run(content as never, { turnId })),
    };
  },
  async agents(session, options) {
    const [tool] = await agentTools(session, (definition) => definition, options);
    return {
      answer: () => ({ callId: ID }),
      run: async (toolCall) => text(await tool?.execute(input, undefined, { toolCall })),
    };
  },
  async langchain(session, options) {
    const [tool] = await langchainTools(session, options);
    return {
      answer: () => ({ type: 'tool_call', id: ID, name: 'read', args: { ...input } }),
      run: async (call) => text(await tool?.invoke(call as never)),
    };
  },
  async langgraph(session, options) {
    const [tool] = await langchainTools(session, options);
    let tasks = 0;
    return {
      answer() {
        tasks += 1;
        return { task: `tools:${tasks}` };
      },
      run: async ({ task }: { task?: string }) => {
        const call = { type: 'tool_call', id: ID, name: 'read', args: { ...input } };
        return text(await tool?.invoke(call as never, { configurable: { checkpoint_ns: task } }));
      },
    };
  },
  async 'ai-sdk'(session, options) {
    const { read } = await aiSdkTools(session, { ...options, preliminary: false });
    let messages: object[] = [{ role: 'user', content: 'What does n.txt say?' }];
    return {
      answer: () => {
        const before = messages;
        messages = [...messages, { role: 'assistant', content: [] }, { role: 'tool', content: [] }];
        return before;
      },
      run: async (before) =>
        text(await read?.execute?.(input, { toolCallId: ID, messages: before, context: undefined } as never)),
    };
  },
};

/** Where an answer comes from again after a restart: from a database, as JSON. */
const stored = <Value>(value: Value): Value => JSON.parse(JSON.stringify(value)) as Value;

/** Those of libraries that run answers themselves take a turn among their options alone. */
const TAKES_TURNS = ['chat', 'responses', 'messages'];

describe.each(Object.entries(LOOPS))('pawl’s adapter for %s', (kind, open) => {
  test('a later answer with the same ID and arguments is a new call', async () => {
    const { tool, runs } = countingTool();
    const { session } = await startFleet({ tools: [tool] });
    const loop = await open(session);
    for (let answer = 1; answer <= 3; answer += 1) expect(await loop.run(loop.answer())).toBe(`run ${answer}`);
    expect(runs()).toBe(3);
  });

  test('the same answer run again is the same call, in this process and after a crash, whichever answer it is', async () => {
    const { tool, runs } = countingTool();
    const { session, pawl } = await startFleet({ tools: [tool] });
    const loop = await open(session);
    for (let answer = 1; answer <= 3; answer += 1) {
      const given = loop.answer();
      const kept = stored(given);
      expect(await loop.run(given)).toBe(`run ${answer}`);
      expect(await loop.run(given)).toBe(`run ${answer}`);
      const resumed = await open(await pawl.session(session.key));
      expect(await resumed.run(kept)).toBe(`run ${answer}`);
    }
    expect(runs()).toBe(3);
  });

  test('an answer runs once, also where the key of an earlier answer’s failed call is free again', async () => {
    const { tool, runs } = countingTool((run) => {
      if (run === 1) throw new Error('not yet');
      return `run ${run}`;
    });
    const { session, pawl } = await startFleet({ tools: [tool], settings: { ttl: { failedMs: 1 } } });
    const loop = await open(session);
    expect(await loop.run(loop.answer())).toContain('not yet');
    const answer = loop.answer();
    expect(await loop.run(answer)).toBe('run 2');
    const resumed = await open(await pawl.session(session.key));
    expect(await resumed.run(stored(answer))).toBe('run 2');
    expect(runs()).toBe(2);
  });

  test('a turn of one response names its calls, and a fixed turn does not distinguish responses', async () => {
    const { tool, runs } = countingTool();
    const { session } = await startFleet({ tools: [tool] });
    let turn = 'first';
    const loop = await open(session, TAKES_TURNS.includes(kind) ? {} : { turnId: () => turn });
    const again = await open(session, { turnId: () => turn });
    const answer = loop.answer();
    expect(await loop.run(answer, turn)).toBe('run 1');
    expect(await again.run(stored(answer), turn)).toBe('run 1');
    turn = 'second';
    // A new adapter, as a server makes one for each request, has not seen the first turn.
    const next = await open(session, { turnId: () => turn });
    expect(await next.run(loop.answer(), turn)).toBe('run 2');
    const fixed = await open(session, { turnId: 'third' });
    expect(await fixed.run(loop.answer())).toBe('run 3');
    expect(await fixed.run(loop.answer())).toBe('run 4');
    expect(runs()).toBe(4);
  });

  test.each([undefined, null, ''])('a turn of %j names no response', async (noTurn) => {
    const { tool } = countingTool();
    const { session } = await startFleet({ tools: [tool] });
    const empty = noTurn as string;
    for (const turnId of [() => empty, empty]) {
      const loop = await open(session, { turnId });
      const before = await loop.run(loop.answer(), empty);
      const answer = loop.answer();
      const next = await loop.run(answer, empty);
      expect(next).not.toBe(before);
      expect(await loop.run(answer, empty)).toBe(next);
    }
  });
});

test.each([
  ['its approval takes longer than outcomes are kept', { ttl: { doneMs: 1 } }],
  [
    'the outcomes of its tool are kept for longer',
    { ttl: { doneMs: 1 }, tools: { read: { ttl: { doneMs: 60_000 } } } },
  ],
])('a call with an ID of an earlier answer keeps its name while %s', async (_what, settings) => {
  const { tool } = countingTool();
  const { session, pawl, world } = await startFleet({ tools: [tool], settings });
  const tools = await chatTools(session);
  for (let answer = 1; answer <= 2; answer += 1)
    await tools.run([{ id: ID, function: { name: 'read', arguments: JSON.stringify(input) } }]);
  const name = (await world.keys()).find((key) => key.includes(':repeated-call:')) ?? '';
  expect(await pawl.backend.redis.pttl(name)).toBeGreaterThan(30_000);
});

test('a new adapter’s second response is a later one, whatever another adapter ran before', async () => {
  const { tool } = countingTool();
  const { session } = await startFleet({ tools: [tool] });
  for (const name of ['chat', 'responses', 'messages']) {
    const loop = await LOOPS[name]?.(session);
    if (loop === undefined) throw new Error('there is no such loop');
    const before = await loop.run(loop.answer());
    const next = await LOOPS[name]?.(session);
    await next?.run([]);
    expect(await next?.run(loop.answer())).not.toBe(before);
  }
});

test('calls with one constant ID in one answer are as many as their arguments', async () => {
  const { tool, runs } = countingTool();
  const { session } = await startFleet({ tools: [tool] });
  const tools = await chatTools(session);
  const call = (path: string) => ({ id: 'call', function: { name: 'read', arguments: JSON.stringify({ path }) } });
  for (const turn of [1, 2]) {
    const calls = [call('a'), call('b'), call('a')];
    await tools.run(calls);
    await tools.run(calls);
    expect(runs()).toBe(2 * turn);
  }
});

describe.each([undefined, null, '', 7])('calls of a server that writes %j for each ID', (id) => {
  const answers: Readonly<Record<string, (path: string) => object>> = {
    chat: (path) => ({ id, function: { name: 'read', arguments: JSON.stringify({ path }) } }),
    responses: (path) => ({ type: 'function_call', call_id: id, name: 'read', arguments: JSON.stringify({ path }) }),
    messages: (path) => ({ type: 'tool_use', id, name: 'read', input: { path } }),
  };

  test.each(Object.entries(answers))('run once for each response of %s', async (kind, callOf) => {
    const { tool, runs } = countingTool();
    const { session, pawl } = await startFleet({ tools: [tool] });
    const loop = await LOOPS[kind]?.(session);
    for (const response of [1, 2]) {
      const answer = [callOf('a'), callOf('b')];
      for (const _time of [1, 2]) await loop?.run(answer);
      expect(runs()).toBe(2 * response);
    }
    // The turn names a response also in another process.
    const answer = [callOf('a'), callOf('b')];
    for (const _process of [1, 2]) {
      const resumed = await LOOPS[kind]?.(await pawl.session(session.key));
      await resumed?.run(stored(answer), 'third');
      expect(runs()).toBe(6);
    }
  });
});

test('sessions share no ID of a call, also where they share a tool’s calls', async () => {
  let runs = 0;
  const tool = defineTool({
    name: 'read',
    version: '1.0.0',
    description: 'Says how often it ran.',
    tier: 'read-only',
    effects: 'none',
    input: z.object({ path: z.string() }),
    run() {
      runs += 1;
      return { output: `run ${runs}` };
    },
  });
  const { session, pawl } = await startFleet({ tools: [tool], settings: { tools: { read: { scope: 'global' } } } });
  const other = await pawl.openSession();
  for (const [index, one] of [session, other].entries()) {
    const loop = await LOOPS['chat']?.(one);
    if (loop === undefined) throw new Error('there is no such loop');
    expect(await loop.run(loop.answer())).toBe(`run ${index + 1}`);
  }
});

test.each(TAKES_TURNS)('a response of %s that failed in an outage is the same when it runs again', async (kind) => {
  const { tool, runs } = countingTool();
  const { session } = await startFleet({ tools: [tool] });
  const loop = await LOOPS[kind]?.(session);
  if (loop === undefined) throw new Error('there is no such loop');
  await loop.run(loop.answer());
  const [call] = loop.answer() as object[];
  const answer = [call, JSON.parse(JSON.stringify(call).replace('n.txt', 'other.txt'))];
  const submit = session.submit.bind(session);
  const outage = vi.spyOn(session, 'submit').mockImplementation(async (name, params, options) => {
    if ((params as { path: string }).path === 'n.txt') return submit(name, params, options);
    await vi.waitUntil(() => runs() === 2, { timeout: 30_000 });
    throw new PawlError('BACKEND_UNAVAILABLE', 'Redis is gone');
  });
  await expect(loop.run(stored(answer))).rejects.toThrow('Redis is gone');
  outage.mockRestore();
  expect(await loop.run(stored(answer))).toBe('run 2');
  expect(runs()).toBe(3);
});

test.each(TAKES_TURNS)(
  'a response of %s that failed before it ran is given no result of an earlier process',
  async (kind) => {
    const { tool, runs } = countingTool();
    const { session } = await startFleet({ tools: [tool] });
    const [before, loop] = [await LOOPS[kind]?.(session), await LOOPS[kind]?.(session)];
    if (before === undefined || loop === undefined) throw new Error('there is no such loop');
    expect(await before.run(before.answer())).toBe('run 1');
    await loop.run([]);
    const answer = loop.answer();
    vi.spyOn(session, 'submit').mockRejectedValueOnce(new PawlError('BACKEND_UNAVAILABLE', 'Redis is gone'));
    await expect(loop.run(answer)).rejects.toThrow('Redis is gone');
    for (const _time of [1, 2]) expect(await loop.run(answer)).toBe('run 2');
    expect(runs()).toBe(2);
  },
);

/** A model of the AI SDK that calls with one ID in each step. */
function callingModel(calls: number): MockLanguageModelV4 {
  let steps = 0;
  return new MockLanguageModelV4({
    doGenerate: async () => {
      steps += 1;
      const isLast = steps > calls;
      return {
        content: isLast
          ? [{ type: 'text', text: 'Done.' }]
          : [{ type: 'tool-call', toolCallId: ID, toolName: 'read', input: JSON.stringify(input) }],
        finishReason: { unified: isLast ? 'stop' : 'tool-calls', raw: undefined },
        usage: {
          inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
          outputTokens: { total: 1, text: 1, reasoning: 0 },
        },
        warnings: [],
      } as never;
    },
  });
}

test.each([
  ['are all that came before', { from: 0 }],
  ['are cut to the prompt', { from: 0, to: 1 }],
  ['are cut to the last two', { from: -2 }],
])('the AI SDK’s own loop runs each step’s call, if the messages %s', async (_title, { from, to = undefined }: Cut) => {
  const { tool, runs } = countingTool(() => 'ok');
  const { session } = await startFleet({ tools: [tool] });
  const tools = await aiSdkTools(session);
  for (const prompt of [1, 2]) {
    await generateText({
      model: callingModel(3),
      tools,
      prompt: 'Read it three times.',
      stopWhen: isStepCount(5),
      prepareStep: ({ messages }) => ({ messages: messages.slice(from, to) }),
    });
    expect(runs()).toBe(3 * prompt);
  }
});

test('the AI SDK’s own loop runs each step’s call, if the messages are one list that grows', async () => {
  const { tool, runs } = countingTool(() => 'ok');
  const { session } = await startFleet({ tools: [tool] });
  const history: ModelMessage[] = [];
  await generateText({
    model: callingModel(3),
    tools: await aiSdkTools(session),
    prompt: 'Read it three times.',
    stopWhen: isStepCount(5),
    prepareStep: ({ messages }) => {
      history.push(...messages.slice(history.length));
      return { messages: history };
    },
  });
  expect(runs()).toBe(3);
});

interface Cut {
  readonly from: number;
  readonly to?: number | undefined;
}

test('an approved call of the AI SDK is one call in all processes, also when the history was cut, and two are two', async () => {
  const { tool, runs } = countingTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  for (const approvalId of ['first', 'second']) {
    const request = { type: 'tool-approval-request', approvalId, toolCallId: ID };
    const response = { type: 'tool-approval-response', approvalId, approved: true };
    const asked = [
      { role: 'user', content: 'Read it.' },
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: ID, toolName: 'read', input }, request] },
    ];
    const messages = [...asked, { role: 'tool', content: [response] }];
    // The other calls of the response may be approved later.
    const later = [...asked, { role: 'tool', content: [response, { ...response, approvalId: 'other' }] }];
    for (const history of [messages, stored(messages), messages.slice(1), later]) {
      const { read } = await aiSdkTools(await pawl.session(session.key), { preliminary: false });
      await read?.execute?.(input, { toolCallId: ID, messages: history } as never);
    }
  }
  expect(runs()).toBe(2);
});
