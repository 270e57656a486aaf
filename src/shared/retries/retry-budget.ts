/**
 * The retry budget: a fleet-wide token bucket for each tool and tenant, which all callers share. A retry takes a token; a success
 * puts a part of one back. The budget prevents retry storms and leaves ordinary trouble alone: in an outage, calls and retries
 * together stay below 1.2 times the calls plus the floor, however long it lasts and however many workers there are. There is no
 * hedging: no second try starts before the first has failed.
 */
import { defined } from '../util/json/omit-undefined.ts';

interface RetryBudget {
  /** Tokens that a success puts back: the share of calls that may be retried in the long run. */
  readonly ratio: number;
  /** Tokens of a new bucket. */
  readonly floor: number;
  /** The most tokens that a bucket holds. */
  readonly capacity: number;
  /** A bucket from which no call took or asked for a token in that time is new again. */
  readonly windowMs: number;
}
type RetryBudgetOverrides = { readonly [K in keyof RetryBudget]?: RetryBudget[K] | undefined };

/** With these, forty calls at a time that fail twice each get their third attempt. A shorter window would grant new tokens in an outage. */
const DEFAULT_RETRY_BUDGET: RetryBudget = { ratio: 0.2, floor: 100, capacity: 100, windowMs: 24 * 3_600_000 };

/** A part of the message of a call that ends because the bucket has no token. */
export const RETRY_BUDGET_EXHAUSTED = 'retry budget exhausted';

/** An attempt's bucket and its rule. */
export interface RetryAllowance {
  readonly bucket: string;
  readonly budget: RetryBudget;
}

export function retryAllowance(
  tool: string,
  tenantId: string | undefined,
  overrides: RetryBudgetOverrides = {},
): RetryAllowance {
  const { capacity = DEFAULT_RETRY_BUDGET.capacity } = overrides;
  const { floor = Math.min(DEFAULT_RETRY_BUDGET.floor, capacity) } = overrides;
  return {
    bucket: tenantId === undefined ? tool : `${tool}@${tenantId}`,
    budget: { ...DEFAULT_RETRY_BUDGET, ...defined(overrides), floor, capacity: Math.max(capacity, floor) },
  };
}

/** The tokens left after a retry, or undefined when there is none to take. `tokens` is undefined for an unused bucket. */
export function takeRetry(tokens: number | undefined, { floor }: RetryBudget): number | undefined {
  const current = tokens ?? floor;
  return current >= 1 ? current - 1 : undefined;
}

export function refillRetries(tokens: number | undefined, { ratio, floor, capacity }: RetryBudget): number {
  return Math.min(capacity, (tokens ?? floor) + ratio);
}
