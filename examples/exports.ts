/** The same tools for four providers, the way back from a model's call, and toolsets that depend on who asks. */
import { defineTool, filtered, PROVIDERS, resolveToolsets, toolset } from 'pawl';
import { createLocalRunner } from 'pawl/testing';
import { z } from 'zod';

const base = { version: '1.0.0', description: 'An example.', tier: 'system', run: () => ({ output: 'done' }) } as const;
const book = defineTool({
  ...base,
  name: 'book',
  input: z.object({ city: z.string().min(1), seats: z.number().int().optional() }),
});
const cancel = defineTool({ ...base, name: 'cancel', input: z.object({ id: z.string() }) });

const runner = createLocalRunner({ tools: [book] });
const session = await runner.openSession({ kind: 'main' });
for (const provider of PROVIDERS) {
  const { reports } = await session.toolsFor(provider);
  for (const { name, strict, outcome, removedKeywords } of reports) {
    const without =
      removedKeywords.length === 0 ? '' : `, without ${removedKeywords.map(({ keyword }) => keyword).join(', ')}`;
    console.log(`${provider}: ${name} strict ${strict}, ${outcome}${without}`);
  }
}

// In strict mode models send null for what is optional; the tool's own schema knows no null.
const exported = await session.toolsFor('openai');
const sent = '{"city":"Rome","seats":null}';
const { name, params } = await session.decode(exported, { kind: 'function', name: 'book', arguments: sent });
console.log(`the model sent null, the tool gets ${JSON.stringify(params)}`);
await session.call(name, params);
await runner.close();

// Toolsets are resolved for each request.
const all = toolset('travel', [book, cancel]);
const forAda = toolset<typeof book | typeof cancel>('for-ada', async (request) => {
  const own = request.session?.actorId === 'ada' ? all : filtered(all, (tool) => tool.name !== 'cancel');
  return own.tools(request);
});
const seenBy = async (actorId: string) => {
  const tools = await resolveToolsets([forAda], { session: { sessionKey: 's', kind: 'main', actorId }, published: [] });
  return tools.map((tool) => tool.name).join(', ');
};
console.log(`ada sees ${await seenBy('ada')}; everybody sees ${await seenBy('bob')}`);
