/** What must compile and what must not in the other ways to define a tool, and in hooks: `tsc` is the test. Nothing here runs. */
import { z } from 'zod';
import {
  defineFreeformTool,
  defineHook,
  defineTool,
  defineUntypedTool,
  functionTool,
  type InputOf,
  type OutputOf,
  type Session,
} from '../../src/index.ts';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function holds<_Condition extends true>(): void {}

const base = { version: '1.0.0', description: 'x', tier: 'system' } as const;
const input = z.object({ a: z.number(), b: z.number().default(2) });

// One function: its parameters are the schema's output, callers pass the schema's input.
const add = functionTool('add', 'Adds.', input, ({ a, b }, ctx) => {
  holds<Equal<typeof ctx.callId, string>>();
  return a + b;
});
holds<Equal<InputOf<typeof add>, { a: number; b?: number | undefined }>>();
holds<Equal<OutputOf<typeof add>, number>>();
// @ts-expect-error the function gets what the schema describes
functionTool('add', 'Adds.', input, ({ c }) => c);
// @ts-expect-error there is no such option
functionTool('add', 'Adds.', input, () => 1, { timeout: 5 });
// @ts-expect-error the description is an argument, not an option
functionTool('add', 'Adds.', input, () => 1, { description: 'x' });

// Plain JSON Schema: any object.
const untyped = defineUntypedTool({ ...base, name: 'u', inputSchema: { type: 'object' }, run: () => ({ output: 1 }) });
holds<Equal<InputOf<typeof untyped>, Readonly<Record<string, unknown>>>>();
// @ts-expect-error an untyped tool has a schema
defineUntypedTool({ ...base, name: 'u', run: () => ({ output: 1 }) });
// @ts-expect-error its parameters are unknown until they are looked at
defineUntypedTool({ ...base, name: 'u', inputSchema: {}, run: ({ id }) => ({ output: id.length }) });

// Free text.
const patch = defineFreeformTool({ ...base, name: 'p', format: { type: 'text' }, run: (text) => ({ output: text }) });
holds<Equal<InputOf<typeof patch>, { readonly input: string }>>();
// @ts-expect-error a grammar has a syntax
defineFreeformTool({ ...base, name: 'p', format: { type: 'grammar', definition: 'x' }, run: () => ({ output: 1 }) });
// @ts-expect-error there is no such format
defineFreeformTool({ ...base, name: 'p', format: { type: 'yaml' }, run: () => ({ output: 1 }) });

export async function calls(session: Session): Promise<void> {
  await session.call(add, { a: 1 });
  await session.call(untyped, { whatever: true });
  await session.call(patch, { input: '*** Begin Patch' });
  // @ts-expect-error free text is the parameter `input`
  await session.call(patch, { text: 'x' });
  // @ts-expect-error a required parameter is missing
  await session.call(add, { b: 1 });
}

const tool = { ...base, name: 't', input } as const;
defineTool({ ...tool, isMutating: ({ a }) => a > 0, resource: ({ b }) => `r:${b}`, run: () => ({ output: 1 }) });
// @ts-expect-error whether a call changes something is yes or no
defineTool({ ...tool, isMutating: () => 'yes', run: () => ({ output: 1 }) });
// @ts-expect-error a resource is named by a text
defineTool({ ...tool, resource: () => 7, run: () => ({ output: 1 }) });
// @ts-expect-error a tool that is not ready says when to ask again
defineTool({ ...tool, ready: () => ({ ready: false }), run: () => ({ output: 1 }) });
// @ts-expect-error there is no such variant
defineTool({ ...tool, variant: { type: 'local_shell' }, run: () => ({ output: 1 }) });
// @ts-expect-error free text says which parameter it is
defineTool({ ...tool, variant: { type: 'freeform', format: { type: 'text' } }, run: () => ({ output: 1 }) });
// @ts-expect-error a preview has a summary
defineTool({ ...tool, preview: () => ({ details: 'x' }), run: () => ({ output: 1 }) });
// @ts-expect-error content blocks have a type that is known
defineTool({ ...tool, run: () => ({ output: 1, content: [{ type: 'video', data: '' }] }) });
// @ts-expect-error a preview changes nothing: it has no handle to write
defineTool({ ...tool, preview: (_, ctx) => ctx.workspace.write('a', 'b'), run: () => ({ output: 1 }) });
defineHook({ name: 'h', beforeCall: ({ params }) => ({ params: { ...params, seen: true } }) });
defineHook({ name: 'h', afterAttempt: ({ ending }) => console.log(ending.kind) });
// @ts-expect-error a hook has a name
defineHook({ beforeCall: () => {} });
// @ts-expect-error there is no such kind
defineHook({ name: 'h', beforeEverything: () => {} });
// @ts-expect-error a hook can deny an approval and never give one
defineHook({ name: 'h', onApproval: () => ({ approve: true }) });
// @ts-expect-error a reason is a text
defineHook({ name: 'h', beforeCall: () => ({ deny: true }) });
