import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { codeOf } from '../../../src/workers/workspace/safe-path.ts';

test('the code of a system error is known where each file has an Error of its own, as in Jest', () => {
  const foreign: unknown = runInNewContext("Object.assign(new Error('no such file'), { code: 'ENOENT' })");
  expect(foreign).not.toBeInstanceOf(Error);
  expect(codeOf(foreign)).toBe('ENOENT');
  expect(codeOf({ code: 'ENOENT' })).toBeUndefined();
});
