import fc from 'fast-check';
import { expect, test } from 'vitest';
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
      expect(retries).toBeLessThanOrEqual(0.2 * succeeded + 3 + 1e-9);
    }),
  );
});

test('a bucket is for one tool and one tenant, and holds at least its floor', () => {
  expect(retryAllowance('tools.ask', undefined).bucket).toBe('tools.ask');
  expect(retryAllowance('tools.ask', 'acme').bucket).toBe('tools.ask@acme');
  const { budget } = retryAllowance('tools.ask', undefined, { floor: 50 });
  expect(budget).toEqual({ ratio: 0.2, floor: 50, capacity: 50, windowMs: 120_000 });
});
