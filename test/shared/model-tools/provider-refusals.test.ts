/** No export holds what its provider refuses: over all operations of a corpus of OpenAPI documents, and over made contradictions. */
import { globSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { type ExportableTool, PROVIDERS } from '../../../src/shared/model-tools/export-types.ts';
import { type ProviderForm, providerRefusal } from '../../../src/shared/model-tools/provider-refusals.ts';
import { plainParameters, toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { inputJsonSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';
import { schemaOf } from './exported-tools.ts';
import { ajv } from './judging.ts';
import { schemas } from './random-schemas.ts';

const tool = (inputSchema: JsonSchema, name = 'go') =>
  ({
    name,
    namespace: 'x',
    description: 'Does it.',
    tier: 'system',
    effects: 'once',
    annotations: {},
    inputSchema,
  }) as ExportableTool;

/** Of one tool, in all forms: a budget of strict tools for a whole request is not what is looked at. */
function refusalsOf(inputSchema: JsonSchema): readonly string[] {
  return PROVIDERS.flatMap((provider) =>
    [true, false].flatMap((strict) => {
      const { tools, reports } = toolsFor(provider, [tool(inputSchema)], { strict });
      const [exported = {}] = tools;
      const parameters = schemaOf(exported);
      const form = (reports[0]?.strict === true ? `${provider}-strict` : provider) as ProviderForm;
      const refusal = providerRefusal(form, parameters);
      return refusal === undefined ? [] : [`${form}: ${refusal}`];
    }),
  );
}

const folder = new URL('../../../node_modules/@readme/oas-examples/', import.meta.url);
const documents = globSync('3.*/json/*.json', { cwd: folder });

test.each(documents)('no provider refuses an operation of %s', async (name) => {
  const options = { server: 'https://example.org' };
  const { tools } = await importOpenApi(JSON.parse(readFileSync(new URL(name, folder), 'utf8')), options);
  for (const { name: called, spec } of tools)
    expect(refusalsOf(sanitizeSchema(spec.inputSchema).schema), called).toEqual([]);
});

const values = fc.array(fc.constantFrom<unknown>('a', '1', 1, 1.5, true, null, ['a'], { a: 1 }), { maxLength: 4 });
const types = fc.constantFrom<unknown>('string', 'integer', 'number', 'boolean', 'null', 'array', 'object', [
  'string',
  'null',
]);
const contradictory = fc.record({ type: types, enum: values });

test('no provider refuses values that contradict the type beside them', () => {
  fc.assert(
    fc.property(contradictory, fc.boolean(), (property, isRequired) => {
      const required = isRequired ? ['a'] : [];
      const schema = { type: 'object', properties: { a: property }, required, additionalProperties: false };
      expect(refusalsOf(sanitizeSchema(schema).schema)).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

test('no provider refuses a schema of those that may come', () => {
  fc.assert(
    fc.property(schemas, (schema) => {
      expect(refusalsOf(sanitizeSchema(schema).schema)).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

const text = { type: 'string' };
const list = { type: 'array' };

test.each<[string, JsonSchema]>([
  ['nothing', { type: 'object' }],
  ['members without names', { type: 'object', additionalProperties: text }],
  ['names that are required alone', { type: 'object', properties: { a: text }, required: ['a', 'b'] }],
  [
    'members of listed names',
    inputJsonSchema(
      z.object({ m: z.record(z.enum(['a', 'b']), z.number()), t: z.tuple([]), u: z.tuple([z.string()]) }),
    ),
  ],
  [
    'alternatives that only require',
    {
      type: 'object',
      properties: {
        o: { type: 'object', properties: { a: text, b: text }, anyOf: [{ required: ['a'] }, { required: ['b'] }] },
      },
    },
  ],
  [
    'lists of unknown items at any depth',
    {
      type: 'object',
      properties: {
        a: { type: ['array', 'null'] },
        b: { anyOf: [list, text] },
        c: { type: 'array', items: list },
        d: { type: 'object', additionalProperties: list },
        e: { type: 'array', prefixItems: [list] },
      },
    },
  ],
  ['a pattern of RE2', { type: 'object', properties: { a: { type: 'string', pattern: '(?i)^a$' } } }],
  ['a pattern with a flag', inputJsonSchema(z.object({ a: z.string().regex(/^a$/i) }))],
])('no provider refuses %s', (_what, schema) => {
  expect(refusalsOf(schema)).toEqual([]);
  for (const provider of PROVIDERS) {
    const { tools, reports } = toolsFor(provider, [tool(schema)]);
    expect(reports[0]?.warnings, provider).toEqual([]);
    const parameters = schemaOf(tools[0]);
    expect(parameters, provider).toMatchObject({ type: 'object', properties: expect.any(Object) });
    // The two others are given the tool's own patterns.
    if (provider === 'openai' || provider === 'gemini') ajv.compile(parameters);
  }
});

test('a list of values of two types keeps those of its own', () => {
  const state = { type: 'string', enum: ['on', 'off', true, false] };
  const schema = { type: 'object', properties: { state }, required: ['state'], additionalProperties: false };
  const { tools, reports } = toolsFor('openai', [tool(schema)]);
  expect(tools[0]).toMatchObject({ strict: true, parameters: { properties: { state: { enum: ['on', 'off'] } } } });
  expect(reports[0]).toMatchObject({ outcome: 'lossless' });
});

describe('parameters that a provider refuses, and that no rule converts', () => {
  const a = { type: 'string', enum: [], const: 1 };
  const refused = { type: 'object', properties: { a }, required: [] } as JsonSchema;

  test('are exported as any object, with words and a warning', () => {
    const { tools, reports } = toolsFor('openai', [tool(refused), tool({ type: 'object' }, 'stay')], { strict: false });
    expect(tools[0]?.['parameters']).toEqual({ type: 'object', properties: {} });
    expect(tools[0]?.['description']).toContain('Parameters: {"type":"object"');
    expect(reports[0]).toMatchObject({
      outcome: 'lossy',
      warnings: [expect.stringContaining('properties.a has values that are not of its type')],
    });
    expect(reports[1]).toMatchObject({ outcome: 'lossless', warnings: [] });
  });

  test('are any object for libraries that talk to all providers', () => {
    expect(plainParameters(refused)).toEqual({ type: 'object', properties: {} });
  });

  test('leave every other tool of the request as it is', () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        expect(refusalsOf({ ...schema, type: 'object' })).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });
});

test.each([
  ['openai', 128],
  ['gemini', 512],
] as const)('the tools beyond the number that %s takes are reported', (provider, most) => {
  const names = Array.from({ length: most + 1 }, (_, index) => `t${index}`);
  const warningsOf = (count: number) =>
    toolsFor(
      provider,
      names.slice(0, count).map((name) => tool({ type: 'object' }, name)),
    ).reports.map(({ warnings }) => warnings);
  expect(warningsOf(most).flat()).toEqual([]);
  expect(warningsOf(most + 1).flat()).toEqual([
    `the provider takes ${most} tools in a request and refuses one with more`,
  ]);
  expect(warningsOf(most + 1).at(-1)).toHaveLength(1);
});

test('bounds that JSON has no number for are no bounds', () => {
  const a = {
    type: 'number',
    minimum: Number.NEGATIVE_INFINITY,
    exclusiveMaximum: Number.POSITIVE_INFINITY,
    multipleOf: Number.NaN,
  };
  const { schema, changes } = sanitizeSchema({ type: 'object', properties: { a } });
  expect(schema).toEqual({ type: 'object', properties: { a: { type: 'number' } } });
  expect(changes).toHaveLength(3);
});

describe('patterns that OpenAI cannot read', () => {
  const unreadable = [
    '\\p{L}+',
    '^[^]$',
    '\\u{1F600}',
    '\\ud83d\\ude00',
    '[[a]',
    '\\cA',
    '(?<year>\\d{4})',
    '(?=a)b',
    '(a)\\1',
  ];
  const readable = ['^[a-z]+$', '^\\d{4}-\\d{2}$', '^(?:a|b)\\.\\u00e9[\\w.@-]*?$', '^[^\\]\\\\(?=]+\\/$', ''];
  const text = (pattern: string) => ({ type: 'string', pattern });
  const places: readonly ((pattern: string) => Record<string, unknown>)[] = [
    text,
    (pattern) => ({ type: 'array', items: text(pattern) }),
    (pattern) => ({ type: 'object', patternProperties: { [pattern]: {} }, unevaluatedProperties: false }),
    (pattern) => ({ type: 'object', propertyNames: text(pattern) }),
    (pattern) => ({ type: 'array', items: {}, contains: text(pattern), minContains: 2 }),
    (pattern) => ({ type: 'string', not: text(pattern) }),
    (pattern) => ({ type: 'string', if: text(pattern), else: { minLength: 2 } }),
    (pattern) => ({ type: 'object', dependentSchemas: { x: { properties: { y: text(pattern) } } } }),
  ];
  const exported = (part: object, strict: boolean) =>
    toolsFor(
      'openai',
      [tool({ type: 'object', properties: { a: part }, required: ['a'], additionalProperties: false })],
      {
        strict,
      },
    );

  test.each(unreadable)('are left out and reported, wherever they stand: %s', (pattern) => {
    for (const place of places)
      for (const strict of [true, false]) {
        const { tools, reports } = exported(place(pattern), strict);
        const text = JSON.stringify(withoutDescriptions(tools[0]?.['parameters']));
        expect(text).not.toContain(JSON.stringify(pattern).slice(1, -1));
        expect(reports[0]).toMatchObject({ outcome: expect.not.stringMatching('lossless'), warnings: [] });
        expect(text).toContain('"a"');
      }
    expect(plainParameters({ type: 'object', properties: { a: text(pattern) } })).toMatchObject({
      properties: { a: { type: 'string', description: expect.stringContaining('pattern') } },
    });
  });

  test('leave nothing behind that accepts less than before', () => {
    const { tools } = exported(places[2]?.('\\p{L}') ?? {}, false);
    expect(withoutDescriptions(tools[0]?.['parameters'])).toMatchObject({ properties: { a: { type: 'object' } } });
    expect(JSON.stringify(withoutDescriptions(tools[0]?.['parameters']))).not.toContain('unevaluated');
  });

  test.each(readable)('are not those that every engine reads: %s', (pattern) => {
    for (const strict of [true, false])
      expect(exported(text(pattern), strict)).toMatchObject({
        tools: [{ strict, parameters: { properties: { a: { pattern } } } }],
        reports: [{ outcome: 'lossless' }],
      });
  });
});

/** Descriptions quote what was removed. */
function withoutDescriptions(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(schema, (key, value) => (key === 'description' ? undefined : value)));
}

describe('what one provider alone refuses is written in another way', () => {
  const withA = (a: object) => ({ type: 'object', properties: { a }, required: ['a'], additionalProperties: false });
  const exported = (provider: 'openai' | 'anthropic' | 'gemini', schema: JsonSchema) => {
    const { tools, reports } = toolsFor(provider, [tool(sanitizeSchema(schema).schema)], { strict: true });
    return { schema: schemaOf(tools[0]), report: reports[0] };
  };

  test.each<[string, object, object]>([
    ['values of Gemini are texts and numbers', { enum: ['a', true] }, { type: ['string', 'boolean'] }],
    ['and not empty', { type: 'string', enum: ['', 'a'] }, { type: 'string' }],
    [
      'null is a choice',
      { type: ['string', 'null'], enum: ['a', null] },
      { anyOf: [{ type: 'string', enum: ['a'] }, { type: 'null' }] },
    ],
    ['a value that is listed twice', { type: 'string', enum: ['a', 'b', 'a'] }, { type: 'string', enum: ['a', 'b'] }],
    [
      'extensions and annotations',
      { type: 'string', 'x-order': 1, readOnly: true, $comment: 'x', examples: ['a'] },
      { type: 'string' },
    ],
    ['nothing as an item', { type: 'array', items: false }, { type: 'array', items: {} }],
  ])('%s', (_what, a, expected) => {
    const made = (exported('gemini', withA(a)).schema['properties'] as JsonSchema)['a'] as JsonSchema;
    const { description: _description, ...rest } = made;
    expect(rest).toEqual(expected);
  });

  test.each(['openai', 'anthropic'] as const)('a strict tool of %s has no extensions', (provider) => {
    const a = { type: 'string', 'x-order': 1, deprecated: true, $comment: 'x', example: 'a' };
    expect(exported(provider, withA(a))).toMatchObject({ report: { strict: true }, schema: withA({ type: 'string' }) });
    expect((exported(provider, withA(a)).schema['properties'] as JsonSchema)['a']).toEqual({ type: 'string' });
  });

  test.each([
    ['objects as values', withA({ enum: [{ x: 1 }, { x: 2 }] }), /objects or lists/],
    [
      'a schema within itself',
      { type: 'object', properties: { a: { $ref: '#' } }, additionalProperties: false },
      /refers to itself/,
    ],
  ])('Anthropic has no strict form of %s', (_what, schema, reason) => {
    const { report } = exported('anthropic', schema);
    expect(report).toMatchObject({ strict: false, outcome: 'refused-strict', reason: expect.stringMatching(reason) });
  });

  test('Gemini follows a schema within itself only where it is optional', () => {
    const node = (required: readonly string[]) => ({
      ...withA({ $ref: '#/$defs/Node' }),
      $defs: {
        Node: { type: 'object', properties: { below: { type: 'array', items: { $ref: '#/$defs/Node' } } }, required },
      },
    });
    expect(exported('gemini', node([])).report?.warnings).toEqual([]);
    expect(exported('gemini', node(['below']))).toMatchObject({
      schema: { type: 'object', properties: {} },
      report: { warnings: [expect.stringContaining('refers to itself in required properties')] },
    });
  });
});
