import { transformJSONSchema } from '@anthropic-ai/sdk/lib/transform-json-schema';
import type { Tool as AnthropicTool } from '@anthropic-ai/sdk/resources/messages';
import { describe, expect, test } from 'vitest';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { base, object, rich, schemaOf, tool } from './exported-tools.ts';

describe('rule 5: Anthropic', () => {
  test('strict is off, and examples go along', () => {
    const [exported] = toolsFor('anthropic', [rich]).tools as unknown as AnthropicTool[];
    expect(exported).toMatchObject({
      name: 'book',
      input_examples: [{ where: { city: 'Rome' }, either: { by: 'mail' } }],
    });
    expect(exported).not.toHaveProperty('strict');
    expect(exported?.input_schema).toEqual(rich.inputSchema);
  });

  test('asked for, strict spends the request’s budget by priority', () => {
    const optional = (name: string) =>
      tool(name, object({ a: { type: 'string' }, b: { type: 'string' }, c: { type: 'string' } }));
    const many = Array.from({ length: 12 }, (_, index) => optional(`tool_${String.fromCharCode(97 + index)}`));
    const { reports } = toolsFor('anthropic', many, { strict: true, priority: ['tool_l'] });
    const strict = reports.filter((report) => report.strict).map(({ name }) => name);
    expect(strict).toHaveLength(8);
    expect(strict).toContain('tool_l');
    expect(reports.find(({ name }) => name === 'tool_k')).toMatchObject({
      outcome: 'refused-strict',
      reason: expect.stringContaining('budget'),
    });
  });

  test('names of parameters that the API refuses are shown as others, and lead back', () => {
    const text = { type: 'string' };
    const long = 'x'.repeat(65);
    const list = defineUntypedTool({
      ...base,
      name: 'list',
      inputSchema: object(
        { $filter: { ...text, description: 'OData.' }, 'a b': text, 'a-b': text, a_b: text, [long]: text },
        {
          required: ['$filter', 'a_b'],
        },
      ),
      examples: [{ params: { $filter: 'x', a_b: 'y' } }],
    });
    const exported = toolsFor('anthropic', [list]);
    const { properties, required } = schemaOf(exported.tools[0]) as { properties: object; required: string[] };
    const shown = Object.keys(properties);
    for (const name of shown) expect(name).toMatch(/^[a-zA-Z0-9_.-]{1,64}$/);
    expect(new Set(shown).size).toBe(5);
    expect(shown).toEqual(expect.arrayContaining(['_filter', 'a-b', 'a_b']));
    expect(required).toEqual(['_filter', 'a_b']);
    expect(properties).toMatchObject({ _filter: { description: 'OData. Stands for "$filter".' } });
    expect(exported.tools[0]).toMatchObject({ input_examples: [{ _filter: 'x', a_b: 'y' }] });
    expect(exported.reports[0]?.renamed).toMatchObject({ _filter: '$filter' });
    expect(toolsFor('anthropic', [rich]).reports[0]).not.toHaveProperty('renamed');
    const decode = (params: Record<string, unknown>) =>
      decodeCall(exported, [list], { kind: 'function', name: 'list', arguments: params }).params;
    const sent = Object.fromEntries(shown.map((name) => [name, name]));
    expect(Object.keys(decode(sent)).sort()).toEqual(['$filter', 'a b', 'a-b', 'a_b', long].sort());
    expect(decode(sent)).toMatchObject({ $filter: '_filter', a_b: 'a_b' });
    expect(decode({ $filter: 'own' })).toEqual({ $filter: 'own' });
  });

  test('the SDK’s own transform finds nothing left to change in a strict schema', () => {
    const { tools } = toolsFor('anthropic', [rich], { strict: true });
    const schema = tools[0]?.['input_schema'] as JsonSchema;
    expect(tools[0]).toMatchObject({ strict: true });
    expect(withoutText(transformJSONSchema(structuredClone(schema)))).toEqual(withoutText(schema));
  });
});

/** Without what says nothing more: texts, and the type beside the very values. */
function withoutText(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, function (this: object, name, member) {
      const said = name === 'type' && ('const' in this || 'enum' in this);
      return said || name === 'description' || name === 'default' ? undefined : member;
    }),
  );
}
