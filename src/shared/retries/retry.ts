/** The decision whether another attempt follows a failed one. No other place makes it. */
import { z } from 'zod';
import type { CircuitState } from '../circuits/circuit-breaker.ts';
import type { Failure } from '../errors/failure.ts';
import type { FailureStatus } from '../errors/result-status.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_WAIT_MS, type Random } from '../util/time.ts';
import type { Effects } from './effects.ts';

export interface RetryPolicy {
  /** Attempts in all, the first included. */
  readonly maxAttempts: number;
  readonly baseMs: number;
  readonly maxDelayMs: number;
  /** Time since the first attempt's start. A retry that would start later is not scheduled. */
  readonly maxElapsedMs: number;
  readonly retriableCodes?: readonly string[];
  readonly terminalCodes?: readonly string[];
}

/** The part of the policy that tools and operators may set. */
export const retryOverridesSchema = z
  .strictObject({
    maxAttempts: z.number().int().min(1).max(1_000),
    baseMs: z.number().int().min(0).max(MAX_WAIT_MS),
    maxDelayMs: z.number().int().min(0).max(MAX_WAIT_MS),
    maxElapsedMs: z.number().int().min(0).max(MAX_WAIT_MS),
    retriableCodes: z.array(z.string()),
    terminalCodes: z.array(z.string()),
  })
  .partial();
export type RetryOverrides = { readonly [K in keyof RetryPolicy]?: RetryPolicy[K] | undefined };

export const DEFAULT_RETRY: RetryPolicy = { maxAttempts: 4, baseMs: 200, maxDelayMs: 4_000, maxElapsedMs: 30_000 };

/** The smallest bound wins. `defaults` are the operator's, for tools that set nothing of their own. */
export function retryPolicy(
  tool: RetryOverrides,
  operator: RetryOverrides | undefined,
  caller: { readonly maxAttempts: number; readonly maxElapsedMs: number },
  defaults: RetryOverrides = {},
): RetryPolicy {
  const policy: RetryPolicy = {
    ...DEFAULT_RETRY,
    ...defined(defaults),
    ...defined(tool),
    ...defined(operator ?? {}),
  };
  return {
    ...policy,
    maxAttempts: Math.min(policy.maxAttempts, caller.maxAttempts),
    maxElapsedMs: Math.min(policy.maxElapsedMs, caller.maxElapsedMs),
  };
}

export interface FailedAttempt {
  readonly failure: Failure;
  readonly effects: Effects;
  readonly attempt: number;
  /** Time since the first attempt's start. */
  readonly elapsedMs: number;
  /** Time until the call's deadline; undefined when it has none. */
  readonly remainingMs: number | undefined;
  /** The caller vouches for a second run (`callHints.expectedRetrySafe`). */
  readonly expectedRetrySafe: boolean;
  readonly circuitState: CircuitState;
}

type RetryDecision =
  | { readonly kind: 'retry'; readonly delayMs: number }
  | { readonly kind: 'stop'; readonly status: FailureStatus; readonly reason: string };

export function decideRetry(failed: FailedAttempt, policy: RetryPolicy, random: Random): RetryDecision {
  const { failure, attempt } = failed;
  const timedOut = failure.class === 'timeout';
  const stop = (status: FailureStatus, reason: string): RetryDecision => ({
    kind: 'stop',
    status: timedOut ? 'timeout' : status,
    reason,
  });
  if (!failure.retriable) return stop('error', `${failure.code} is not retriable`);
  if (!mayRunAgain(failed))
    return stop('retriable_error', `a second run of a tool with effects '${failed.effects}' could do harm`);
  if (attempt >= policy.maxAttempts) return stop('retry_exhausted', `all ${policy.maxAttempts} attempts are used`);
  // The attempt ran, so its own failure is the answer, even where it opened the circuit.
  if (failed.circuitState === 'OPEN' || failed.circuitState === 'FORCED_OPEN')
    return stop('retriable_error', 'the circuit is open');
  const delayMs = Math.max(backoffMs(attempt, policy, random), failure.retryAfterMs ?? 0);
  if (failed.elapsedMs + delayMs > policy.maxElapsedMs)
    return stop('retry_exhausted', `another attempt would start after ${policy.maxElapsedMs} ms`);
  if (failed.remainingMs !== undefined && delayMs >= failed.remainingMs)
    return stop('retry_exhausted', 'another attempt would start after the deadline');
  return { kind: 'retry', delayMs };
}

/** The effects decide, unless the failure proves that nothing happened or the caller vouches for a second run. */
export function mayRunAgain(failed: Pick<FailedAttempt, 'failure' | 'effects' | 'expectedRetrySafe'>): boolean {
  return failed.effects !== 'once' || failed.failure.nothingHappened || failed.expectedRetrySafe;
}

/** Full jitter: uniform in [0, min(cap, base · 2^(attempt−1))]. */
export function backoffMs(attempt: number, policy: Pick<RetryPolicy, 'baseMs' | 'maxDelayMs'>, random: Random): number {
  return Math.floor(random() * Math.min(policy.maxDelayMs, policy.baseMs * 2 ** (attempt - 1)));
}
