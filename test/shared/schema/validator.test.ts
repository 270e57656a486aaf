/** A costly schema or value is refused, or compiled and checked in a thread: the event loop goes on turning. */
import { Worker } from 'node:worker_threads';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { declaredToolRecord } from '../../../src/shared/connectors/declared-tool.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { inputJsonSchema } from '../../../src/shared/schema/schema.ts';
import { isLargeSchema, patternSize } from '../../../src/shared/schema/schema-weight.ts';
import { fitToSchema, lazyValidator, usableSchema, validatorOf } from '../../../src/shared/schema/validator.ts';
import { withoutNulls } from '../../../src/shared/schema/without-nulls.ts';
import { DeclaredTools } from '../../../src/workers/connectors/declared-tools.ts';

const times = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: count }, (_, index) => make(index));
const named = <T>(count: number, make: (index: number) => T) =>
  Object.fromEntries(times(count, (index) => [`k${index}`, make(index)]));
const object = (properties: object, more: object = {}): JsonSchema => ({ type: 'object', properties, ...more });
const list = (items: object, more: object = {}) => object({ l: { type: 'array', items, ...more } });
const text = (schema: object) => object({ s: { type: 'string', ...schema } });
const halves = (keyword: string, levels: number): object =>
  levels === 0 ? { required: ['missing'] } : { [keyword]: [halves(keyword, levels - 1), halves(keyword, levels - 1)] };
const objects = (count: number) => times(count, (index) => ({ a: index, b: [index] }));

/** A schema whose leaf is checked 2^levels times at one place. */
const doubled = (levels: number, leaf: object) => ({
  ...object({ a: { $ref: '#/$defs/k0' } }),
  $defs: named(levels + 1, (index) =>
    index === levels ? leaf : { allOf: times(2, () => ({ $ref: `#/$defs/k${index + 1}` })) },
  ),
});
const nested = (levels: number, leaf: unknown) => times(levels, String).reduce<unknown>((inner) => [inner], leaf);
const nestedLists = (levels: number) =>
  object({
    l: times(levels, String).reduce<object>((items) => ({ type: 'array', uniqueItems: true, items }), {}),
  });

type Row = readonly [what: string, schema: JsonSchema, value: unknown, finds: number];

const COSTLY: readonly Row[] = [
  ['alternatives of a few levels for many items', list(halves('anyOf', 5)), { l: times(300, () => ({})) }, 10],
  ['one of many alternatives', list(halves('oneOf', 5)), { l: times(300, () => ({})) }, 10],
  [
    'alternatives that a hundred references share',
    { ...object(named(100, () => ({ $ref: '#/$defs/x' }))), $defs: { x: halves('anyOf', 6) } },
    named(100, () => ({})),
    8,
  ],
  ['lists of objects without duplicates', list({}, { uniqueItems: true }), { l: objects(20_000) }, 0],
  ['a pattern that backtracks elsewhere', text({ pattern: '^(a+)+$' }), { s: `${'a'.repeat(900_000)}!` }, 1],
  [
    'a pattern for each of many items',
    list({ type: 'string', pattern: '^([a-z]+[0-9]+)+$' }),
    { l: times(20_000, () => 'abc123') },
    0,
  ],
  ['a pattern with nested counts', text({ pattern: '^([a-z]{0,30}\\p{L}{0,30}){0,9}$' }), { s: 'a' }, 0],
  ['a pattern with many alternatives', text({ pattern: times(900, (index) => `w${index}`).join('|') }), { s: 'x' }, 1],
  ['wide classes whose case is ignored', text({ pattern: `(?i)^${'.'.repeat(8)}` }), { s: 'x' }, 1],
  ['a class of many properties', text({ pattern: `^[${'\\p{L}'.repeat(40)}]$` }), { s: 'x' }, 0],
  ['a format with a quadratic pattern', text({ format: 'url' }), { s: `http://${':'.repeat(9_000)}` }, 1],
  ['a format for a long text', text({ format: 'email' }), { s: 'a@'.repeat(200_000) }, 1],
  ['a list that must contain something', list({}, { contains: { const: 'x' } }), { l: times(30_000, Number) }, 10],
  [
    'names that a pattern checks',
    { type: 'object', propertyNames: { pattern: '^(a+)+$', enum: times(9, String) } },
    named(4_900, Number),
    10,
  ],
  [
    'many patterns for many names',
    { type: 'object', patternProperties: Object.fromEntries(times(100, (index) => [`^(a|b)*${index}$`, {}])) },
    named(4_900, Number),
    0,
  ],
  [
    'schemas that depend on names',
    { type: 'object', dependentSchemas: named(200, () => ({ required: ['missing'] })) },
    named(1_000, Number),
    1,
  ],
  [
    'unknown members',
    list(object({}, { additionalProperties: false })),
    { l: times(20, () => named(4_900, Number)) },
    10,
  ],
  [
    'unknown members like known ones',
    object(
      named(400, () => ({})),
      { additionalProperties: false },
    ),
    named(4_900, (index) => index).constructor === Object
      ? Object.fromEntries(times(4_900, (index) => [`k${index}_`, 1]))
      : {},
    10,
  ],
  ['a huge enum', object({ s: { enum: times(50_000, (index) => `v${index}`) } }), { s: 'x' }, 1],
  ['an enum of objects for many items', list({ enum: objects(90) }), { l: objects(900) }, 10],
  ['many required names', object({}, { required: times(20_000, String) }), {}, 10],
  [
    'a schema that is nested deep',
    times(62, String).reduce<JsonSchema>(
      (below) => object({ a: below, b: below === undefined ? {} : { enum: times(20, String) } }),
      object({}),
    ),
    {},
    0,
  ],
  ['wrong items of a long list', list({ type: 'string' }), { l: times(90_000, Number) }, 10],
  [
    'bounds of a text',
    text({ allOf: times(300, (index) => ({ maxLength: index + 1e6 })) }),
    { s: '😀'.repeat(4e5) },
    0,
  ],
  ['a format of a text', text({ allOf: times(200, () => ({ format: 'email' })) }), { s: 'a.'.repeat(5_000) }, 1],
  ['lists in lists without duplicates', nestedLists(60), { l: nested(60, 'x'.repeat(900_000)) }, 0],
  ...(
    [
      ['bounds', { maxLength: 9 }, '😀'.repeat(2e5), 1],
      ['patterns', { pattern: '[ab]c' }, 'ab'.repeat(2e4), 1],
      ['formats', { format: 'email' }, 'a.'.repeat(4e3), 1],
      ['lists without duplicates', { uniqueItems: true }, ['x'.repeat(1e5)], 0],
      ['patterns of names', { patternProperties: { '[ab]c': {} } }, { ['ab'.repeat(2e4)]: 1 }, 0],
    ] as const
  ).map(([what, leaf, value, finds]): Row => [`${what} that references double`, doubled(9, leaf), { a: value }, finds]),
  ['parameters of a megabyte in small parts', list(object({ a: { type: 'integer' } })), { l: objects(9_000) }, 0],
];

describe('what could hold the event loop', () => {
  test.each(COSTLY)('is checked in a thread: %s', async (_what, schema, value, finds) => {
    const usable = await usableSchema(schema, 'parameters');
    const found = lazyValidator(usable.schema)(value);
    expect(found).toBeInstanceOf(Promise);
    expect(await found).toHaveLength(finds);
  });

  test.each([
    [
      'references that double',
      {
        type: 'object',
        $ref: '#/$defs/k0',
        $defs: {
          ...named(40, (index) => ({ allOf: [{ $ref: `#/$defs/k${index + 1}` }, { $ref: `#/$defs/k${index + 1}` }] })),
          k40: {},
        },
      },
      'too costly',
    ],
    [
      'thousands of schemas',
      { type: 'object', allOf: times(6_000, () => ({ minProperties: 0 })) },
      'more than 5000 schemas',
    ],
    ['two megabytes of text', object({ a: { description: 'x'.repeat(2_000_000) } }), 'too large: it has 2000'],
    [
      'a fault in a large schema',
      object({ a: { not: { $ref: '#/properties/a' } }, b: { enum: times(2_000, String) } }),
      'refers to itself',
    ],
  ] as const)('a declaration with %s is refused', async (_what, inputSchema, why) => {
    const spec = { kind: 'dynamic', version: '1.0.0', description: 'Does it.', inputSchema };
    const revision = { name: 'go', namespace: 'x', revision: 1, updatedAtMs: 0, updatedBy: 'me' };
    await expect(declaredToolRecord(spec, revision)).rejects.toThrow(
      expect.objectContaining({
        code: 'CONTRACT_INVALID',
        issues: [{ path: 'inputSchema', message: expect.stringContaining(why) }],
      }),
    );
  });

  test('the conditions of costs are checked in a thread by a large schema', async () => {
    const sent = vi.spyOn(Worker.prototype, 'postMessage');
    onTestFinished(() => sent.mockRestore());
    const budget = { costs: [{ when: { k7: 'x' }, costUnits: 1 }] };
    const inputSchema = object(named(600, () => ({ type: 'integer' })));
    const spec = { kind: 'dynamic', version: '1.0.0', description: 'Does it.', inputSchema, budget };
    const revision = { name: 'go', namespace: 'x', revision: 1, updatedAtMs: 0, updatedBy: 'me' };
    await expect(declaredToolRecord(spec, revision)).rejects.toThrow('budget.costs[0].when.k7');
    expect(sent).toHaveBeenCalledWith(expect.objectContaining({ does: 'check' }));
  });

  test('a declared tool is neither repaired nor compiled again when a worker makes it', async () => {
    const compile = vi.spyOn(Ajv2020.prototype, 'compile');
    onTestFinished(() => compile.mockRestore());
    const inputSchema = object(named(600, () => ({ type: 'integer', default: { $id: 'a' } })));
    const budget = { costs: [{ when: { k7: 1 }, costUnits: 1 }] };
    const spec = { kind: 'dynamic', version: '1.0.0', description: 'Does it.', inputSchema, budget };
    const revision = { name: 'go', namespace: 'x', revision: 1, updatedAtMs: 0, updatedBy: 'me' };
    const { record } = await declaredToolRecord(spec, revision);
    const changes = { sequence: 1, restarted: false, records: new Map([['x.go', record]]) };
    const records = { changesSince: async () => changes, withDefinition: async () => record };
    const tools = new DeclaredTools(records, { dynamic: () => ({ run: () => ({ output: 1 }) }) });
    await tools.catchUp();
    expect(tools.toolNamed('x', 'go')?.tool.inputSchema).toBe(record.inputSchema);
    expect(compile).not.toHaveBeenCalled();
  });

  test('a check that takes too long is refused, and the next one is made', async () => {
    const validate = lazyValidator(list(halves('anyOf', 8)));
    expect(await validate({ l: [] })).toEqual([]);
    const long = validate({ l: times(20_000, () => ({})) });
    const next = validatorOf(list({ type: 'integer' }))({ l: times(60_000, Number) });
    expect(await long).toEqual([
      { path: '', message: expect.stringMatching(/^takes (more than 2 s|too much memory) to check by this schema$/) },
    ]);
    expect(await next).toEqual([]);
  });

  test('nulls in the place of what may be absent are removed there as well', async () => {
    const schema = list(object({ a: { type: 'integer' }, b: { type: 'array' } }, { additionalProperties: false }));
    const sent = { l: [...objects(9_000), { a: null, b: [] }] };
    const validate = lazyValidator(schema);
    expect(validate(sent)).toBeInstanceOf(Promise);
    const { value, issues } = await fitToSchema(schema, validate, sent);
    expect(issues).toEqual([]);
    expect((value as typeof sent).l.at(-1)).toEqual({ b: [] });
    const wrong = { l: [...objects(9_000), { a: null, b: 1 }] };
    expect(await fitToSchema(schema, validate, wrong)).toMatchObject({ value: wrong, issues: [{}, {}] });
  });

  test('a value without nulls needs no look at the schema', () => {
    const unread = new Proxy({}, { get: () => expect.unreachable() });
    const value = { l: objects(10) };
    expect(withoutNulls(unread, value)).toBe(value);
  });

  test('the fault of a schema shows at each call', async () => {
    const validate = validatorOf(object({ a: { enum: times(2_000, String), minLength: 'x' } }));
    for (const _time of [1, 2]) await expect(validate({})).rejects.toThrow('not valid JSON Schema');
  });
});

describe('what is ordinary', () => {
  const ordinary = inputJsonSchema(
    z.object({
      path: z.string().regex(/^[\w/.-]+$/),
      content: z.string().optional(),
      edits: z.array(z.object({ old: z.string(), now: z.string() })).optional(),
      options: z.object({ mode: z.enum(['a', 'b']), url: z.url().optional() }).optional(),
    }),
  );
  test.each([
    ['a few parameters', { path: 'a/b.ts', options: { mode: 'a', url: 'https://example.org' } }],
    ['a text of some kilobytes', { path: 'a/b.ts', content: 'x'.repeat(8_000) }],
    ['a hundred edits', { path: 'a/b.ts', edits: times(100, () => ({ old: 'a', now: 'b' })) }],
    ['a fault', { path: 'no blanks', content: 1 }],
  ])('is checked at once: %s', (_what, value) => {
    expect(lazyValidator(ordinary)(value)).toBeInstanceOf(Array);
  });
});

test.each<[string, number]>([
  ['abc', 3],
  ['[a-z]', 1],
  ['[^\\]a]x', 2],
  ['a{10}', 10],
  ['(ab){2,10}', 30],
  ['((a{10}){10}){10}', 1_110],
  ['\\d{4}-\\d{2}', 7],
  ['a{,}', 4],
  ['\\p{L}', 60],
  ['[\\p{L}\\p{N}]', 120],
  ['[\\S\\s]', 2],
  ['(?i:a[a-z])', 6],
  ['(?i).\\S[\\u0100-\\uffff]', 1_206],
  ['(?i)^[\\w-]{1,100}\\d.{9}$', 415],
  ['['.repeat(60_000), 1],
])('the size of the pattern %.40s is %i', (pattern, size) => {
  expect(patternSize(pattern)).toBe(size);
});

test('a schema is large by its members, its texts or its patterns', () => {
  expect(isLargeSchema(object(named(300, () => ({ type: 'string' }))))).toBe(false);
  expect(isLargeSchema(object(named(600, () => ({ type: 'string' }))))).toBe(true);
  expect(isLargeSchema(text({ description: 'x'.repeat(100_000) }))).toBe(true);
  expect(isLargeSchema(text({ pattern: '(a{1,100}){1,100}' }))).toBe(true);
});
