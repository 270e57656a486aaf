/** A repaired schema accepts what the foreign one did: what its author refused by a part that was dropped is refused no more. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';
import { ajv } from '../model-tools/judging.ts';

/** Each loses a part, and accepts `x` and `y` of a text afterwards. */
const weak = fc.constantFrom<object>(
  { type: 'string', pattern: '^(?!x)' },
  { type: 'string', pattern: '^(?!x)', minLength: 1 },
  { anyOf: [{ type: 'string', pattern: '^(?!x)' }] },
  { $ref: '#/$defs/Weak' },
  { allOf: [{ $ref: '#/definitions/Weak' }] },
);
const strong = fc.constantFrom<object>(
  { type: 'string', enum: ['x'] },
  { type: 'integer' },
  { type: 'string', minLength: 3 },
);
const part = fc.letrec<{ any: object }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 3 },
    weak,
    strong,
    fc.record({ not: tie('any') }),
    fc.record({ oneOf: fc.array(tie('any'), { minLength: 1, maxLength: 3 }) }),
    fc.record({ oneOf: fc.tuple(tie('any'), tie('any')), anyOf: fc.tuple(tie('any'), tie('any')) }),
    fc.record({ if: tie('any'), else: tie('any') }),
    fc.record({
      type: fc.constant('array'),
      items: fc.constant({}),
      contains: tie('any'),
      maxContains: fc.constant(1),
    }),
  ),
})).any;
const values = ['x', 'y', 'xyz', '', 1, true, ['x'], ['y', 'y'], ['x', 'x'], []];

test('a schema without some of its parts accepts what the whole one does', () => {
  fc.assert(
    fc.property(part, (a) => {
      const foreign = {
        type: 'object',
        properties: { a },
        $defs: { Weak: { type: 'string', pattern: '^(?!x)' } },
      };
      const { schema } = sanitizeSchema({ ...foreign, definitions: foreign.$defs });
      const [before, after] = [
        ajv.compile(JSON.parse(JSON.stringify(foreign).replaceAll('#/definitions', '#/$defs'))),
        ajv.compile(schema),
      ];
      for (const value of values)
        if (before({ a: value }))
          expect(after({ a: value }), `${JSON.stringify(value)}: ${JSON.stringify(schema)}`).toBe(true);
    }),
    { numRuns: 300 },
  );
});

test.each<[string, object, object, string]>([
  ['not', { not: { pattern: '(?!x)' } }, {}, 'not dropped'],
  ['a reference that leads nowhere in not', { not: { $ref: 'other.json' } }, {}, 'not dropped'],
  ['if', { if: { pattern: '(?!x)' }, else: { minLength: 1 } }, {}, 'if dropped'],
  [
    'oneOf',
    { oneOf: [{ type: 'string', pattern: '(?!x)' }, { type: 'string' }] },
    { anyOf: [{ type: 'string' }, { type: 'string' }] },
    'oneOf made anyOf',
  ],
  ['names of members in not', { not: { patternProperties: { '(?!x)': { type: 'string' } } } }, {}, 'not dropped'],
])('%s of a schema that lost a part is reported', (_what, a, expected, change) => {
  const { schema, changes } = sanitizeSchema({ type: 'object', properties: { a } });
  expect((schema['properties'] as Record<string, unknown>)['a']).toEqual(expected);
  expect(changes).toContainEqual(expect.stringMatching(`^properties\\.a: ${change}, a part of a schema was dropped`));
});

test.each<[string, object]>([
  ['an address', { $id: 'urn:x', type: 'string' }],
  ['a bound that says nothing', { type: 'integer', minimum: 1, exclusiveMinimum: false }],
  ['an annotation', { type: 'string', title: 1 }],
])('%s is dropped without any change of what is refused', (_what, inner) => {
  const { schema } = sanitizeSchema({
    type: 'object',
    properties: { a: { not: inner }, b: { oneOf: [inner, { const: 0 }] } },
  });
  expect(schema['properties']).toMatchObject({ a: { not: expect.any(Object) }, b: { oneOf: expect.any(Array) } });
});
