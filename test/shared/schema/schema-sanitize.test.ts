import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';

const VALUES = [null, true, false, 0, -1, 1.5, '3', '', [], [1], ['a'], [null], {}, { a: 1 }];

/** Each keyword with the values of which it takes none. */
const WRONG_RESTRICTIONS = [
  ...['pattern', 'format', 'title', 'description', '$ref'].map(
    (name) => [name, (value: unknown) => typeof value === 'string'] as const,
  ),
  ...['uniqueItems', 'deprecated'].map((name) => [name, (value: unknown) => typeof value === 'boolean'] as const),
  ...['minimum', 'maximum'].map((name) => [name, (value: unknown) => typeof value === 'number'] as const),
  ...['exclusiveMinimum', 'exclusiveMaximum'].map(
    (name) => [name, (value: unknown) => typeof value === 'number'] as const,
  ),
  ...['Length', 'Items', 'Contains', 'Properties']
    .flatMap((what) => [`min${what}`, `max${what}`])
    .map((name) => [name, (value: unknown) => value === 0] as const),
  ['multipleOf', (value: unknown) => value === 1.5] as const,
  ['enum', Array.isArray] as const,
  ['required', (value: unknown) => Array.isArray(value) || typeof value === 'boolean'] as const,
  [
    'dependentRequired',
    (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value),
  ] as const,
  ...['properties', 'not', 'items', 'anyOf'].map(
    (name) => [name, (value: unknown) => typeof value !== 'string'] as const,
  ),
  ...['$async', '$vocabulary', 'contentSchema'].map((name) => [name, () => false] as const),
].map(([name, isRight]) => [name, VALUES.filter((value) => !isRight(value))] as const);

describe('C8: foreign schemas are repaired', () => {
  test.each<[string, unknown, object]>([
    ['nothing', undefined, { type: 'object', properties: {} }],
    ['no properties (C22)', { type: 'object' }, { type: 'object', properties: {} }],
    ['a root of another type', { type: 'string' }, { type: 'object', properties: {} }],
    [
      'properties tell an object, items an array',
      { properties: { a: { properties: {} }, b: { items: { minLength: 1 } }, c: { minimum: 1 } } },
      {
        type: 'object',
        properties: {
          a: { type: 'object', properties: {} },
          b: { type: 'array', items: { type: 'string', minLength: 1 } },
          c: { type: 'number', minimum: 1 },
        },
      },
    ],
    [
      'an array without items',
      { type: 'object', properties: { a: { type: 'array' } } },
      { type: 'object', properties: { a: { type: 'array', items: {} } } },
    ],
    [
      'draft 7: definitions, and items as a list',
      {
        type: 'object',
        properties: { a: { $ref: '#/definitions/A' } },
        definitions: { A: { type: 'array', items: [{ type: 'string' }] } },
      },
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/A' } },
        $defs: { A: { type: 'array', prefixItems: [{ type: 'string' }] } },
      },
    ],
    [
      'both names of definitions, one without a meaning',
      { type: 'object', properties: {}, definitions: { A: true }, $defs: 'A' },
      { type: 'object', properties: {}, $defs: { A: true } },
    ],
    [
      'references that lead nowhere, and types that there are not',
      { type: 'object', properties: { a: { $ref: 'https://example.org/a' }, b: { type: 'text' }, c: 7 } },
      { type: 'object', properties: { a: {}, b: {}, c: {} } },
    ],
    [
      'patterns without a linear form',
      { type: 'object', properties: { a: { type: 'string', pattern: '(?=a)' } } },
      { type: 'object', properties: { a: { type: 'string' } } },
    ],
    [
      'names of properties without a linear form, and what is said of the rest',
      { type: 'object', patternProperties: { '^(?!x)': {}, '^y': {} }, additionalProperties: false },
      { type: 'object', properties: {}, patternProperties: { '^y': {} } },
    ],
    [
      'references to any place of the document, as zod-to-json-schema writes them',
      {
        type: 'object',
        properties: {
          from: { type: 'object', properties: { x: { type: 'number' }, before: { $ref: '#/properties/from' } } },
          to: { $ref: '#/properties/from' },
          both: { type: 'array', items: [{ $ref: '#/properties/a~1b%20c' }, { $ref: '#/properties/both/items/0' }] },
          'a/b c': { minLength: 1 },
          any: { $ref: '#/properties/anything' },
          anything: true,
        },
        $defs: { from: { type: 'string' } },
      },
      {
        type: 'object',
        properties: {
          from: { type: 'object', properties: { x: { type: 'number' }, before: { $ref: '#/$defs/from_1' } } },
          to: { $ref: '#/$defs/from_1' },
          both: { type: 'array', prefixItems: [{ $ref: '#/$defs/a_1b_20c' }, { $ref: '#/$defs/0' }] },
          'a/b c': { type: 'string', minLength: 1 },
          any: { $ref: '#/$defs/anything' },
          anything: true,
        },
        $defs: {
          from: { type: 'string' },
          from_1: { type: 'object', properties: { x: { type: 'number' }, before: { $ref: '#/$defs/from_1' } } },
          a_1b_20c: { type: 'string', minLength: 1 },
          0: { $ref: '#/$defs/a_1b_20c' },
          anything: true,
        },
      },
    ],
    [
      'references into definitions of definitions',
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/A/definitions/B' } },
        $defs: { A: { definitions: { B: { type: 'string' } } } },
      },
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/B' } },
        $defs: { A: { $defs: { B: { type: 'string' } } }, B: { type: 'string' } },
      },
    ],
    [
      'references under both names of definitions',
      {
        type: 'object',
        properties: { a: { $ref: '#/definitions/A' }, b: { $ref: '#/$defs/B' } },
        definitions: { A: { type: 'string' } },
        $defs: { B: { type: 'integer' } },
      },
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/A' }, b: { $ref: '#/$defs/B' } },
        $defs: { A: { type: 'string' }, B: { type: 'integer' } },
      },
    ],
    [
      'references with a malformed percent escape',
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/50%' }, b: { $ref: '#/$defs/60%' } },
        $defs: { '50%': { type: 'string' } },
      },
      {
        type: 'object',
        properties: { a: { $ref: '#/$defs/50_' }, b: {} },
        $defs: { '50%': { type: 'string' }, '50_': { type: 'string' } },
      },
    ],
    [
      'bounds left out by a boolean, as draft 4 and OpenAPI 3.0 say it',
      {
        type: 'object',
        properties: {
          a: { type: 'number', minimum: 0, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false },
          b: { type: 'number', exclusiveMaximum: true },
        },
      },
      {
        type: 'object',
        properties: { a: { type: 'number', exclusiveMinimum: 0, maximum: 9 }, b: { type: 'number' } },
      },
    ],
    [
      'nullable',
      {
        type: 'object',
        nullable: true,
        properties: {
          a: { type: 'string', nullable: true },
          b: { type: 'string', enum: ['x'], nullable: true },
          c: { $ref: '#/$defs/A', description: 'C.', nullable: true },
          d: { anyOf: [{ type: 'string' }, { type: 'integer' }], nullable: true },
          e: { type: 'string', nullable: false },
          f: { type: ['string', 'null'], nullable: true },
          g: { nullable: true },
          h: { items: {}, nullable: true },
        },
        $defs: { A: { type: 'string' } },
      },
      {
        type: 'object',
        properties: {
          a: { type: ['string', 'null'] },
          b: { type: ['string', 'null'], enum: ['x', null] },
          c: { description: 'C.', anyOf: [{ $ref: '#/$defs/A' }, { type: 'null' }] },
          d: { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }] },
          e: { type: 'string' },
          f: { type: ['string', 'null'] },
          g: {},
          h: { type: ['array', 'null'], items: {} },
        },
        $defs: { A: { type: 'string' } },
      },
    ],
    [
      'what stands there twice',
      { type: 'object', properties: { a: { type: ['string', 'string'] } }, required: ['a', 'a'] },
      { type: 'object', properties: { a: { type: ['string'] } }, required: ['a'] },
    ],
    [
      'annotations of a wrong type, and restrictions that are null',
      {
        type: 'object',
        description: null,
        properties: {
          a: { type: 'string', title: null, format: null, examples: 'foo', enum: null, maxLength: null },
          b: { type: 'integer', minimum: null, exclusiveMinimum: null },
          c: { type: 'array', items: {}, uniqueItems: null, $ref: null },
        },
      },
      {
        type: 'object',
        properties: { a: { type: 'string' }, b: { type: 'integer' }, c: { type: 'array', items: {} } },
      },
    ],
  ])('%s', (_name, foreign, expected) => {
    const { schema } = sanitizeSchema(foreign);
    expect(schema).toEqual(expected);
    compileSchema(schema);
  });

  test.each(WRONG_RESTRICTIONS)(
    'of a wrong value of %s the rest of the schema is kept, and the place is named',
    (keyword, wrong) => {
      const right = { type: 'string', minLength: 1, enum: ['x', 'y'] };
      for (const value of wrong) {
        const given = { ...right, [keyword]: value };
        const { [keyword as 'enum']: _, ...rest } = right;
        for (const [around, place] of [
          [(part: object) => ({ properties: { b: right, a: part } }), 'properties.a'],
          [(part: object) => ({ properties: { b: right }, $defs: { A: { items: part } } }), '$defs.A.items'],
          [(part: object) => ({ properties: { b: { anyOf: [part, right] } } }), 'properties.b.anyOf.0'],
        ] as const) {
          const { schema, changes } = sanitizeSchema({ type: 'object', ...around(given) });
          expect(() => compileSchema(schema)).not.toThrow();
          expect(schema).toMatchObject(around(rest));
          expect(changes.filter((change) => change.startsWith(`${place}: `)).join()).toContain(keyword);
        }
      }
    },
  );

  test('names that are none are left out of what is required, and the others stay', () => {
    const { schema, changes } = sanitizeSchema({
      type: 'object',
      properties: { a: {} },
      required: ['a', null, 7],
      dependentRequired: { a: ['b', 'b', 1], c: 'd', e: ['f'] },
    });
    expect(schema).toMatchObject({ required: ['a'], dependentRequired: { a: ['b'], e: ['f'] } });
    expect(changes.join('\n')).toMatch(/from required.*dependentRequired: .*from a.*dependentRequired: c dropped/s);
    expect(compileSchema(schema)({ a: 1 })).toHaveLength(1);
  });

  test('a mark that makes every check asynchronous, and so a success, is dropped and refused', () => {
    const marked = { type: 'object', properties: {}, required: ['a'], $async: true };
    expect(compileSchema(sanitizeSchema(marked).schema)({})).toHaveLength(1);
    expect(() => compileSchema(marked)).toThrow('$async');
  });

  test('an output may be of any type', () => {
    const list = { type: 'array', items: { type: 'integer' } };
    expect(sanitizeSchema(list, 'output')).toEqual({ schema: list, changes: [] });
  });

  test('it lists its changes, and changes nothing in a valid schema', () => {
    expect(sanitizeSchema({ properties: { a: { type: 'text' } } }).changes).toEqual([
      'properties.a: type dropped, "text" is none of JSON Schema',
      'root: type inferred as object',
    ]);
    expect(
      sanitizeSchema({
        type: 'object',
        properties: {
          a: { type: 'number', minimum: 0, exclusiveMinimum: true, nullable: true, title: null },
          b: { $ref: '#/properties/a' },
        },
        required: ['a', 'a'],
        patternProperties: { '(?=a)': true },
        additionalProperties: false,
      }).changes,
    ).toEqual([
      'properties.a: nullable made a choice with null',
      'properties.a: minimum made exclusiveMinimum',
      'properties.a: title dropped, it is no text',
      'properties.b: what $ref "#/properties/a" leads to copied to $defs.a',
      'root: patternProperties.(?=a) dropped, it cannot be matched in linear time',
      'root: additionalProperties dropped, a pattern beside it was dropped',
      'root: duplicates in required dropped',
      '$defs.a: nullable made a choice with null',
      '$defs.a: minimum made exclusiveMinimum',
      '$defs.a: title dropped, it is no text',
    ]);
    const well = {
      type: 'object',
      description: 'All of it.',
      properties: {
        a: { enum: [1, 'x'], title: 'A', examples: [1] },
        b: { type: ['string', 'null'], format: 'date', minLength: 0, maxLength: 7, deprecated: true },
        c: { type: 'number', minimum: -1.5, exclusiveMaximum: 7, multipleOf: 0.5 },
        d: { type: 'array', items: { $ref: '#/$defs/D%20d' }, minItems: 1, uniqueItems: true },
        e: { type: 'object', patternProperties: { '^x': { type: 'string' } }, additionalProperties: false },
        f: { $ref: '#' },
      },
      $defs: { 'D d': { type: 'object', properties: { again: { $ref: '#/$defs/D%20d' } } } },
      required: ['a'],
      additionalProperties: false,
    };
    expect(sanitizeSchema(well)).toEqual({ schema: well, changes: [] });
  });

  test.each([
    [
      { items: [{ type: 'string' }], additionalItems: false },
      { prefixItems: [{ type: 'string' }], items: false },
      'additionalItems',
    ],
    [
      { items: [{}], additionalItems: { type: 'null' } },
      { prefixItems: [{}], items: { type: 'null' } },
      'additionalItems',
    ],
    [{ items: {}, additionalItems: false }, { items: {} }, 'additionalItems'],
    [{ items: {}, enum: [] }, { items: {} }, 'enum'],
    [{ items: {}, id: 'http://example.org/a' }, { items: {} }, 'id'],
    [{ items: {}, $id: '#a' }, { items: {} }, '$id'],
  ])('keywords of older drafts are translated, and lost ones are listed: %j', (given, wanted, keyword) => {
    const { schema, changes } = sanitizeSchema({ type: 'object', properties: { id: { type: 'array', ...given } } });
    expect(schema['properties']).toEqual({ id: { type: 'array', ...wanted } });
    expect(changes).toContainEqual(expect.stringContaining(`properties.id: ${keyword} `));
    expect(() => compileSchema(schema)).not.toThrow();
  });

  test('C7: any value becomes an object schema, and a second repair changes nothing', () => {
    fc.assert(
      fc.property(foreignSchemas, (foreign) => {
        const { schema } = sanitizeSchema(foreign);
        expect(schema).toMatchObject({ type: 'object' });
        expect(schema).not.toHaveProperty('$ref');
        expect(sanitizeSchema(schema).changes).toEqual([]);
      }),
      {
        numRuns: 300,
        examples: [
          [{ $ref: '#', $schema: { toString: 1 } }],
          [{ const: null }],
          [{ type: ['a'], const: null }],
          [NARROWED],
          [{ type: [{}], allOf: {} }],
          [{ extends: {}, allOf: null }],
          [{ disallow: 'string', allOf: 1 }],
          [{ dependencies: { a: ['b'] }, dependentRequired: 'ab' }],
        ],
      },
    );
  });
});

/** It loses its `if`, and then says by `additionalProperties` alone that it is about objects. */
const NARROWED = { $defs: { a: { if: { type: '' }, additionalProperties: {} } } };

/** Keywords with valid values, with schemas, and with any value. */
const { schema: foreignSchemas } = fc.letrec<{ value: unknown; schema: object }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.jsonValue({ maxDepth: 1 }),
    fc.constantFrom<unknown>(
      'string',
      ['string', 'null'],
      ['a'],
      '#',
      '#/$defs/a',
      '#/definitions/a',
      '#/properties/a',
      '#/$defs/a/properties/b',
      '#/$defs/50%',
      '[',
      -1,
      true,
    ),
    tie('schema'),
    fc.array(tie('schema'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', 'b c', '(?=a)', '50%', '__proto__'), tie('schema')),
  ),
  schema: fc.dictionary(
    fc.constantFrom(
      ...['type', 'properties', 'required', 'items', 'prefixItems', 'additionalProperties', 'patternProperties'],
      ...['anyOf', 'oneOf', 'allOf', 'not', 'if', 'then', 'else', '$ref', '$defs', 'definitions', '$id', '$schema'],
      ...['const', 'enum', 'pattern', 'format', 'minimum', 'minLength', 'propertyNames', '__proto__', 'constructor'],
      ...['nullable', 'exclusiveMinimum', 'description', 'examples', 'uniqueItems', 'multipleOf'],
    ),
    tie('value'),
    { maxKeys: 4 },
  ),
}));
