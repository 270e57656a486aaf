/** Retry budgets of one process, with the fleet's rules (`retry-budget.ts`). */
import { type RetryAllowance, refillRetries, takeRetry } from '../shared/retry-budget.ts';

interface Bucket {
  readonly tokens: number;
  readonly untilMs: number;
}

export class LocalRetryBudgets {
  readonly #buckets = new Map<string, Bucket>();

  /** False when the bucket is empty. */
  take({ bucket, budget }: RetryAllowance, nowMs: number): boolean {
    const left = takeRetry(this.#tokens(bucket, nowMs), budget);
    if (left === undefined) return false;
    this.#buckets.set(bucket, { tokens: left, untilMs: nowMs + budget.windowMs });
    return true;
  }

  refill({ bucket, budget }: RetryAllowance, nowMs: number): void {
    const tokens = refillRetries(this.#tokens(bucket, nowMs), budget);
    this.#buckets.set(bucket, { tokens, untilMs: nowMs + budget.windowMs });
  }

  #tokens(bucket: string, nowMs: number): number | undefined {
    const held = this.#buckets.get(bucket);
    return held === undefined || held.untilMs <= nowMs ? undefined : held.tokens;
  }
}
