import { describe, expect, test } from 'vitest';
import { linearPattern, patternFault } from '../../../src/shared/schema/linear-pattern.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';

const properties = (a: object) => ({ type: 'object', properties: { a } });

describe('keywords of older drafts are translated, and the change is reported', () => {
  test.each([
    [
      'a recursive reference of draft 2019-09',
      {
        type: 'object',
        $recursiveAnchor: true,
        properties: { name: { type: 'string' }, below: { type: 'array', items: { $recursiveRef: '#' } } },
        required: ['name'],
      },
      [{ name: 'a', below: [{ name: 'b' }] }],
      [{ name: 'a', below: [{ below: [] }] }],
      /\$recursiveRef made \$ref/,
    ],
    [
      'dependencies of names and of schemas',
      {
        type: 'object',
        properties: { card: {}, address: {}, a: {}, b: {} },
        dependencies: { card: ['address'], a: { required: ['b'] } },
      },
      [{}, { card: 1, address: 2 }, { a: 1, b: 2 }],
      [{ card: 1 }, { a: 1 }],
      /dependencies made dependentRequired/,
    ],
    [
      'divisibleBy',
      properties({ type: 'number', divisibleBy: 5 }),
      [{ a: 10 }],
      [{ a: 11 }],
      /divisibleBy made multipleOf/,
    ],
    [
      'extends',
      properties({ type: 'object', extends: { required: ['x'] } }),
      [{ a: { x: 1 } }],
      [{ a: {} }],
      /extends made allOf/,
    ],
    ['disallow', properties({ disallow: ['string'] }), [{ a: 1 }], [{ a: 'text' }], /disallow made not/],
    [
      'a type that is one of several schemas',
      properties({ type: ['string', { type: 'object', required: ['x'] }] }),
      [{ a: 'text' }, { a: { x: 1 } }],
      [{ a: 1 }, { a: {} }],
      /type with schemas made anyOf/,
    ],
    [
      'one name under both keywords of definitions',
      {
        ...properties({ allOf: [{ $ref: '#/definitions/x' }, { $ref: '#/$defs/x' }] }),
        definitions: { x: { type: 'string' } },
        $defs: { x: { minLength: 2 } },
      },
      [{ a: 'xx' }],
      [{ a: 'x' }, { a: [1, 2] }],
      /what \$ref "#\/definitions\/x" leads to copied/,
    ],
    [
      'an id of draft 4 that a reference names',
      { ...properties({ $ref: '#text' }), definitions: { x: { id: '#text', type: 'string' } } },
      [{ a: 'x' }],
      [{ a: 1 }],
      /what \$ref "#text" leads to copied to \$defs\.text/,
    ],
    [
      'an anchor, and an $id that is one',
      {
        ...properties({ allOf: [{ $ref: '#one' }, { $ref: '#two' }] }),
        $defs: { x: { $anchor: 'one', minLength: 2 }, y: { $id: '#two', maxLength: 3 } },
      },
      [{ a: 'xx' }],
      [{ a: 'x' }, { a: 'xxxx' }],
      /\$anchor dropped/,
    ],
    [
      'a dynamic reference',
      { ...properties({ $dynamicRef: '#n' }), $defs: { x: { $dynamicAnchor: 'n', type: 'string' } } },
      [{ a: 'x' }],
      [{ a: 1 }],
      /\$dynamicRef made \$ref/,
    ],
    [
      'a dynamic reference to the document',
      {
        $dynamicAnchor: 'n',
        type: 'object',
        properties: { v: { type: 'string' }, below: { type: 'array', items: { $dynamicRef: '#n' } } },
        required: ['v'],
      },
      [{ v: 'a', below: [{ v: 'b' }] }],
      [{ v: 'a', below: [{}] }],
      /\$ref "#n" made "#"/,
    ],
    [
      'addresses of the document and within it',
      {
        $id: 'https://example.org/s/root.json',
        type: 'object',
        properties: {
          a: { $ref: 'https://example.org/s/root.json#/$defs/d' },
          b: { $ref: 'part.json' },
          c: { $ref: 'root.json' },
        },
        $defs: { d: { type: 'string' }, e: { $id: 'part.json', type: 'number' } },
      },
      [{ a: 'x', b: 1, c: { a: 'y' } }],
      [{ a: 1 }, { b: 'x' }, { c: { a: 1 } }],
      /\$id dropped/,
    ],
    [
      'a document within the document, with references of its own',
      properties({
        $id: 'https://example.org/inner',
        type: 'object',
        properties: { k: { $ref: '#/$defs/z' }, again: { $ref: '#' } },
        $defs: { z: { type: 'string' } },
      }),
      [{ a: { k: 'x', again: { k: 'y' } } }],
      [{ a: { k: 1 } }, { a: { again: { k: 1 } } }],
      /leads to copied/,
    ],
    [
      'definitions that were copied with their schema',
      properties({ type: 'array', items: { $ref: '#/$defs/z' }, $defs: { z: { type: 'string' } } }),
      [{ a: ['x'] }],
      [{ a: [1] }],
      /what \$ref "#\/\$defs\/z" leads to copied/,
    ],
    [
      'an address that is relative to the one around it',
      {
        $id: 'https://example.org/a/b.json',
        ...properties({ $id: 'c/', type: 'object', properties: { d: { $ref: 'd.json' }, e: { $ref: 'd.json#e' } } }),
        $defs: {
          d: { $id: 'https://example.org/a/c/d.json', type: 'string', $defs: { e: { $anchor: 'e', type: 'number' } } },
          other: { $id: 'd.json', type: 'boolean' },
        },
      },
      [{ a: { d: 'x', e: 1 } }],
      [{ a: { d: true } }, { a: { e: 'x' } }],
      /leads to copied/,
    ],
    [
      'addresses that are names',
      {
        $id: 'urn:example:a',
        ...properties({ $id: 'urn:example:b', properties: { c: { $ref: 'urn:example:c' }, d: { $ref: '#/$defs/d' } } }),
        $defs: { c: { $id: 'urn:example:c', type: 'string' }, d: { type: 'number' } },
      },
      [{ a: { c: 'x', d: 1 } }],
      [{ a: { c: 1 } }, { a: { d: 'x' } }],
      /leads to copied/,
    ],
    [
      'keywords that are all there, with null for those that say nothing',
      properties({
        type: 'string',
        ...{ const: null, not: null, if: null, contains: null, propertyNames: null, items: null },
      }),
      [{ a: 'x' }],
      [{ a: 1 }],
      /not dropped, it is no schema/,
    ],
    [
      'a name with half a character',
      { type: 'object', properties: { 'a\ud83d': { type: 'string' } } },
      [{ 'a\ufffd': 'x' }],
      [{ 'a\ufffd': 1 }],
      /replaced/,
    ],
    [
      'addresses that two schemas have',
      { ...properties({ $id: 'x', type: 'string' }), $defs: { d: { $id: 'x' } } },
      [{ a: 'x' }],
      [{ a: 1 }],
      /\$id dropped/,
    ],
    [
      'keywords beside a reference of draft 7',
      {
        $schema: 'http://json-schema.org/draft-07/schema#',
        ...properties({ $ref: '#/definitions/d', maxLength: 1, additionalProperties: false, default: 'x' }),
        definitions: { d: { type: 'string' } },
      },
      [{ a: 'xx' }],
      [{ a: 1 }],
      /properties\.a: maxLength, additionalProperties dropped/,
    ],
    [
      'keywords beside a reference of draft 2019-09',
      {
        $schema: 'https://json-schema.org/draft/2019-09/schema',
        ...properties({ $ref: '#/definitions/d', maxLength: 1 }),
        definitions: { d: { type: 'string' } },
      },
      [{ a: 'x' }],
      [{ a: 'xx' }],
      /definitions renamed/,
    ],
    [
      'required within a property',
      { type: 'object', properties: { a: { type: 'string', required: true }, b: { type: 'string', required: false } } },
      [{ a: 'x' }],
      [{}, { b: 'x' }],
      /required of properties made a list of names/,
    ],
    [
      'a closed tuple with a keyword of each draft',
      properties({ type: 'array', prefixItems: [{ type: 'string' }], additionalItems: false }),
      [{ a: ['x'] }],
      [{ a: ['x', 1] }],
      /additionalItems made items/,
    ],
    [
      'names of types in upper case',
      { type: 'OBJECT', properties: { a: { type: 'STRING' } } },
      [{ a: 'x' }],
      [{ a: 1 }],
      /type STRING made string/,
    ],
  ])('%s', (_what, foreign, valid, invalid, change) => {
    const { schema, changes } = sanitizeSchema(foreign);
    const validate = compileSchema(schema);
    for (const value of valid) expect(validate(value), JSON.stringify(value)).toEqual([]);
    for (const value of invalid) expect(validate(value).length, JSON.stringify(value)).toBeGreaterThan(0);
    expect(changes.join('\n')).toMatch(change);
  });
});

test('a multiple of a decimal fraction is found in spite of its binary form', () => {
  const validate = compileSchema(properties({ type: 'number', multipleOf: 0.01 }));
  for (const a of [19.99, 0.29, 1.13, 1_000_000.07]) expect(validate({ a }), String(a)).toEqual([]);
  for (const a of [1.005, 0.001]) expect(validate({ a }), String(a)).toHaveLength(1);
});

test('the end of the text as other languages write it', () => {
  const pattern = linearPattern('^\\d+\\Z');
  expect(['1', '12', '1\n', '1Z'].map((text) => pattern.test(text))).toEqual([true, true, false, false]);
});

describe('Unicode properties of patterns', () => {
  test.each([
    ['^\\p{Letter}+$', 'Žluť', '123'],
    ['^\\p{L}+$', 'abc', '1'],
    ['^\\P{Letter}+$', '123', 'abc'],
    ['^[\\p{Uppercase_Letter}\\p{Decimal_Number}]+$', 'A1', 'a'],
    ['^\\p{General_Category=Currency_Symbol}$', '€', 'e'],
    ['^\\p{gc=Lu}$', 'Ä', 'ä'],
    ['^\\p{Script=Greek}+$', 'αβγ', 'abc'],
    ['^\\p{sc=Cyrl}+$', 'жук', 'beetle'],
    ['^\\p{Alphabetic}$', 'a', '-'],
    ['^\\\\p{Letter}$', '\\p{Letter}', 'a'],
  ])('%s', (pattern, fits, not) => {
    const compiled = pattern.startsWith('^\\\\p') ? new RegExp(pattern) : linearPattern(pattern);
    if (!pattern.startsWith('^\\\\p')) expect(compiled.test(fits)).toBe(new RegExp(pattern, 'u').test(fits));
    expect(compiled.test(fits)).toBe(true);
    expect(compiled.test(not)).toBe(false);
  });

  test.each(['\\p{Script_Extensions=Greek}', '\\p{NoSuchThing}'])('%s is refused for what it is', (pattern) => {
    expect(() => linearPattern(pattern)).toThrow(/Unicode property/);
    expect(sanitizeSchema(properties({ type: 'string', pattern })).changes.join()).toContain('Unicode property');
  });

  test('a look-around is refused for what it is', () => {
    expect(patternFault('(?=a)b')).toBe('it cannot be matched in linear time');
  });
});
