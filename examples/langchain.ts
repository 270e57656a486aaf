/** `pawl/langchain`: a session's tools bound to a LangChain model; what it calls comes back as tool messages. */
import { AIMessage, type BaseMessage, HumanMessage, type ToolMessage } from '@langchain/core/messages';
import { fakeModel } from '@langchain/core/testing';
import { langchainTools } from 'pawl/langchain';
import { startWeather } from './models/weather.ts';

// Possible answers of a model: two calls, of which one is wrong, and words.
const model = fakeModel()
  .respondWithTools([
    { id: 'x', name: 'get_weather', args: { city: 'Paris' } },
    { id: 'y', name: 'get_weather', args: { town: 'Rome' } },
  ])
  .respond(new AIMessage('It is 21 degrees in Paris.'));
const { session, close } = await startWeather();

const tools = await langchainTools(session, { onEvent: (event) => console.log(event.type) });
const bound = model.bindTools(tools);
const messages: BaseMessage[] = [new HumanMessage('The weather in Paris and Rome?')];
for (;;) {
  const answer = await bound.invoke(messages);
  messages.push(answer);
  const { tool_calls: calls = [] } = answer;
  if (calls.length === 0) {
    console.log(answer.text);
    break;
  }
  const run = calls.map((call) => tools.find(({ name }) => name === call.name)?.invoke({ ...call, type: 'tool_call' }));
  for (const result of (await Promise.all(run)) as ToolMessage[]) {
    console.log(`${result.tool_call_id}: ${result.status}, ${result.text.split('\n')[0]}`);
    messages.push(result);
  }
}

await close();
