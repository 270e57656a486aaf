/** `pawl/anthropic` with Anthropic's own client: the `tool_use` blocks of a message run on the fleet, at the same time. */
import Anthropic from '@anthropic-ai/sdk';
import { messagesTools } from 'pawl/anthropic';
import { scriptedApi } from './models/scripted.ts';
import { startWeather } from './models/weather.ts';

// Possible answers of a model: two calls, of which one is wrong, and words.
const use = (id: string, input: object) => ({ type: 'tool_use', id, name: 'get_weather', input });
const api = await scriptedApi(
  [
    [use('a', { city: 'Paris' }), use('b', { town: 'Rome' })],
    [{ type: 'text', text: 'It is 21 degrees in Paris.' }],
  ].map((content) => ({ id: 'm', type: 'message', role: 'assistant', content })),
);
const anthropic = new Anthropic({ baseURL: api.url, apiKey: 'none' });
const { session, close } = await startWeather();

const pawlTools = await messagesTools(session, { onEvent: (event) => console.log(`${event.type}`) });
const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'The weather in Paris and Rome?' }];
for (;;) {
  const request = { model: 'claude', max_tokens: 1_000, messages, tools: pawlTools.tools };
  const { content } = await anthropic.messages.create(request);
  const results = await pawlTools.run(content);
  if (results.length === 0) {
    for (const block of content) if (block.type === 'text') console.log(block.text);
    break;
  }
  for (const { tool_use_id: id, content, is_error: failed = false } of results)
    console.log(`${id}: ${failed ? 'an error, ' : ''}${String(content).split('\n')[0]}`);
  messages.push({ role: 'assistant', content }, { role: 'user', content: results });
}

await close();
api.close();
