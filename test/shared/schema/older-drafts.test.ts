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
  ])('%s', (_what, foreign, valid, invalid, change) => {
    const { schema, changes } = sanitizeSchema(foreign);
    const validate = compileSchema(schema);
    for (const value of valid) expect(validate(value), JSON.stringify(value)).toEqual([]);
    for (const value of invalid) expect(validate(value).length, JSON.stringify(value)).toBeGreaterThan(0);
    expect(changes.join('\n')).toMatch(change);
  });
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
