/** `pawl/ai-sdk` in the AI SDK's own loop: progress streams while the fleet works, and the model reads the result. */
import { isStepCount, streamText } from 'ai';
import { convertArrayToReadableStream, MockLanguageModelV4 } from 'ai/test';
import { aiSdkTools } from 'pawl/ai-sdk';
import { startWeather } from './models/weather.ts';

// A possible answer of a model: a call, and words.
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
type Step = Awaited<ReturnType<MockLanguageModelV4['doStream']>>;
type Part = Step['stream'] extends ReadableStream<infer P> ? P : never;
const step = (unified: 'tool-calls' | 'stop', ...parts: Part[]): Step => ({
  stream: convertArrayToReadableStream<Part>([
    { type: 'stream-start', warnings: [] },
    ...parts,
    { type: 'finish', finishReason: { unified, raw: undefined }, usage },
  ]),
});
const model = new MockLanguageModelV4({
  doStream: [
    step('tool-calls', { type: 'tool-call', toolCallId: 'c', toolName: 'get_weather', input: '{"city":"Paris"}' }),
    step(
      'stop',
      { type: 'text-start', id: 't' },
      { type: 'text-delta', id: 't', delta: 'It is 21 degrees in Paris.' },
      { type: 'text-end', id: 't' },
    ),
  ],
});
const { session, close } = await startWeather();

const tools = await aiSdkTools(session);
const stream = streamText({ model, tools, prompt: 'The weather in Paris?', stopWhen: isStepCount(4) });
for await (const part of stream.fullStream)
  if (part.type === 'tool-result')
    console.log(`${part.preliminary === true ? 'meanwhile' : 'result'}: ${JSON.stringify(part.output)}`);
console.log(await stream.text);

await close();
