/** `pawl/openai` with OpenAI's Agents SDK: its own loop runs a session's tools. */
import { Agent, type AgentOutputItem, type Model, Runner, tool, Usage } from '@openai/agents-core';
import { agentTools } from 'pawl/openai';
import { startWeather } from './models/weather.ts';

// Possible answers of a model: a call with a parameter of the wrong name, the same put right, and words.
const call = (callId: string, args: object): AgentOutputItem => ({
  type: 'function_call',
  callId,
  name: 'get_weather',
  arguments: JSON.stringify(args),
  status: 'completed',
});
const script: AgentOutputItem[] = [
  call('1', { town: 'Paris' }),
  call('2', { city: 'Paris' }),
  {
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'It is 21 degrees in Paris.' }],
  },
];
const model: Model = {
  getResponse: async () => ({ usage: new Usage(), output: script.splice(0, 1) }),
  getStreamedResponse: () => {
    throw new Error('this example does not stream');
  },
};

const { session, close } = await startWeather();
const agent = new Agent({ name: 'helper', model, tools: await agentTools(session, tool) });
const { finalOutput, history } = await new Runner({ tracingDisabled: true }).run(agent, 'The weather in Paris?');
for (const item of history)
  if (item.type === 'function_call_result' && typeof item.output === 'object' && 'text' in item.output)
    console.log(`${item.callId}: ${item.output.text.split('\n')[0]}`);
console.log(finalOutput);
await close();
