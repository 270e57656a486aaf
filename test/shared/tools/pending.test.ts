import { expect, test } from 'vitest';
import type { Effects } from '../../../src/index.ts';
import { isPending, MAX_PENDING_MS, pendingResult } from '../../../src/shared/tools/pending.ts';
import { normalizeResult } from '../../../src/shared/tools/tool-result.ts';

const pend = (options: unknown, effects: Effects = 'once') =>
  pendingResult({ name: 'pay', effects }, 'pawlc_token', options as never);

test.each([
  { options: undefined, field: 'expiresInMs' },
  { options: {}, field: 'expiresInMs' },
  { options: { expiresInMs: 0 }, field: 'expiresInMs' },
  { options: { expiresInMs: MAX_PENDING_MS + 1 }, field: 'expiresInMs' },
  { options: { expiresInMs: 1, onExpiry: 'never' }, field: 'onExpiry' },
  { options: { expiresInMs: 1, onExpiry: 'retry' }, field: 'onExpiry' },
  { options: { expiresInMs: 1, token: 'another' }, field: 'token' },
])('ctx.pending refuses $options', ({ options, field }) => {
  expect(() => pend(options)).toThrow(`ctx.pending of pay: ${field} must be`);
});

test.each([
  ['none', 'fail'],
  ['idempotent', 'fail'],
  ['keyed', 'fail'],
  ['probe', 'retry'],
  ['once', 'unknown'],
] as const)('a call of effects %s that expires: %s', (effects, onExpiry) => {
  expect(pend({ expiresInMs: 1 }, effects)).toMatchObject({ onExpiry, token: 'pawlc_token', expiresInMs: 1 });
});

test('only run may return it', () => {
  const made = pend({ expiresInMs: 1 });
  expect(isPending(made)).toBe(true);
  expect(isPending({ expiresInMs: 1 })).toBe(false);
  expect(normalizeResult('pay', made)).toBe('pay may return ctx.pending from run alone.');
});
