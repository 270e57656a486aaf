import { expect, test } from 'vitest';
import { matches } from '../../../src/shared/util/wildcard.ts';

test('patterns: a star stands for any text', () => {
  expect(['a*c', '*', 'abc', 'a*b*c', 'ab*bc'].map((pattern) => matches(pattern, 'abc'))).toEqual([
    true,
    true,
    true,
    true,
    false,
  ]);
});
