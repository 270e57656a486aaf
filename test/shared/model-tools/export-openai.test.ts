import { toStrictJsonSchema } from 'openai/lib/transform';
import type { Tool as OpenAiTool } from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineFreeformTool, defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { base, object, rich, schemaOf, tool } from './exported-tools.ts';
import { ajv } from './judging.ts';

describe('C5, rule 4: OpenAI', () => {
  test('strict is always said; what is optional becomes required and nullable', () => {
    const { tools, reports } = toolsFor('openai', [rich]);
    const [exported] = tools as unknown as OpenAiTool[];
    if (exported?.type !== 'function') throw new Error('not a function');
    expect(exported.strict).toBe(true);
    expect(reports[0]).toMatchObject({ outcome: 'lossless', strict: true, removedKeywords: [] });
    const parameters = exported.parameters as Record<string, { properties: Record<string, unknown> }>;
    expect(parameters['required']).toEqual(['where', 'seats', 'when', 'kind', 'notes', 'nullable', 'either']);
    expect(JSON.stringify(parameters['properties'])).toContain('"when":{"description":"When to come.","anyOf":[{');
    // The SDK's own check: what it would make of the schema is what we made.
    expect(toStrictJsonSchema(structuredClone(exported.parameters) as never)).toEqual(exported.parameters);
  });

  test('what has no strict form is exported as it is, with the reason', () => {
    const open = tool('open', { type: 'object', properties: {}, additionalProperties: { type: 'string' } });
    const any = tool('any', object({ value: {} }));
    const list = tool('list', object({ values: { type: 'array' } }));
    const deep = tool(
      'deep',
      Array.from({ length: 11 }).reduce<JsonSchema>((inner) => object({ a: inner }), object({})),
    );
    const { tools, reports } = toolsFor('openai', [open, any, list, deep]);
    expect(tools.map(({ strict }) => strict)).toEqual([false, false, false, false]);
    expect(reports.map(({ outcome, reason }) => [outcome, reason])).toEqual([
      ['refused-strict', 'properties.value accepts anything'],
      ['refused-strict', 'it has 12 levels; at most 10 are allowed'],
      ['refused-strict', 'the items of properties.values are not described'],
      ['refused-strict', 'the root takes any further properties'],
    ]);
    expect(tools[0]?.['parameters']).toEqual(any.inputSchema);
  });

  test('rule 3: keywords that are left out are reported, and named in the description', () => {
    const counted = tool(
      'counted',
      object({ a: { type: 'array', items: { type: 'string' }, uniqueItems: true } }, { minProperties: 1 }),
    );
    const { tools, reports } = toolsFor('openai', [counted]);
    expect(reports[0]).toMatchObject({
      outcome: 'lossy',
      removedKeywords: [
        { path: '', keyword: 'minProperties' },
        { path: 'properties.a', keyword: 'uniqueItems' },
      ],
    });
    expect(JSON.stringify(tools[0])).toContain('uniqueItems: true.');
  });

  test('what describes the rest goes with what is left out: alone it would refuse too much', () => {
    const rows = { type: 'array', prefixItems: [{ type: 'string' }], items: { type: 'integer' } };
    const labels = { type: 'object', patternProperties: { '^x-': { type: 'string' } }, additionalProperties: false };
    const schema = object({ rows, labels });
    expect(toolsFor('openai', [tool('t', schema)]).reports[0]).toMatchObject({
      strict: false,
      reason: 'properties.labels takes any further properties',
    });
    const exported = toolsFor('gemini', [tool('t', schema)]);
    expect(exported.reports[0]?.removedKeywords).toEqual([
      { path: 'properties.labels', keyword: 'patternProperties' },
      { path: 'properties.labels', keyword: 'additionalProperties' },
    ]);
    expect(ajv.validate(schemaOf(exported.tools[0]), { rows: ['x', 1], labels: { 'x-a': 'b' } })).toBe(true);
  });

  test('a list whose places differ is strict: its items may be whatever stands at one of them', () => {
    const pair = defineTool({ ...base, name: 'pair', input: z.object({ pair: z.tuple([z.string(), z.number()]) }) });
    const exported = toolsFor('openai', [pair]);
    expect(exported.reports[0]).toMatchObject({ outcome: 'lossy', strict: true });
    expect(schemaOf(exported.tools[0])).toMatchObject({
      properties: { pair: { items: { anyOf: [{ type: 'string' }, { type: 'number' }] }, minItems: 2, maxItems: 2 } },
    });
    expect(JSON.stringify(exported.tools[0])).not.toContain('"prefixItems":');
  });

  test.each([true, false])(
    'no list is without items, for which the whole request would be refused: strict %s',
    (strict) => {
      const any = { type: 'array' };
      const first = { type: 'array', prefixItems: [{ type: 'string' }] };
      const schema = object({ any, first, within: { anyOf: [any, { type: 'null' }] } });
      const [exported] = toolsFor('openai', [tool('lists', schema)], { strict }).tools;
      expect(schemaOf(exported)['properties']).toMatchObject({
        any: { type: 'array', items: {} },
        first: { type: 'array', items: {} },
        within: { anyOf: [{ type: 'array', items: {} }, { type: 'null' }] },
      });
      expect(ajv.validate(schemaOf(exported), { any: [1], first: ['a', 2] })).toBe(true);
    },
  );

  test('values without a type get theirs, which strict asks for', () => {
    const schema = object({ unit: { enum: ['c', 'f'] }, only: { const: 1 }, maybe: { enum: ['x', null] } });
    const required = { ...schema, required: ['unit', 'only', 'maybe'] };
    expect(schemaOf(toolsFor('openai', [tool('values', required)]).tools[0])['properties']).toEqual({
      unit: { type: 'string', enum: ['c', 'f'] },
      only: { type: 'number', const: 1 },
      maybe: { type: ['string', 'null'], enum: ['x', null] },
    });
  });

  test('many long values have no strict form; as many short ones, or a few long ones, do', () => {
    const values = (count: number, length: number) => {
      const every = Array.from({ length: count }, (_, index) => `${index}`.padStart(length, 'x'));
      return toolsFor('openai', [tool('values', object({ value: { type: 'string', enum: every } }))]).reports[0];
    };
    expect(values(300, 100)).toMatchObject({
      strict: false,
      reason: 'it has 30000 enumCharacters; at most 15000 are allowed',
    });
    expect([values(300, 40)?.strict, values(250, 100)?.strict]).toEqual([true, true]);
  });

  test('C4, C6: freeform and native tools', () => {
    const grammar = { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } as const;
    const freeform = defineFreeformTool({ ...base, name: 'patch', format: grammar });
    const schema = object({ command: { type: 'array', items: { type: 'string' } } }, { required: ['command'] });
    const shell = defineUntypedTool({ ...base, name: 'shell', inputSchema: schema, variant: { type: 'local-shell' } });
    const search = defineUntypedTool({
      ...base,
      name: 'web_search',
      inputSchema: object({}),
      variant: { type: 'web-search', externalWebAccess: false },
    });
    const all = [freeform, shell, search];
    expect(toolsFor('openai', all, { native: true }).tools).toEqual([
      { type: 'custom', name: 'patch', description: 'Does it.', format: grammar },
      { type: 'local_shell' },
      { type: 'web_search', external_web_access: false },
    ]);
    expect(toolsFor('openai', all).tools.map(({ type }) => type)).toEqual(['custom', 'function', 'function']);
    expect(toolsFor('openai', all, { native: false }).tools[0]).toMatchObject({ type: 'function', name: 'patch' });
    expect(toolsFor('anthropic', [freeform]).tools[0]).toMatchObject({ input_schema: { required: ['input'] } });
  });

  test('C6: apply_patch is a function, and free text with a grammar where the provider’s own forms are asked for', () => {
    const [plain] = toolsFor('openai', [applyPatch]).tools;
    expect(plain).toMatchObject({ type: 'function', parameters: { required: ['patch'] } });
    const exported = toolsFor('openai', [applyPatch], { native: true });
    expect(exported.tools[0]).toMatchObject({
      type: 'custom',
      name: 'apply_patch',
      format: { type: 'grammar', syntax: 'lark', definition: expect.stringContaining('start: BEGIN file+ END') },
    });
    const call = { kind: 'custom', name: 'apply_patch', input: '*** Begin Patch' } as const;
    expect(decodeCall(exported, [applyPatch], call)).toMatchObject({ params: { patch: '*** Begin Patch' } });
  });

  test('C6: a tool whose text is not a parameter, or not the only one that it requires, is no freeform tool', () => {
    const variant = { type: 'freeform', parameter: 'text', format: { type: 'text' } } as const;
    const text = { type: 'string' };
    for (const inputSchema of [
      object({ input: text }),
      object({ text: { type: 'number' } }),
      object({ text, more: text }, { required: ['text', 'more'] }),
    ])
      expect(() => defineUntypedTool({ ...base, name: 'x', inputSchema, variant })).toThrow(
        /because variant is freeform/,
      );
  });
});
