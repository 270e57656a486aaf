import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LocalRetryBudgets } from '../../../src/local/retry-budgets.ts';
import { DEFAULT_RETRY } from '../../../src/shared/retries/retry.ts';
import { refillRetries, retryAllowance, takeRetry } from '../../../src/shared/retries/retry-budget.ts';

test('in any order of events, retries are at most a fifth of the successes plus 100', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean(), { maxLength: 1_000 }), (successes) => {
      const { budget } = retryAllowance('tools.ask', undefined);
      let tokens: number | undefined;
      let retries = 0;
      for (const success of successes) {
        if (success) tokens = refillRetries(tokens, budget);
        else {
          const left = takeRetry(tokens, budget);
          if (left !== undefined) retries += 1;
          tokens = left ?? tokens;
        }
      }
      const succeeded = successes.filter(Boolean).length;
      expect(retries).toBeLessThanOrEqual(0.2 * succeeded + 100 + 1e-9);
    }),
  );
});

test('33 calls of a new tool may use all of their four attempts each, and one call may make 60 attempts', () => {
  const { budget } = retryAllowance('tools.ask', undefined);
  for (const retries of [33 * (DEFAULT_RETRY.maxAttempts - 1), 59]) {
    let tokens: number | undefined;
    for (let retry = 0; retry < retries; retry += 1) tokens = takeRetry(tokens, budget);
    expect(tokens).toBeDefined();
  }
});

test('in an outage of several days, calls and retries together are at most 1.2 times the calls plus 100, at any rate', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 23 * 3_600_000 }), { maxLength: 400 }), (pausesMs) => {
      const budgets = new LocalRetryBudgets();
      const allowance = retryAllowance('tools.ask', undefined);
      let nowMs = 0;
      let attempts = 0;
      for (const pauseMs of pausesMs) {
        nowMs += pauseMs;
        attempts += 1;
        for (let retry = 1; retry < DEFAULT_RETRY.maxAttempts && budgets.take(allowance, nowMs); retry += 1)
          attempts += 1;
      }
      expect(attempts).toBeLessThanOrEqual(1.2 * pausesMs.length + 100);
    }),
  );
});

test('a bucket is for one tool and one tenant, and holds at least its floor', () => {
  expect(retryAllowance('tools.ask', undefined).bucket).toBe('tools.ask');
  expect(retryAllowance('tools.ask', 'acme').bucket).toBe('tools.ask@acme');
  const { budget } = retryAllowance('tools.ask', undefined, { floor: 500 });
  expect(budget).toEqual({ ratio: 0.2, floor: 500, capacity: 500, windowMs: 86_400_000 });
  // A capacity alone bounds the first tokens, too.
  for (const capacity of [0, 5, 100, 500])
    expect(retryAllowance('tools.ask', undefined, { capacity }).budget).toMatchObject({
      floor: Math.min(100, capacity),
      capacity,
    });
});
