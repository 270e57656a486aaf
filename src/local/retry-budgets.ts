/** Retry budgets of one process, with the fleet's rules (`retry-budget.ts`). */
import { type RetryAllowance, refillRetries, takeRetry } from '../shared/retries/retry-budget.ts';

interface Bucket {
  readonly tokens: number;
  readonly untilMs: number;
}

export class LocalRetryBudgets {
  readonly #buckets = new Map<string, Bucket>();

  /** False when the bucket is empty. Failed requests extend its lifetime, so it stays empty. */
  take({ bucket, budget }: RetryAllowance, nowMs: number): boolean {
    const current = this.#tokens(bucket, nowMs);
    const remaining = takeRetry(current, budget);
    this.#buckets.set(bucket, { tokens: remaining ?? current ?? 0, untilMs: nowMs + budget.windowMs });
    return remaining !== undefined;
  }

  refill({ bucket, budget }: RetryAllowance, nowMs: number): void {
    const tokens = refillRetries(this.#tokens(bucket, nowMs), budget);
    this.#buckets.set(bucket, { tokens, untilMs: nowMs + budget.windowMs });
  }

  #tokens(bucket: string, nowMs: number): number | undefined {
    const stored = this.#buckets.get(bucket);
    return stored === undefined || stored.untilMs <= nowMs ? undefined : stored.tokens;
  }
}
