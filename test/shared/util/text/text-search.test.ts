import fc from 'fast-check';
import { expect, test } from 'vitest';
import { findAll, matcher } from '../../../../src/shared/util/text/text-search.ts';

/** The places that the engine finds. */
function foundIn(text: string, wanted: string, step = wanted.length, limit = 1_000): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(wanted); at !== -1 && places.length < limit; at = text.indexOf(wanted, at + step))
    places.push(at);
  return places;
}

const letters = (minLength: number, maxLength: number) =>
  fc.array(fc.constantFrom('a', 'b', '\n'), { minLength, maxLength }).map((all) => all.join(''));

test('the places are those that the engine finds', () => {
  fc.assert(
    fc.property(letters(0, 200), letters(1, 6), (text, wanted) => {
      expect(findAll(text, wanted)).toEqual(foundIn(text, wanted));
      expect(findAll(text, wanted, 1_000, 'count')).toEqual(foundIn(text, wanted, 1));
      const isMatchEnd = matcher(wanted);
      const ends = [...text].flatMap((letter, at) => (isMatchEnd(letter) ? [at + 1 - wanted.length] : []));
      expect(ends).toEqual(foundIn(text, wanted, 1));
    }),
  );
});

test('the places are those that the engine finds, even where the lengths forbid the engine’s search', () => {
  fc.assert(
    fc.property(letters(0, 200), letters(1, 6), letters(1, 3), (text, short, mark) => {
      const [long, wanted] = [`${text}${mark}`.repeat(40).padEnd(70_000, 'a'), `${short}${'a'.repeat(20_000)}`];
      expect(findAll(long, wanted)).toEqual(foundIn(long, wanted));
      expect(findAll(long, wanted, 3, 'count')).toEqual(foundIn(long, wanted, 1, 3));
    }),
    { numRuns: 4 },
  );
});

test('a text that the engine would compare at every place is found in one pass, which ends at the limit', () => {
  const [text, half] = ['a'.repeat(4_000_000), 'a'.repeat(50_000)];
  expect(findAll(text, `${half}b${half}`)).toEqual([]);
  expect(findAll(`${text}b${half}${text}b${half}`, `${half}b${half}`)).toEqual([3_950_000, 8_000_001]);
  expect(findAll(text, half, 3)).toEqual([0, 50_000, 100_000]);
});
