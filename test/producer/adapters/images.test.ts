/** What a result has beside its output reaches a model: through each adapter, and in the library's own loop where that is here. */
import type Anthropic from '@anthropic-ai/sdk';
import type { ToolMessage } from '@langchain/core/messages';
import { Agent, type AgentOutputItem, Runner, tool, Usage } from '@openai/agents-core';
import { generateText, isStepCount } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import type OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { aiSdkTools } from '../../../src/producer/adapters/ai-sdk.ts';
import { messagesTools } from '../../../src/producer/adapters/anthropic.ts';
import { langchainTools } from '../../../src/producer/adapters/langchain.ts';
import { agentTools, responsesTools } from '../../../src/producer/adapters/openai.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { ContentBlock } from '../../../src/shared/tools/tool-result.ts';
import { startFleet } from '../../helpers/fleet.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
/** The headers of images, by their width and height. */
const PNG_8000_1 = 'iVBORw0KGgoAAAANSUhEUgAAH0AAAAABAQAAAAB7GKW3';
const PNG_1_8001 = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAB9BAQAAAACpoB9v';
const GIF_8001_1 = 'R0lGODdhQR8BAIcAAA==';
const JPEG_1_8001 =
  '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////wAALCB9BAAEBAREA/8QAFQAB';
const WEBP_1_8001 = 'UklGRhoBAABXRUJQVlA4IA4BAAAwHgCdASoBAEEf';
const LOSSLESS_WEBP_8001_1 = 'UklGRiAAAABXRUJQVlA4TBQAAAAvQB8AAAcQEf0P';
const EXTENDED_WEBP_1_8001 = 'UklGRlIBAABXRUJQVlA4WAoAAAAYAAAAAAAAQB8A';
const IMAGE = { type: 'image', data: PIXEL, mimeType: 'image/png' } as const;

const screenshot = (content: readonly ContentBlock[], output: unknown = { width: 1 }) =>
  defineTool({
    name: 'screenshot',
    version: '1.0.0',
    description: 'What the screen shows.',
    tier: 'read-only',
    input: z.object({}),
    run: () => ({ output, content }),
  });

async function sessionWith(content: readonly ContentBlock[], output?: unknown) {
  return (await startFleet({ tools: [screenshot(content, output)] })).session;
}

describe('an image of a result', () => {
  test('is an image block of Anthropic’s tool_result', async () => {
    const tools = await messagesTools(await sessionWith([IMAGE]));
    const content: Anthropic.ContentBlockParam[] = await tools.run([
      { type: 'tool_use', id: 'a', name: 'screenshot', input: {} },
    ]);
    expect(content).toEqual([
      {
        type: 'tool_result',
        tool_use_id: 'a',
        content: [
          { type: 'text', text: '{"width":1}' },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } },
        ],
      },
    ]);
  });

  test('is an input_image of OpenAI’s function_call_output', async () => {
    const tools = await responsesTools(await sessionWith([IMAGE]));
    const call = { type: 'function_call', call_id: 'a', name: 'screenshot', arguments: '{}' };
    const input: OpenAI.Responses.ResponseInput = await tools.run([call]);
    expect(input).toEqual([
      {
        type: 'function_call_output',
        call_id: 'a',
        output: [
          { type: 'input_text', text: '{"width":1}' },
          { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}`, detail: 'auto' },
        ],
      },
    ]);
  });

  test('comes to a model of OpenAI’s Agents SDK', async () => {
    const session = await sessionWith([IMAGE]);
    const call: AgentOutputItem = {
      type: 'function_call',
      callId: 'a',
      name: 'screenshot',
      arguments: '{}',
      status: 'completed',
    };
    const words: AgentOutputItem = {
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'I see it.' }],
    };
    const script = [call, words];
    const seen: unknown[] = [];
    const model = {
      getResponse: async ({ input }: { readonly input: unknown }) => {
        seen.push(structuredClone(input));
        return { usage: new Usage(), output: script.splice(0, 1) };
      },
      getStreamedResponse: () => {
        throw new Error('nobody streams here');
      },
    };
    const agent = new Agent({ name: 'helper', model, tools: await agentTools(session, tool) });
    expect((await new Runner({ tracingDisabled: true }).run(agent, 'Look.')).finalOutput).toBe('I see it.');
    expect((seen[1] as unknown[]).at(-1)).toMatchObject({
      type: 'function_call_result',
      output: [
        { type: 'input_text', text: '{"width":1}' },
        { type: 'input_image', image: `data:image/png;base64,${PIXEL}` },
      ],
    });
  });

  test.each([true, false])('comes to a model in the AI SDK’s loop (preliminary: %s)', async (preliminary) => {
    const session = await sessionWith([IMAGE]);
    const answer = (finish: 'tool-calls' | 'stop', part: object) => ({
      content: [part as never],
      finishReason: { unified: finish, raw: undefined },
      usage: {
        inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 1, text: 1, reasoning: 0 },
      },
      warnings: [],
    });
    const model = new MockLanguageModelV4({
      doGenerate: [
        answer('tool-calls', { type: 'tool-call', toolCallId: 'a', toolName: 'screenshot', input: '{}' }),
        answer('stop', { type: 'text', text: 'I see it.' }),
      ],
    });
    const tools = await aiSdkTools(session, { preliminary });
    const { text } = await generateText({ model, tools, prompt: 'Look.', stopWhen: isStepCount(3) });
    expect(text).toBe('I see it.');
    expect(model.doGenerateCalls[1]?.prompt.at(-1)).toMatchObject({
      role: 'tool',
      content: [
        {
          output: {
            type: 'content',
            value: [
              { type: 'text', text: '{"width":1}' },
              { type: 'file', mediaType: 'image/png', data: { type: 'data', data: PIXEL } },
            ],
          },
        },
      ],
    });
  });

  test('is a block of LangChain’s tool message, which all its models translate', async () => {
    const [made] = await langchainTools(await sessionWith([IMAGE]));
    const call = { type: 'tool_call', id: 'a', name: 'screenshot', args: {} };
    const message = (await made?.invoke(call as never)) as unknown as ToolMessage;
    expect(message.content).toEqual([
      { type: 'text', text: '{"width":1}' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
    ]);
    expect(message.contentBlocks).toMatchObject([{ type: 'text' }, { type: 'image', data: PIXEL }]);
  });

  test('is named, on request, for servers that take no images in the result of a tool', async () => {
    const session = await sessionWith([IMAGE]);
    const text = '{"width":1}\n[image/png, 70 bytes: cannot be shown to you]';
    const { screenshot: made } = await aiSdkTools(session, { images: false, preliminary: false });
    const output = await made?.execute?.({}, { toolCallId: 'a', messages: [], context: undefined } as never);
    expect(output).toEqual({ type: 'result', isError: false, text });
    const [chain] = await langchainTools(session, { images: false });
    expect(await chain?.invoke({ type: 'tool_call', id: 'b', name: 'screenshot', args: {} } as never)).toMatchObject({
      content: text,
    });
  });
});

describe('what stands beside an output', () => {
  const shown = async (content: readonly ContentBlock[], output?: unknown) => {
    const tools = await messagesTools(await sessionWith(content, output));
    const [answer] = await tools.run([{ type: 'tool_use', id: 'a', name: 'screenshot', input: {} }]);
    return answer?.content;
  };

  test('keeps its order where it repeats the output, as an MCP server’s blocks do', async () => {
    const blocks = [{ type: 'text', text: 'before' }, IMAGE, { type: 'text', text: 'after' }, IMAGE] as const;
    expect(await shown(blocks, 'before\nafter')).toMatchObject([
      { text: 'before' },
      { type: 'image' },
      { text: 'after' },
      { type: 'image' },
    ]);
  });

  test('is an image alone where the output is empty: providers refuse an empty text', async () => {
    expect(await shown([IMAGE], '')).toMatchObject([{ type: 'image' }]);
  });

  test('is shown once: the text of a resource that the output has is not repeated, another one is added', async () => {
    const note = { type: 'resource', uri: 'file:///note', text: 'Buy\n"milk".' } as const;
    expect(await shown([note], { contents: [{ uri: note.uri, text: note.text }] })).toBe(
      JSON.stringify({ contents: [{ uri: note.uri, text: note.text }] }),
    );
    expect(await shown([note], 'a note')).toBe('a note\nBuy\n"milk".');
  });

  test('is its address where it has no data, and a data address is truncated', async () => {
    const image = { type: 'resource', uri: 'https://example.org/a.png' } as const;
    expect(await shown([image], 'a picture')).toBe('a picture\n[https://example.org/a.png]');
    const data = { type: 'resource', uri: `data:image/svg+xml,${'x'.repeat(9_000)}` } as const;
    expect(await shown([data], 'a drawing')).toMatch(/^a drawing\n\[data:image\/svg\+xml,x{2029}…\]$/);
  });

  test.each<[string, string, string]>([
    ['of another type than it says', 'image/jpeg', PIXEL],
    ['of a type by another name', 'image/x-png', PIXEL],
    ['in lines', 'image/png', PIXEL.replaceAll(/.{20}/g, '$&\r\n')],
    ['in the alphabet of addresses', 'image/png', PIXEL.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')],
  ])('that is an image %s is shown as what it is', async (_what, mimeType, data) => {
    expect(await shown([{ type: 'image', data, mimeType }])).toContainEqual({
      type: 'image',
      source: { type: 'base64', media_type: 'image/png', data: PIXEL },
    });
  });

  test.each([
    ['PNG', PNG_1_8001],
    ['GIF', GIF_8001_1],
    ['JPEG', JPEG_1_8001],
    ['lossy WebP', WEBP_1_8001],
    ['lossless WebP', LOSSLESS_WEBP_8001_1],
    ['WebP with transparency', EXTENDED_WEBP_1_8001],
  ])('that is a %s with more pixels on a side than a provider accepts is described', async (_type, data) => {
    expect(await shown([{ type: 'image', data, mimeType: 'image/png' }], 'the page')).toMatch(
      /^the page\n\[image\/png, \d+ bytes: cannot be shown to you with 8001 pixels on a side; at most 8000\]$/,
    );
    expect(await shown([{ type: 'image', data: PNG_8000_1, mimeType: 'image/png' }])).toMatchObject([
      { type: 'text' },
      { type: 'image' },
    ]);
  });

  test.each([
    ['nothing', ''],
    ['what is no image', 'aGVsbG8gd29ybGQ='],
    ['an address of data', `data:image/png;base64,${PIXEL}`],
  ])('that says it is an image and holds %s is described', async (_what, data) => {
    expect(JSON.stringify(await shown([{ type: 'image', data, mimeType: 'image/png' }]))).toContain(
      'cannot be shown to you',
    );
  });

  test('is described where a model does not accept it, and does not fail the request', async () => {
    const svg = Buffer.from('<svg/>').toString('base64');
    const large = 'A'.repeat(5_000_004);
    expect(
      await shown(
        [
          { type: 'image', data: svg, mimeType: 'image/svg+xml' },
          { type: 'image', data: large, mimeType: 'image/png' },
          { type: 'audio', data: 'aGk=', mimeType: 'audio/wav' },
          { type: 'resource', uri: 'file:///a.pdf', mimeType: 'application/pdf', blob: 'aGk=' },
        ],
        'four',
      ),
    ).toBe(
      [
        'four',
        '[image/svg+xml, 6 bytes: cannot be shown to you]',
        '[image/png, 3750003 bytes: too large to be shown to you]',
        '[audio/wav, 2 bytes: cannot be shown to you]',
        '[file:///a.pdf: application/pdf, 2 bytes: cannot be shown to you]',
      ].join('\n'),
    );
  });
});
