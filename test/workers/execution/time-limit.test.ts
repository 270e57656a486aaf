import { expect, test } from 'vitest';
import type { ToolPolicy } from '../../../src/shared/config/tool-settings.ts';
import { type Attempt, timeLimitMs } from '../../../src/workers/attempt/attempt-state.ts';

test.each([
  ['its own', 30, undefined, undefined, 30],
  ['what its caller asks for', 30, undefined, 90, 90],
  ['the operator’s, where that is shorter', 30, 20, undefined, 20],
  ['the operator’s, where that is longer', 30, 600, undefined, 600],
  ['what its caller asks for, below the operator’s', 30, 600, 90, 90],
  ['the operator’s, where its caller asks for more', 30, 60, 90, 60],
])('the time limit of a tool is %s', (_whose, timeoutMs, operatorMs, askedMs, limitMs) => {
  const policy: ToolPolicy = operatorMs === undefined ? {} : { timeoutMs: operatorMs };
  const callHints = askedMs === undefined ? {} : { timeoutMs: askedMs };
  const attempt = { envelope: { payload: { callHints } }, policy } as Attempt;
  expect(timeLimitMs(attempt, { timeoutMs })).toBe(limitMs);
});
