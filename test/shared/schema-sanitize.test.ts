import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compileSchema } from '../../src/shared/schema.ts';
import { sanitizeSchema } from '../../src/shared/schema-sanitize.ts';

describe('C8: schemas from elsewhere are made usable', () => {
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
  ])('%s', (_name, foreign, expected) => {
    const { schema } = sanitizeSchema(foreign);
    expect(schema).toEqual(expected);
    compileSchema(schema);
  });

  test('an output may be of any type', () => {
    const list = { type: 'array', items: { type: 'integer' } };
    expect(sanitizeSchema(list, 'output')).toEqual({ schema: list, changes: [] });
  });

  test('it tells what it changed, and changes nothing in a schema that is well', () => {
    expect(sanitizeSchema({ properties: { a: { type: 'text' } } }).changes).toEqual([
      'properties.a: type dropped, "text" is none of JSON Schema',
      'root: type inferred as object',
    ]);
    const well = {
      type: 'object',
      properties: { a: { enum: [1, 'x'] } },
      required: ['a'],
      additionalProperties: false,
    };
    expect(sanitizeSchema(well)).toEqual({ schema: well, changes: [] });
  });

  test('C7: whatever comes, an object schema comes out, and sanitising it again changes nothing', () => {
    fc.assert(
      fc.property(foreignSchemas, (foreign) => {
        const { schema } = sanitizeSchema(foreign);
        expect(schema['type'] === 'object' || schema['$ref'] !== undefined).toBe(true);
        expect(sanitizeSchema(schema).changes).toEqual([]);
      }),
    );
  });
});

/** Keywords with what belongs there, with schemas, and with anything. */
const { schema: foreignSchemas } = fc.letrec<{ value: unknown; schema: object }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.jsonValue({ maxDepth: 1 }),
    fc.constantFrom<unknown>('string', ['string', 'null'], ['a'], '#', '#/$defs/a', '#/definitions/a', '[', -1, true),
    tie('schema'),
    fc.array(tie('schema'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b c', '__proto__'), tie('schema')),
  ),
  schema: fc.dictionary(
    fc.constantFrom(
      ...['type', 'properties', 'required', 'items', 'prefixItems', 'additionalProperties', 'patternProperties'],
      ...['anyOf', 'oneOf', 'allOf', 'not', 'if', 'then', 'else', '$ref', '$defs', 'definitions', '$id', '$schema'],
      ...['const', 'enum', 'pattern', 'format', 'minimum', 'minLength', 'propertyNames', '__proto__', 'constructor'],
    ),
    tie('value'),
    { maxKeys: 4 },
  ),
}));
