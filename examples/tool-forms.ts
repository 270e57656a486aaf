/** Ways to define a tool, what a person sees before it runs, and what a model sees of a large result. */
import { defineFreeformTool, defineTool, defineUntypedTool, functionTool } from 'pawl';
import { runTool } from 'pawl/testing';
import { z } from 'zod';

// One line: a function with a schema.
const add = functionTool(
  'add',
  'Adds two numbers.',
  z.object({ a: z.number(), b: z.number().default(2) }),
  ({ a, b }) => a + b,
);
console.log(`one line: ${(await runTool(add, { a: 3 })).output?.content}`);
console.log(`its schema: ${JSON.stringify(add.inputSchema['properties'])}`);

// Free text instead of arguments, such as a patch.
const base = { version: '1.0.0', description: 'An example.', tier: 'read-only' } as const;
const count = defineFreeformTool({
  ...base,
  name: 'count_lines',
  format: { type: 'text' },
  run: (text) => ({ output: text.split('\n').length }),
});
console.log(`free text: ${(await runTool(count, { input: 'one\ntwo' })).output?.content} lines`);

// Plain JSON Schema, as other systems describe their tools.
const look = defineUntypedTool({
  ...base,
  name: 'look_up',
  inputSchema: { type: 'object', properties: { id: { type: 'string', pattern: '^[a-z]+$' } }, required: ['id'] },
  run: ({ id }) => ({ output: { id } }),
});
const refused = await runTool(look, { id: '7' });
console.log(`plain JSON Schema: ${refused.error?.code} at ${refused.error?.issues?.[0]?.path}`);

// The preview of a call, for the person who decides: made by hand here, by the worker in a fleet.
const note = defineTool({
  ...base,
  name: 'take_note',
  title: 'Take a note',
  tier: 'workspace',
  needs: ['workspace:write'],
  input: z.object({ text: z.string() }),
  examples: [{ params: { text: 'Buy tea.' } }],
  run: async ({ text }, ctx) => ({ output: await ctx.workspace.write('note.md', text) }),
  preview: ({ text }, ctx) => ({
    summary: `Create note.md (${text.length} bytes)`,
    details: ctx.diff('note.md', undefined, text),
  }),
});
const diff = (path: string, _before: unknown, after: unknown) => `+++ ${path}\n+${after}`;
const preview = await note.preview?.({ text: 'tea\n' }, { diff, signal: new AbortController().signal } as never);
console.log(`preview: ${preview?.summary}\n${preview?.details?.trim()}`);

// A large result: the model is shown a part, the record holds the whole.
const alphabet = defineTool({
  ...base,
  name: 'alphabet',
  maxOutputBytes: 8,
  input: z.object({}),
  run: () => ({ output: 'abcdefghijklmnopqrstuvwxyz' }),
});
console.log(`shown: ${(await runTool(alphabet, {})).output?.content}`);
