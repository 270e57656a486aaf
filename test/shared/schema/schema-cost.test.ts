/** A small schema of high cost is refused where it comes in; values of the others take a bounded time. */
import { describe, expect, test } from 'vitest';
import { declaredToolRecord } from '../../../src/shared/connectors/declared-tool.ts';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { PROVIDERS } from '../../../src/shared/model-tools/export-types.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';

/** Definitions that each refer to the next twice, so that the checks of the last one double with each. */
function doubling(twice: (reference: object) => object, levels = 40): JsonSchema {
  const all = Array.from({ length: levels }, (_, level) => [`L${level}`, twice({ $ref: `#/$defs/L${level + 1}` })]);
  return {
    type: 'object',
    $ref: '#/$defs/L0',
    $defs: { ...Object.fromEntries(all), [`L${levels}`]: { type: 'object' } },
  };
}

const AT_ONE_PLACE: Readonly<Record<string, (reference: object) => object>> = {
  allOf: (reference) => ({ allOf: [reference, reference] }),
  anyOf: (reference) => ({ anyOf: [reference, reference] }),
  oneOf: (reference) => ({ oneOf: [reference, { not: reference }] }),
  'if and else': (reference) => ({ if: reference, else: reference }),
  dependentSchemas: (reference) => ({ dependentSchemas: { a: reference, b: reference } }),
  'beside a reference': (reference) => ({ ...reference, allOf: [reference] }),
};

const BELOW: Readonly<Record<string, (reference: object) => object>> = {
  properties: (reference) => ({ allOf: [{ properties: { a: reference } }, { properties: { a: reference } }] }),
  'patterns and names': (reference) => ({ properties: { a: reference }, patternProperties: { '^a': reference } }),
  'patterns and the rest': (reference) => ({
    anyOf: [{ additionalProperties: reference }, { properties: { a: reference } }],
  }),
  itself: () => ({ anyOf: [{ properties: { a: { $ref: '#' } } }, { properties: { a: { $ref: '#' } } }] }),
};

const nested = (levels: number) => {
  let value: object = { b: 1 };
  for (let level = 0; level < levels; level += 1) value = { a: value };
  return value;
};

/** A limit far above the time of these tests, and far below an exponential one. */
const LIMIT_MS = 5_000;
function inTime<T>(run: () => T): T {
  const before = process.cpuUsage();
  const result = run();
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1_000).toBeLessThan(LIMIT_MS);
  return result;
}

const base = { version: '1.0.0', description: 'Does it.', tier: 'system', run: () => ({ output: 1 }) } as const;

describe.each(Object.entries(AT_ONE_PLACE))('a schema that doubles by %s', (_what, twice) => {
  const schema = doubling(twice);
  test('is refused when it is compiled, declared and imported', async () => {
    expect(() => inTime(() => compileSchema(schema))).toThrow(/too costly/);
    const spec = { kind: 'dynamic', version: '1.0.0', description: 'Does it.', inputSchema: schema } as const;
    const named = { name: 'go', namespace: 'x', revision: 1, updatedAtMs: 0, updatedBy: 'me' };
    await expect(declaredToolRecord(spec, named)).rejects.toThrow(/too costly: .*[^.]\.$/);
    const { $defs, ...root } = schema;
    const document = JSON.parse(
      JSON.stringify({
        openapi: '3.1.0',
        servers: [{ url: 'https://example.org' }],
        paths: {
          '/x': { post: { requestBody: { required: true, content: { 'application/json': { schema: root } } } } },
        },
        components: { schemas: $defs },
      }).replaceAll('#/$defs/', '#/components/schemas/'),
    );
    expect((await importOpenApi(document)).skipped[0]?.reason).toMatch(/too costly/);
  });

  test.each(PROVIDERS)('blocks no export for %s', (provider) => {
    const tool = defineUntypedTool({ ...base, name: 'go', inputSchema: schema });
    expect(inTime(() => toolsFor(provider, [tool])).tools).toHaveLength(1);
  });
});

test.each(Object.entries(BELOW))(
  'what doubles with each level of a value, by %s, takes values that are not deep',
  (_what, twice) => {
    const validate = compileSchema(doubling(twice));
    expect(inTime(() => validate(nested(4)))).toEqual([]);
    expect(inTime(() => validate(nested(60)))).toEqual([
      { path: '', message: expect.stringMatching(/^is nested more than/) },
    ]);
  },
);

test('a schema that refers to itself at the same place is refused', () => {
  expect(() => compileSchema({ type: 'object', anyOf: [{ $ref: '#' }] })).toThrow(/refers to itself/);
});

test('recursive schemas that check each place once accept values of any depth', () => {
  const tree = {
    type: 'object',
    properties: { a: { $ref: '#' }, b: { type: 'integer' } },
    additionalProperties: false,
  };
  expect(compileSchema(tree)(nested(100))).toEqual([]);
  const filter = (op: string) => ({
    type: 'object',
    properties: { op: { const: op }, a: { $ref: '#/$defs/Filter' } },
    required: ['op'],
  });
  const tagged = { $ref: '#/$defs/Filter', $defs: { Filter: { anyOf: [filter('and'), filter('or')] } } };
  let value: object = { op: 'or' };
  for (let level = 0; level < 100; level += 1) value = { op: 'and', a: value };
  expect(inTime(() => compileSchema(tagged)(value))).toEqual([]);
});

test('lists are checked for duplicates in linear time, by JSON’s own equality', () => {
  const validate = compileSchema({ type: 'object', properties: { all: { type: 'array', uniqueItems: true } } });
  const items = Array.from({ length: 45_000 }, (_, index) => ({ index }));
  expect(inTime(() => validate({ all: items }))).toEqual([]);
  expect(validate({ all: [...items.slice(0, 40_000), { index: 7 }] })).toHaveLength(1);
  expect(validate({ all: [1, '1', true, 'true', null, 'null', [1], '[1]', { a: 1, b: 2 }] })).toEqual([]);
  expect(
    validate({
      all: [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
    }),
  ).toHaveLength(1);
});

test('the number of members bounds parameters, whatever their schema', () => {
  for (const schema of [{ type: 'object' }, { type: 'object', additionalProperties: false }]) {
    const validate = compileSchema(schema);
    const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`x${index}`, 1]));
    expect(inTime(() => validate(many(90_000)))).toEqual([
      { path: '', message: expect.stringContaining('5000 members') },
    ]);
    expect(inTime(() => validate({ all: Array.from({ length: 200_000 }, () => 1) }))).toEqual([
      { path: '', message: expect.stringContaining('100000 values') },
    ]);
  }
});

describe('what is written once is compiled once', () => {
  const names = (count: number, prefix: string) => Array.from({ length: count }, (_, index) => `${prefix}${index}`);
  const byName = (count: number, part: (name: string) => unknown) =>
    Object.fromEntries(names(count, 'p').map((name) => [name, part(name)]));
  const tagged = (name: string) => ({
    type: 'object',
    required: ['t'],
    properties: { t: { enum: names(60, `${name}_`) } },
  });
  test.each<readonly [string, JsonSchema, object, object]>([
    [
      'dependentRequired',
      { type: 'object', dependentRequired: byName(300, () => names(300, 'q')) },
      { q1: 1 },
      { p1: 1 },
    ],
    ['one list of dependentRequired', { dependentRequired: { p0: names(4_000, 'q') } }, { q1: 1 }, { p0: 1, q1: 1 }],
    ['the tags of alternatives', { oneOf: Object.values(byName(60, tagged)) }, { t: 'p59_59' }, { t: 'q' }],
  ])('%s', (_what, schema, valid, invalid) => {
    const validate = inTime(() => compileSchema(schema));
    expect(validate(valid)).toEqual([]);
    expect(validate(invalid)).toHaveLength(1);
  });

  test('a schema that is nested deeper than it can be compiled is too costly', () => {
    let schema: JsonSchema = { type: 'string' };
    for (let level = 0; level < 3_000; level += 1) schema = { type: 'array', items: schema };
    expect(() => compileSchema(schema)).toThrow(/too costly: it is nested too deep/);
  });
});

test('a tag and the members of its alternative count as evaluated', () => {
  const alternative = (tag: string) => ({
    type: 'object',
    properties: { t: { const: tag }, [tag]: true },
    required: ['t'],
  });
  const validate = compileSchema({
    type: 'object',
    properties: { x: true },
    oneOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/b' }, { ...alternative('c'), additionalProperties: false }],
    unevaluatedProperties: false,
    $defs: { a: alternative('a'), b: alternative('b') },
  });
  expect([{ t: 'a', a: 1, x: 1 }, { t: 'b', b: 1, x: 1 }, { t: 'c' }].map(validate)).toEqual([[], [], []]);
  expect(validate({ t: 'b', a: 1 })).toMatchObject([{ path: 'a' }]);
});

describe('references by name count like those by place', () => {
  /** 24 definitions, each with two references to the next one. */
  const doublingBy = (refer: (index: number) => string, name: (index: number) => object = () => ({})) => ({
    $defs: Object.fromEntries(
      Array.from({ length: 25 }, (_, index) => [
        `d${index}`,
        index === 24
          ? { ...name(index), type: 'string' }
          : { ...name(index), allOf: [{ $ref: refer(index + 1) }, { $ref: refer(index + 1) }] },
      ]),
    ),
    $ref: refer(0),
  });
  test.each([
    [
      'an anchor',
      doublingBy(
        (index) => `#d${index}`,
        (index) => ({ $anchor: `d${index}` }),
      ),
    ],
    [
      'a dynamic anchor',
      doublingBy(
        (index) => `#d${index}`,
        (index) => ({ $dynamicAnchor: `d${index}` }),
      ),
    ],
    [
      'an address',
      doublingBy(
        (index) => `d${index}.json`,
        (index) => ({ $id: `d${index}.json` }),
      ),
    ],
    [
      'an address on another host',
      {
        $id: 'https://one.example/a',
        ...doublingBy(
          (index) => `https://two.example/d${index}`,
          (index) => ({ $id: `https://two.example/d${index}` }),
        ),
      },
    ],
    ['a pointer behind an address', { $id: 'https://one.example/a', ...doublingBy((index) => `a#/$defs/d${index}`) }],
    [
      'an address below that of a definition',
      {
        $defs: {
          b: {
            $id: 'https://one.example/b/',
            ...doublingBy(
              (index) => `d${index}`,
              (index) => ({ $id: `d${index}` }),
            ),
          },
        },
        $ref: 'https://one.example/b/',
      },
    ],
  ])('%s', (_name, schema) => {
    expect(() => compileSchema(schema)).toThrow(/too costly/);
  });

  test('a dynamic reference counts as each schema that it may lead to', () => {
    const list = (keyword: string) => ({ type: 'array', [keyword]: { $dynamicRef: '#node' } });
    const validate = compileSchema({ $dynamicAnchor: 'node', anyOf: [list('items'), list('contains')] });
    let value: unknown = 1;
    for (let depth = 0; depth < 20; depth += 1) value = [value];
    expect(inTime(() => validate(value))[0]?.message).toContain('levels deep');
  });

  test('a tree that is extended by its dynamic anchor is taken', () => {
    const tree = {
      $id: 'https://one.example/tree',
      $dynamicAnchor: 'node',
      type: 'object',
      properties: { data: true, children: { type: 'array', items: { $dynamicRef: '#node' } } },
    };
    const validate = compileSchema({
      $id: 'https://one.example/strict',
      $dynamicAnchor: 'node',
      $ref: 'tree',
      unevaluatedProperties: false,
      $defs: { tree },
    });
    expect(validate({ children: [{ data: 1, children: [] }] })).toEqual([]);
    expect(validate({ children: [{ daat: 1 }] })).toMatchObject([{ path: 'children.0.daat' }]);
  });
});

test.each([[true], [false], [{}]])(
  'more than 5,000 schemas are refused by their number, also those that are %j',
  (part) => {
    const definitions = Array.from({ length: 100 }, (_, index) => [
      `D${index}`,
      { properties: Object.fromEntries(Array.from({ length: 50 }, (__, name) => [`p${index}_${name}`, part])) },
    ]);
    const allOf = definitions.map(([name]) => ({ $ref: `#/$defs/${name}` }));
    const schema = { type: 'object', allOf, unevaluatedProperties: false, $defs: Object.fromEntries(definitions) };
    expect(() => compileSchema(schema)).toThrow('it holds more than 5000 schemas');
  },
);
