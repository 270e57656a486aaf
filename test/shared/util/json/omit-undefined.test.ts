import { expect, test } from 'vitest';
import { defined } from '../../../../src/shared/util/json/omit-undefined.ts';

test('members that are undefined are left out, and all others stay as they are, in their order', () => {
  const given = { b: 1, a: undefined, c: null, d: '', e: 0, f: false, g: undefined };
  expect(JSON.stringify(defined(given))).toBe('{"b":1,"c":null,"d":"","e":0,"f":false}');
  expect(Object.keys(defined(given))).toEqual(['b', 'c', 'd', 'e', 'f']);
  expect(given).toHaveProperty('a');
});

test('the result is a copy, even if nothing is undefined', () => {
  const given = { a: 1 };
  expect(defined(given)).not.toBe(given);
});

test('a member with the name __proto__ stays a member', () => {
  const given = { ...(JSON.parse('{"__proto__":{"admin":true}}') as object), none: undefined };
  const kept = defined(given) as { admin?: boolean };
  expect(kept.admin).toBeUndefined();
  expect(JSON.stringify(kept)).toBe('{"__proto__":{"admin":true}}');
});
