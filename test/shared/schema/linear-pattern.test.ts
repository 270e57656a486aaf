import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { linearPattern } from '../../../src/shared/schema/linear-pattern.ts';
import { compileSchema, inputJsonSchema } from '../../../src/shared/schema/schema.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';

/** Parts of patterns that other engines read in their own way. */
const ATOMS = [
  ...[
    'a',
    'B',
    '_',
    '1',
    'é',
    'ß',
    '😀',
    '.',
    '^',
    '$',
    '\\b',
    '\\B',
    '\\s',
    '\\S',
    '\\w',
    '\\W',
    '\\d',
    '\\D',
    '[^a]',
    '[.]',
  ],
  ...[
    '[\\s]',
    '[^\\s]',
    '[\\S]',
    '[^\\S]',
    '[\\s\\S]',
    '[^\\S\\n]',
    '[^\\s\\w]',
    '[\\w-]',
    '[^\\w]',
    '[\\W]',
    '[\\d.]',
    '[\\b]',
  ],
  ...[
    '\\n',
    '\\r',
    '\\v',
    '\\f',
    '(?:\\0)',
    '\\xa0',
    '\\u00a0',
    '\\u{1F600}',
    '\\u{feff}',
    '\\uD83D\\uDE00',
    '\\ud83d',
    '[\\cJ-\\cM]',
  ],
  ...[
    '[[]',
    '[\\]]',
    '[$^]',
    '[a\\-z]',
    '[]',
    '[^]',
    '[&&]',
    '[\\u0000-\\u001f]',
    '[\\u{1F600}-\\u{1F64F}]',
    '[\\ud800-\\udfff]',
    '\\/',
  ],
  ...[
    '\\p{L}',
    '\\P{L}',
    '[\\p{L}\\p{N}]',
    '[^\\p{Lu}]',
    '\\p{Script=Greek}',
    '\\p{ASCII}',
    '[^\\p{ASCII}]',
    '(?:a|b)',
    '(a|)',
    '(?:x|)',
  ],
];
const CHARACTERS = [
  ...[
    'a',
    'b',
    'B',
    '_',
    '1',
    '-',
    '.',
    'é',
    'ß',
    '😀',
    '😐',
    '[',
    ']',
    '^',
    '$',
    '&',
    '/',
    'α',
    'Ω',
    'ſ',
    '\u212a',
    '\ud83d',
    '\ude00',
  ],
  ...[
    ' ',
    '\n',
    '\r',
    '\t',
    '\v',
    '\f',
    '\0',
    '\b',
    '\u00a0',
    '\ufeff',
    '\u2028',
    '\u2029',
    '\u1680',
    '\u2003',
    '\u202f',
  ],
  ...['\u205f', '\u3000', '\u180e', '\u200b', '\u0085', '\u0001'],
];

describe('patterns are matched in linear time (A15)', () => {
  test.each([
    ['^[a-z]+$', 'abc', true],
    ['^[a-z]+$', 'abc1', false],
    ['\\d{3}', 'x123', true],
    ['^\\u0061$', 'a', true],
    ['^\\p{Lu}', 'É', true],
    ['^.$', '😀', true],
  ])('%s on %s', (pattern, text, matches) => expect(linearPattern(pattern).test(text)).toBe(matches));

  test('a pattern matches what ECMAScript matches by it', () => {
    const quantified = fc
      .tuple(fc.constantFrom(...ATOMS), fc.constantFrom('', '', '*', '+', '?', '{2}', '{1,3}', '+?'))
      .map(([atom, times]) => (/^(?:\\b|\\B|\^|\$)$/i.test(atom) ? atom : atom + times));
    const pattern = fc
      .tuple(fc.array(quantified, { minLength: 1, maxLength: 3 }), fc.boolean())
      .map(([parts, isWhole]) => (isWhole ? `^${parts.join('')}$` : parts.join('')));
    const text = fc.array(fc.constantFrom(...CHARACTERS), { maxLength: 4 }).map((parts) => parts.join(''));
    fc.assert(
      fc.property(pattern, fc.array(text, { minLength: 5, maxLength: 10 }), (written, texts) => {
        const [expected, linear] = [new RegExp(written, 'u'), linearPattern(written)];
        for (const each of texts)
          expect({ written, each, is: linear.test(each) }).toEqual({ written, each, is: expected.test(each) });
      }),
      { numRuns: 1_500 },
    );
  });

  test.each([
    ['\\s', '\u00a0', true],
    ['\\s', '\ufeff', true],
    ['[^\\S\\n]', '\u3000', true],
    ['^.$', '\r', false],
    ['^.$', '\u2028', false],
    ['[\\b]', '\b', true],
    ['^\\uD83D\\uDE00$', '😀', true],
    ['^[[]\\p{ASCII}$', '[a', true],
    ['^(?<größe>a)$', 'a', true],
    ['^(?s:.)$', '\n', true],
  ])('%j on %j, as in ECMAScript', (pattern, text, matches) => {
    expect(new RegExp(pattern, 'u').test(text)).toBe(matches);
    expect(linearPattern(pattern).test(text)).toBe(matches);
  });

  test('a count that RE2 does not take is named, and what to write instead', () => {
    expect(() => linearPattern('^.{1,2000}$')).toThrow(/repeat count \{1,2000\}.*maxLength/);
  });

  test('a text that takes a backtracking engine hours takes no time', async () => {
    const validate = compileSchema({ type: 'string', pattern: '^(a+)+$' });
    const spentMs = await cpuMsOf(() => expect(validate(`${'a'.repeat(50_000)}!`)).toHaveLength(1));
    expect(spentMs).toBeLessThan(2_000);
  });

  test('several patterns of one schema are kept separate', () => {
    const validate = compileSchema({ properties: { a: { pattern: '^a$' }, b: { pattern: '^b$' } } });
    expect(validate({ a: 'a', b: 'b' })).toEqual([]);
    expect(validate({ a: 'b', b: 'a' })).toHaveLength(2);
  });

  test.each(['(?=a)b', '(a)\\1', '(?<n>a)\\k<n>', '(?<!x)y'])(
    '%s has no linear form and is refused before any call',
    (pattern) => {
      expect(() => compileSchema({ type: 'string', pattern })).toThrow(
        expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining('linear time') }),
      );
    },
  );

  test('the formats of zod that need look-around stay formats', () => {
    const schema = inputJsonSchema(z.object({ wait: z.iso.duration(), host: z.hostname() }));
    expect(schema['properties']).toEqual({
      wait: { type: 'string', format: 'duration' },
      host: { type: 'string', format: 'hostname' },
    });
    expect(compileSchema(schema)({ wait: 'P1D', host: 'a.b' })).toEqual([]);
    expect(compileSchema(schema)({ wait: 'a day', host: 'a.b' })).toHaveLength(1);
  });
});
