import { expect, test } from 'vitest';
import { WordSearch } from '../../../../src/shared/util/text/word-search.ts';

const WORD = /(?<![a-z])(?:@|p[wx]|curl(?:ie)?|[?&]key=|şifre|:\d{2})(?!q)/i;
const search = new WordSearch(WORD, [
  '@',
  'pw',
  'px',
  'curl',
  '?key',
  '&key',
  'şifre',
  ...'0123456789'.split('').map((digit) => `:${digit}`),
]);

/** All matches, as each of them goes on behind the one before. */
function allFound(text: string): string[] {
  const found: string[] = [];
  for (let match = search.find(text, 0); match !== undefined; ) {
    found.push(`${match.index} ${match[0]}`);
    match = search.find(text, match.index + match[0].length);
  }
  return found;
}

const allMatches = (text: string) =>
  [...text.matchAll(new RegExp(WORD.source, 'gi'))].map((match) => `${match.index} ${match[0]}`);

test.each([
  ['', []],
  ['pw', ['0 pw']],
  ['a pw', ['2 pw']],
  ['@', ['0 @']],
  ['@@', ['0 @', '1 @']],
  ['xpw PW pwq', ['4 PW']],
  ['Curlie ?KEY=:12', ['0 Curlie', '7 ?KEY=', '12 :12']],
  ['ein ŞIFRE, ein Şifre', ['4 ŞIFRE', '15 Şifre']],
])('%j has the words %j', (text, expected) => {
  expect(allFound(text)).toEqual(expected);
  expect(allMatches(text)).toEqual(expected);
});

test('random texts have the words that the expression alone finds', () => {
  const pieces = [
    'p',
    'w',
    'x',
    'q',
    '@',
    ' ',
    'curl',
    'CUR',
    'l',
    'ie',
    '?',
    '&key',
    '=',
    ':',
    '1',
    '9',
    'ş',
    'ifre',
    '`',
    '\u0000',
    '😀',
  ];
  let seed = 7;
  const next = (limit: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * limit);
  };
  for (let round = 0; round < 5_000; round += 1) {
    const text = Array.from({ length: next(12) }, () => pieces[next(pieces.length)]).join('');
    expect(allFound(text), text).toEqual(allMatches(text));
  }
});

test('one search in place of two finds the words of both, in any case', () => {
  const both = search.or(new WordSearch(/(?<=a )git(?!\w)/, ['git']));
  for (const [text, index] of [
    ['', undefined],
    ['git', undefined],
    ['a git', 2],
    ['a GIT', 2],
    ['a git, a pw', 2],
    ['a gita, a pw', 10],
    ['a pw, a git', 2],
  ] as const)
    expect(both.find(text, 0)?.index).toBe(index);
});
