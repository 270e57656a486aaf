import { expect, test } from 'vitest';
import { formatCheckpoint, MAX_CHECKPOINT_BYTES } from '../../../src/shared/tools/checkpoint.ts';

const cycle: Record<string, unknown> = {};
cycle['rows'] = [{ of: cycle }];

test.each([
  ['undefined', undefined, 'value', 'it is nothing'],
  ['NaN', { rows: [1, Number.NaN] }, 'value.rows[1]', 'it is NaN'],
  ['a bigint', { 'next-id': 1n }, 'value["next-id"]', 'it is bigint'],
  ['a function', () => 1, 'value', 'it is function'],
  ['a map', { seen: new Map() }, 'value.seen', 'it is Map'],
  ['a cycle', cycle, 'value.rows[0].of', 'a value that holds itself'],
  ['too much', 'ü'.repeat(MAX_CHECKPOINT_BYTES / 2), 'value', '65538 bytes of JSON; at most 65536'],
])('%s is no checkpoint: the error has the path', (_title, value, path, words) => {
  let thrown: unknown;
  try {
    formatCheckpoint('copy', value);
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toMatchObject({
    code: 'CHECKPOINT_INVALID',
    message: expect.stringContaining(`The checkpoint of copy: ${path} `),
    issues: [{ path, message: expect.stringContaining(words) }],
  });
});

test('every JSON value up to 64 KiB is a checkpoint', () => {
  for (const value of [null, 0, '', false, [], { page: 1, dates: [new Date(0)] }, 'x'.repeat(MAX_CHECKPOINT_BYTES - 2)])
    expect(formatCheckpoint('copy', value)).toBe(JSON.stringify(value));
});
