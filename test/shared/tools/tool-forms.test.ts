import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { publishedTool } from '../../../src/shared/store/fleet/catalogue.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { isMutating, isTool, type ToolSpec } from '../../../src/shared/tools/tool.ts';
import { defineFreeformTool, defineUntypedTool, functionTool } from '../../../src/shared/tools/tool-forms.ts';
import { testContext } from '../../helpers/context.ts';

const input = z.object({ a: z.number().describe('First'), b: z.number().default(2).describe('Second') });
const spec = {
  name: 'add',
  version: '1.0.0',
  description: 'Adds.',
  tier: 'system',
  input,
  run: ({ a, b }: { a: number; b: number }) => ({ output: a + b }),
} as const satisfies ToolSpec<string, typeof input, number>;

describe('D11: a tool from one function', () => {
  const add = functionTool('add', 'Adds two numbers.', input, ({ a, b }) => a + b);

  test('is a tool like any other, with its schema from the input type (D6)', async () => {
    expect(isTool(add)).toBe(true);
    expect(add).toMatchObject({ name: 'add', version: '1.0.0', tier: 'system', effects: 'once' });
    expect(add.inputSchema).toEqual({
      type: 'object',
      properties: {
        a: { type: 'number', description: 'First' },
        b: { type: 'number', description: 'Second', default: 2 },
      },
      required: ['a'],
      additionalProperties: false,
    });
    expect(await add.run(add.parse({ a: 1 }), testContext())).toEqual({ output: 3 });
  });

  test('an option that is undefined leaves the default', () => {
    const absent = { version: undefined, tier: undefined, namespace: undefined, effects: undefined } as never;
    expect(JSON.stringify(functionTool('add', 'Adds two numbers.', input, ({ a, b }) => a + b, absent))).toBe(
      JSON.stringify(add),
    );
  });

  test('takes options, and its hint decides the tier', () => {
    const options = { annotations: { readOnlyHint: true }, timeoutMs: 5 } as const;
    expect(functionTool('add', 'x', input, () => 1, options)).toMatchObject({ tier: 'read-only', timeoutMs: 5 });
    expect(functionTool('add', 'x', input, () => 1, { ...options, tier: 'workspace' })).toMatchObject({
      tier: 'workspace',
    });
  });
});

describe('D7: the schema', () => {
  test('comes from the input type, and can be given instead', () => {
    const schema = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] };
    expect(defineTool({ ...spec, schema })).toMatchObject({ inputSchema: schema });
    expect(defineTool({ ...spec, schema }).parse({ a: 1 })).toEqual({ a: 1, b: 2 });
  });

  test('of an untyped tool is the given one', async () => {
    const inputSchema = { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] };
    const { input: _, ...untyped } = spec;
    const tool = defineUntypedTool({ ...untyped, inputSchema, run: ({ id }) => ({ output: id }) });
    expect(tool.inputSchema).toEqual(inputSchema);
    expect(await tool.run({ id: 'x' }, testContext())).toEqual({ output: 'x' });
  });
});

describe('C6, D13: a freeform tool', () => {
  test('takes one text in a format', async () => {
    const { input: _, ...options } = spec;
    const format = { type: 'grammar', syntax: 'lark', definition: 'start: "x"+' } as const;
    const tool = defineFreeformTool({ ...options, format, run: (text) => ({ output: text.length }) });
    expect(tool).toMatchObject({ variant: { type: 'freeform', format }, inputSchema: { required: ['input'] } });
    expect(JSON.stringify(tool.inputSchema)).toContain('start:');
    expect(await tool.run(tool.parse({ input: 'xxx' }), testContext())).toEqual({ output: 3 });
  });
});

describe('C3: whether a call changes something', () => {
  test('follows the tier, unless the tool decides by the parameters', () => {
    expect(isMutating(defineTool(spec), {})).toBe(true);
    expect(isMutating(defineTool({ ...spec, tier: 'read-only' }), {})).toBe(false);
    const looking = defineTool({ ...spec, isMutating: ({ a }) => a > 0 });
    expect([isMutating(looking, { a: 0, b: 0 }), isMutating(looking, { a: 1, b: 0 })]).toEqual([false, true]);
    const pretending = defineTool({ ...spec, tier: 'read-only', isMutating: () => true });
    expect(isMutating(pretending, {})).toBe(false);
  });
});

describe('A2: a tool describes itself', () => {
  test('C4, C9: with title, icon, examples, variant, budget and whether calls may run side by side', () => {
    const described = {
      title: 'Adder',
      icon: { src: 'https://example.org/a.png', mimeType: 'image/png' },
      examples: [{ params: { a: 1 }, description: 'one' }],
      variant: { type: 'web-search', externalWebAccess: true },
      budget: { costUnits: 2 },
      parallel: false,
    } as const;
    expect(publishedTool(defineTool({ ...spec, ...described }), 1)).toMatchObject(described);
    const plain = publishedTool(defineTool(spec), 1);
    for (const name of Object.keys(described)) expect(plain).not.toHaveProperty(name);
  });

  test.each<[string, object, string]>([
    ['examples[0].params.a', { examples: [{ params: { a: 'x' } }] }, 'must be number'],
    ['icon.src', { icon: { src: 'javascript:1' } }, 'https:'],
    ['budget.costUnits', { budget: { costUnits: -1 } }, 'from 0 on'],
    ['maxOutputBytes', { maxOutputBytes: 0 }, 'above 0'],
    ['input', { variant: { type: 'local-shell' } }, 'parameter command'],
  ])('%s is checked when it is defined', (field, wrong, message) => {
    const refused = expect.objectContaining({
      code: 'CONFIGURATION',
      message: expect.stringMatching(new RegExp(`${field.replaceAll(/[[\].]/g, '\\$&')} must be .*${message}`)),
    });
    expect(() => defineTool({ ...spec, ...wrong })).toThrow(refused);
  });
});
