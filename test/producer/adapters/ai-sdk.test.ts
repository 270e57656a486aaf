import { isStepCount, streamText } from 'ai';
import { convertArrayToReadableStream, MockLanguageModelV4 } from 'ai/test';
import { expect, test } from 'vitest';
import { aiSdkTools } from '../../../src/producer/adapters/ai-sdk.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { weather } from './weather.ts';

test('pawl/ai-sdk: the SDK’s own loop streams progress and ends with the model’s words', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const step = (parts: object[], unified: 'tool-calls' | 'stop') => ({
    stream: convertArrayToReadableStream([
      { type: 'stream-start', warnings: [] },
      ...parts,
      { type: 'finish', finishReason: { unified, raw: undefined }, usage },
    ]) as never,
  });
  const prompts: unknown[] = [];
  const model = new MockLanguageModelV4({
    doStream: async ({ prompt }) => {
      prompts.push(prompt);
      if (prompts.length === 1)
        return step(
          [{ type: 'tool-call', toolCallId: 'c1', toolName: 'weather', input: '{"city":"Oslo"}' }],
          'tool-calls',
        );
      const words = 'It is 21 degrees in Oslo.';
      return step(
        [
          { type: 'text-start', id: 't' },
          { type: 'text-delta', id: 't', delta: words },
          { type: 'text-end', id: 't' },
        ],
        'stop',
      );
    },
  });
  const stream = streamText({ model, tools: await aiSdkTools(session), prompt: 'Oslo?', stopWhen: isStepCount(3) });
  const preliminary: unknown[] = [];
  for await (const part of stream.fullStream)
    if (part.type === 'tool-result' && part.preliminary === true) preliminary.push(part.output);
  expect(await stream.text).toBe('It is 21 degrees in Oslo.');
  expect(preliminary).toContainEqual(expect.objectContaining({ type: 'progress', message: 'asking for Oslo' }));
  expect(JSON.stringify(prompts[1])).toContain('\\"degrees\\":21');
});

test('pawl/ai-sdk: without preliminary results a call has one, in the form that Mastra returns as well', async () => {
  const { tool } = weather();
  const { session } = await startFleet({ tools: [tool] });
  const { weather: made } = await aiSdkTools(session, { preliminary: false });
  const run = async (input: object) => {
    const options = { toolCallId: JSON.stringify(input), messages: [], context: undefined } as never;
    const output = await made?.execute?.(input, options);
    const toModelOutput = made?.toModelOutput as unknown as (given: unknown) => unknown;
    // The SDK's form, and Mastra's.
    expect(toModelOutput({ output })).toEqual(toModelOutput(output));
    return toModelOutput(output);
  };
  expect(await run({ city: 'Oslo' })).toEqual({ type: 'text', value: expect.stringContaining('"degrees":21') });
  expect(await run({ city: 'Atlantis' })).toEqual({
    type: 'error-text',
    value: expect.stringContaining('no such city'),
  });
});
