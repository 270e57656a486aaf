import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DEFAULT_RETRY } from '../../src/shared/retry.ts';
import { refillRetries, retryAllowance, takeRetry } from '../../src/shared/retry-budget.ts';

test('whatever happens in whatever order, retries are at most a fifth of the successes plus the floor', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean(), { maxLength: 200 }), (successes) => {
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
      expect(retries).toBeLessThanOrEqual(0.2 * succeeded + 10 + 1e-9);
    }),
  );
});

test('three calls of a tool that nobody used for a while may use all of their four attempts each', () => {
  const { budget } = retryAllowance('tools.ask', undefined);
  let tokens: number | undefined;
  for (let retry = 0; retry < 3 * (DEFAULT_RETRY.maxAttempts - 1); retry += 1) tokens = takeRetry(tokens, budget);
  expect(tokens).toBeDefined();
});

test('a bucket is for one tool and one tenant, and holds at least its floor', () => {
  expect(retryAllowance('tools.ask', undefined).bucket).toBe('tools.ask');
  expect(retryAllowance('tools.ask', 'acme').bucket).toBe('tools.ask@acme');
  const { budget } = retryAllowance('tools.ask', undefined, { floor: 50 });
  expect(budget).toEqual({ ratio: 0.2, floor: 50, capacity: 50, windowMs: 120_000 });
});
