import { expect, test } from 'vitest';
import { LimitedMap } from '../../../src/shared/util/limited-map.ts';

test('a limited map keeps the entries that were set last', () => {
  const map = new LimitedMap<string, number>(2);
  map.set('one', 1).set('two', 2).set('one', 3).set('three', 4);
  expect([...map]).toEqual([
    ['one', 3],
    ['three', 4],
  ]);
});
