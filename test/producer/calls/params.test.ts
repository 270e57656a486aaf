/** Parameters as a producer copies them. */
import { expect, test } from 'vitest';
import { jsonParams } from '../../../src/producer/calls/params.ts';

const members = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, index]));

test.each([
  ['an object of many members', members(5_001), 'INVALID_PARAMS', 'more than 5000 members'],
  ['such an object further down', { a: [{ b: members(5_001) }] }, 'INVALID_PARAMS', 'more than 5000 members'],
  [
    'many values',
    { a: Array.from({ length: 400 }, () => Array.from({ length: 260 }, Number)) },
    'INVALID_PARAMS',
    'more than 100000 values',
  ],
  ['a long text', { a: 'x'.repeat(4 * 1_024 * 1_024) }, 'CONTRACT_INVALID', 'characters long'],
] as const)('%s are refused before they are copied', (_what, params, code, why) => {
  const uncopied = new Proxy(params, { getPrototypeOf: () => expect.unreachable() });
  expect(() => jsonParams(uncopied)).toThrow(expect.objectContaining({ code, message: expect.stringContaining(why) }));
});

test('as many as are allowed are copied', () => {
  const params = { a: members(5_000) };
  const copy = jsonParams(params);
  expect(copy).toEqual(params);
  expect(copy['a']).not.toBe(params.a);
});

const holdsItself: { list: unknown[] } = { list: [] };
holdsItself.list.push({ whole: holdsItself });

test.each([
  [{ a: [{ 'b c': 1n }] }, 'bigint in a[0]["b c"]'],
  [holdsItself, 'a value that holds itself in list[0].whole'],
  [{ a: { toJSON: () => JSON.parse('{') } }, 'a value that throws'],
])('parameters that JSON cannot represent are refused by their place: %#', (params, why) => {
  const issues = [{ path: 'payload.params', message: expect.stringContaining(`holds ${why}`) }];
  expect(() => jsonParams(params)).toThrow(expect.objectContaining({ code: 'CONTRACT_INVALID', issues }));
});
