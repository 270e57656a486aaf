/** Schemas of tools as they may come, and values for them. */
import fc from 'fast-check';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';

const leaf = fc.oneof(
  fc.constant({ type: 'string' }),
  fc.constant({ type: 'string', minLength: 1 }),
  fc.constant({ type: 'string', format: 'date' }),
  fc.constant({ type: 'integer', minimum: 0 }),
  fc.constant({ type: 'boolean' }),
  fc.constant({ enum: ['a', 'b'] }),
  fc.constant({ const: 'c' }),
  fc.constant({ type: ['string', 'null'] }),
  fc.constant({ oneOf: [{ type: 'string' }, { type: 'number' }] }),
  fc.constant({}),
  fc.constant(true),
  fc.constant({ const: null }),
  fc.constant({ enum: ['a', null] }),
  fc.constant({
    type: ['object', 'null'],
    properties: { a: { type: 'string' } },
    required: [],
    additionalProperties: false,
  }),
  fc.constant({ type: 'array', prefixItems: [{ type: 'string' }], items: { type: 'integer' } }),
  fc.constant({ type: 'array', items: { type: ['string', 'null'] }, minItems: 2, uniqueItems: true }),
  fc.constant({ type: 'object', additionalProperties: { type: 'string', minLength: 1 } }),
  fc.constant({ type: 'object', patternProperties: { '^a': { type: 'string' } }, additionalProperties: false }),
  fc.constant({ allOf: [{ type: 'object', properties: { a: { minLength: 1 } } }, { required: ['b'] }] }),
);
export const { object: schemas } = fc.letrec<{ any: JsonSchema | boolean; object: JsonSchema }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 3 },
    leaf,
    tie('object') as fc.Arbitrary<JsonSchema>,
    fc.record({ type: fc.constant('array'), items: tie('any') }),
    fc.record({ allOf: fc.tuple(tie('any')), description: fc.constant('More.') }),
    fc.record({ anyOf: fc.array(tie('any'), { minLength: 1, maxLength: 2 }) }),
  ),
  object: fc
    .record({
      properties: fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('any'), { maxKeys: 3 }),
      required: fc.subarray(['a', 'b', 'c']),
      closed: fc.boolean(),
      minProperties: fc.option(fc.constant(1), { nil: undefined }),
    })
    .map(({ properties, required, closed, minProperties }) => ({
      type: 'object',
      properties,
      required: required.filter((name) => name in properties),
      ...(closed ? { additionalProperties: false } : {}),
      ...(minProperties === undefined ? {} : { minProperties }),
    })),
}));

/** An instance of a schema that mostly fits: choices by a seed, junk where anything goes. */
export function instanceOf(schema: unknown, seed: number, junk: () => unknown): unknown {
  const parts = (typeof schema === 'object' && schema !== null ? schema : {}) as Record<string, unknown>;
  const pick = <T>(options: readonly T[]): T | undefined => options[seed % Math.max(1, options.length)];
  const next = Math.floor(seed / 2) + 7 * (seed % 3);
  for (const keyword of ['anyOf', 'oneOf'])
    if (Array.isArray(parts[keyword])) return instanceOf(pick(parts[keyword]), next, junk);
  if (parts['const'] !== undefined) return parts['const'];
  if (Array.isArray(parts['enum'])) return pick(parts['enum']);
  switch (Array.isArray(parts['type']) ? pick(parts['type']) : parts['type']) {
    case 'object': {
      const required = (parts['required'] as readonly string[] | undefined) ?? [];
      const entries = Object.entries((parts['properties'] ?? {}) as object);
      const kept = entries.filter(([name], index) => required.includes(name) || (seed >> index) % 2 === 0);
      return Object.fromEntries(kept.map(([name, part], index) => [name, instanceOf(part, next + index, junk)]));
    }
    case 'array':
      return Array.from({ length: seed % 3 }, (_, index) => instanceOf(parts['items'], next + index, junk));
    case 'string':
      return parts['format'] === 'date' && seed % 2 === 0 ? '2026-01-31' : ['', 'x', 'a'][seed % 3];
    case 'integer':
    case 'number':
      return (seed % 5) - 1;
    case 'boolean':
      return seed % 2 === 0;
    case 'null':
      return null;
    default:
      return junk();
  }
}
