import { describe, expect, test } from 'vitest';
import { didYouMean, nearest } from '../../../../src/shared/util/text/nearest.ts';

describe('the nearest names', () => {
  const names = ['read', 'write', 'edit', 'shell', 'web_search', 'web_fetch', 'memory_search'];
  test.each([
    ['raed', ['read']],
    ['READ', ['read']],
    ['search', ['web_search', 'memory_search']],
    ['read_file', ['read']],
    ['web_serch', ['web_search', 'web_fetch']],
    ['quux_frobnicate', []],
  ])('%s: %j', (word, expected) => {
    expect(nearest(word, names)).toEqual(expected);
  });

  test.each([
    ['nope', ['p', 'e/'], []],
    ['~', ['l', 't', 'd/'], []],
    ['da', ['e/', 'd/', 'lib'], ['d/']],
    ['file:', ['l', 'files'], ['files']],
    ['', ['l', 'read'], []],
  ])('short names have something in common, or are not named: %j of %j', (word, candidates, expected) => {
    expect(nearest(word, candidates)).toEqual(expected);
  });

  test('at most three', () => {
    expect(nearest('a', ['ab', 'ac', 'ad', 'ae'])).toHaveLength(3);
  });
});

test.each([
  ['raed', 'did you mean read?'],
  ['web', 'did you mean web_fetch or web_search?'],
  ['quux_frobnicate', ''],
])('%s as a question: %j', (word, expected) => {
  expect(didYouMean(word, ['read', 'web_search', 'web_fetch'])).toBe(expected);
});
