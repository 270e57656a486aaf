/** `pawl/openai` with OpenAI's own client: the calls of a response run on the fleet, and their answers go back as its input. */
import OpenAI from 'openai';
import { responsesTools } from 'pawl/openai';
import { scriptedApi } from './models/scripted.ts';
import { startWeather } from './models/weather.ts';

// Possible answers of a model: a call with a parameter of the wrong name, the same put right, and words.
const call = (id: string, args: object) => ({
  type: 'function_call',
  id: `fc_${id}`,
  call_id: id,
  name: 'get_weather',
  arguments: JSON.stringify(args),
  status: 'completed',
});
const words = { type: 'output_text', text: 'It is 21 degrees in Paris.', annotations: [] };
const message = { type: 'message', id: 'm', role: 'assistant', status: 'completed', content: [words] };
const api = await scriptedApi(
  [[call('1', { town: 'Paris' })], [call('2', { city: 'Paris' })], [message]].map((output) => ({
    id: 'r',
    object: 'response',
    output,
  })),
);
const openai = new OpenAI({ baseURL: api.url, apiKey: 'none' });
const { session, close } = await startWeather();

const pawlTools = await responsesTools(session);
const request = { model: 'gpt', tools: pawlTools.tools };
let response = await openai.responses.create({ ...request, input: 'The weather in Paris?' });
for (;;) {
  const answers = await pawlTools.run(response.output);
  if (answers.length === 0) {
    console.log(response.output_text);
    break;
  }
  for (const { call_id: id, output } of answers) console.log(`${id}: ${String(output).split('\n')[0]}`);
  response = await openai.responses.create({ ...request, input: answers, previous_response_id: response.id });
}

await close();
api.close();
