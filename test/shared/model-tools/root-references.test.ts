/** Parameters whose schema begins with a reference are shown as whatever it leads to, wherever tools are shown. */
import { describe, expect, test } from 'vitest';
import { toMcpTool } from '../../../src/producer/mcp/tools.ts';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { PROVIDERS } from '../../../src/shared/model-tools/export-types.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { schemaOf } from './exported-tools.ts';

const place = {
  type: 'object',
  properties: { city: { type: 'string' }, zip: { type: 'string' } },
  required: ['city'],
};
const closed = { ...place, additionalProperties: false };
const link = (name: string, more: object = {}) => ({ $ref: `#/$defs/${name}`, ...more });

/** What stands at the root, and what the parameters are. `zip` is null for none. */
const ROOTS: Readonly<Record<string, readonly [root: JsonSchema, names: readonly string[]]>> = {
  'a reference alone': [{ ...link('Place'), $defs: { Place: place } }, ['city', 'zip']],
  'a closed object': [{ ...link('Place'), $defs: { Place: closed } }, ['city', 'zip']],
  'a reference of draft 7': [{ $ref: '#/definitions/Place', definitions: { Place: closed } }, ['city', 'zip']],
  'a chain of references': [
    { ...link('A'), $defs: { A: link('B', { title: 'A' }), B: link('Place'), Place: closed } },
    ['city', 'zip'],
  ],
  'no properties beside it': [
    { ...link('Place'), type: 'object', properties: {}, $defs: { Place: place } },
    ['city', 'zip'],
  ],
  'words beside it': [
    { ...link('Place', { description: 'Where.', title: 'T' }), $defs: { Place: closed } },
    ['city', 'zip'],
  ],
  'further properties beside it': [
    { ...link('Place'), properties: { unit: { type: 'string' } }, required: ['unit'], $defs: { Place: place } },
    ['city', 'unit', 'zip'],
  ],
  'the same property beside it': [
    { ...link('Place'), properties: { city: { minLength: 2 } }, $defs: { Place: place } },
    ['city', 'zip'],
  ],
  'a demand beside it': [{ ...link('Place'), required: ['zip'], $defs: { Place: closed } }, ['city', 'zip']],
  'a choice behind it': [
    {
      ...link('Either'),
      $defs: { Either: { anyOf: [link('Place'), { type: 'object', properties: { at: {} } }] }, Place: place },
    },
    ['at', 'city', 'zip'],
  ],
  'a choice beside it': [
    {
      ...link('Place'),
      anyOf: [{ properties: { at: {} } }, { properties: { on: {} } }],
      $defs: { Place: place },
    },
    ['at', 'city', 'on', 'zip'],
  ],
  'a definition that refers to itself': [
    { ...link('Tree'), $defs: { Tree: { type: 'object', properties: { city: {}, zip: {}, below: link('Tree') } } } },
    ['below', 'city', 'zip'],
  ],
  'a definition with an anchor': [{ ...link('Place'), $defs: { Place: { ...place, $anchor: 'p' } } }, ['city', 'zip']],
  'an anchor': [{ $ref: '#p', $defs: { Place: { ...closed, $anchor: 'p' } } }, ['city', 'zip']],
  'an address': [
    { $id: 'https://a.org/go.json', $ref: 'place.json', $defs: { Place: { $id: 'place.json', ...closed } } },
    ['city', 'zip'],
  ],
  'a definition within a definition': [
    { $ref: '#/$defs/All/$defs/Place', $defs: { All: { $defs: { Place: closed } } } },
    ['city', 'zip'],
  ],
  'nothing else allowed beside it': [
    { ...link('Place'), unevaluatedProperties: false, $defs: { Place: place } },
    ['city', 'zip'],
  ],
  'one more property and nothing else beside it': [
    {
      ...link('Place'),
      properties: { city: { minLength: 2 }, unit: {} },
      unevaluatedProperties: false,
      $defs: { Place: place },
    },
    ['city', 'unit', 'zip'],
  ],
  'a place elsewhere in the document': [{ $ref: '#/x/Place', x: { Place: closed } }, ['city', 'zip']],
};

const base = { version: '1.0.0', description: 'Does it.', tier: 'system', run: () => ({ output: 1 }) } as const;

describe.each(Object.entries(ROOTS))('a root with %s', (_what, [root, names]) => {
  test.each([
    ['as it is defined', root],
    ['as it is imported', sanitizeSchema(root).schema],
  ] as const)('%s', (_how, inputSchema) => {
    const tool = defineUntypedTool({ ...base, name: 'go', inputSchema });
    const listed = toMcpTool({ ...tool, mcpName: 'go', answersName: undefined }, false);
    const shown = [...PROVIDERS.map((provider) => toolsFor(provider, [tool]).tools[0]), listed];
    for (const each of shown as Readonly<Record<string, unknown>>[]) {
      const schema = schemaOf(each);
      expect(schema).toMatchObject({ type: 'object' });
      expect(schema).not.toHaveProperty('$ref');
      // There, choices are passed on as they are.
      if (each !== listed || (schema['allOf'] ?? schema['anyOf']) === undefined)
        expect(Object.keys(schema['properties'] as object).toSorted()).toEqual(names);
    }
    // What a call may be is the same as before. Ajv follows references itself.
    const before = compileSchema({ type: 'object', ...root });
    const after = compileSchema(tool.inputSchema);
    const values = [{}, { city: 'Oslo' }, { city: 'O', unit: 'm' }, { city: 7 }, { city: 'Oslo', zip: '1', at: 1 }];
    for (const value of values) expect(after(value).length > 0, JSON.stringify(value)).toBe(before(value).length > 0);
  });
});

test.each([
  [
    'a reference at the root that leads nowhere',
    { $ref: '#/$defs/Plaice', $defs: { Place: place } },
    '"#/$defs/Plaice"',
  ],
  [
    'one below the root',
    { type: 'object', properties: { at: { $ref: '#/definitions/Plaice' } } },
    'cannot be followed',
  ],
  ['a value that is no JSON', { type: 'object', properties: { n: { default: 0 / 0 } } }, 'NaN in properties.n.default'],
])('%s is refused when the tool is defined', (_what, inputSchema, words) => {
  expect(() => defineUntypedTool({ ...base, name: 'go', inputSchema })).toThrow(
    expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining(words) }),
  );
});

test('a null for an optional parameter behind a reference is taken for none', () => {
  const [inputSchema] = ROOTS['a chain of references'] ?? [{}];
  const tool = defineUntypedTool({ ...base, name: 'go', inputSchema });
  const call = { kind: 'function', name: 'go', arguments: { city: 'Oslo', zip: null } } as const;
  expect(decodeCall(toolsFor('openai', [tool]), [tool], call).params).toEqual({ city: 'Oslo' });
});
