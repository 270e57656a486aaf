/** Retry budgets of one process, with the fleet's rules (`retry-budget.ts`). */
import { type RetryAllowance, refillRetries, takeRetry } from '../shared/retries/retry-budget.ts';

interface Bucket {
  readonly tokens: number;
  readonly untilMs: number;
}

export class LocalRetryBudgets {
  readonly #buckets = new Map<string, Bucket>();

  /** False when the bucket is empty. It stays empty for as long as calls ask for tokens. */
  take({ bucket, budget }: RetryAllowance, nowMs: number): boolean {
    const present = this.#tokens(bucket, nowMs);
    const left = takeRetry(present, budget);
    this.#buckets.set(bucket, { tokens: left ?? present ?? 0, untilMs: nowMs + budget.windowMs });
    return left !== undefined;
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
