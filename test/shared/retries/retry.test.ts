import { describe, expect, test } from 'vitest';
import { LARGEST_RETRY_BUDGET } from '../../../src/shared/calls/envelope.ts';
import { failureOf } from '../../../src/shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../../src/shared/errors/failure-codes.ts';
import { EFFECTS } from '../../../src/shared/retries/effects.ts';
import {
  backoffMs,
  DEFAULT_RETRY,
  decideRetry,
  type FailedAttempt,
  mayRunAgain,
  type RetryPolicy,
  retryPolicy,
} from '../../../src/shared/retries/retry.ts';

const ALMOST_ONE = 1 - Number.EPSILON;
const high = () => ALMOST_ONE;
const low = () => 0;

function failed(change: Partial<FailedAttempt> & { code?: FailureCode } = {}): FailedAttempt {
  const { code = 'HTTP_503', ...rest } = change;
  return {
    failure: failureOf(code),
    effects: 'none',
    attempt: 1,
    elapsedMs: 0,
    remainingMs: undefined,
    expectedRetrySafe: false,
    circuitState: 'CLOSED',
    ...rest,
  };
}

describe('backoff (R20, TR-5)', () => {
  test('full jitter: the dice choose from nothing up to base · 2^(attempt−1), and never more than the cap', () => {
    const bounds = [1, 2, 3, 4, 5, 6, 7].map((attempt) => [
      backoffMs(attempt, DEFAULT_RETRY, low),
      backoffMs(attempt, DEFAULT_RETRY, () => 0.5),
      backoffMs(attempt, DEFAULT_RETRY, high),
    ]);
    expect(bounds).toEqual([
      [0, 100, 199],
      [0, 200, 399],
      [0, 400, 799],
      [0, 800, 1_599],
      [0, 1_600, 3_199],
      [0, 2_000, 3_999],
      [0, 2_000, 3_999],
    ]);
  });

  test('an attempt number beyond all bounds still gives the cap', () => {
    expect(backoffMs(5_000, DEFAULT_RETRY, high)).toBe(3_999);
  });
});

describe('the smallest bound wins', () => {
  test('the defaults: 4 attempts, 200 ms, 4,000 ms, 30,000 ms', () => {
    expect(DEFAULT_RETRY).toEqual({ maxAttempts: 4, baseMs: 200, maxDelayMs: 4_000, maxElapsedMs: 30_000 });
  });

  test.each([
    ['the caller', {}, {}, { maxAttempts: 2, maxElapsedMs: 1_000 }, { maxAttempts: 2, maxElapsedMs: 1_000 }],
    ['the default', {}, {}, { maxAttempts: 99, maxElapsedMs: 90_000 }, { maxAttempts: 4, maxElapsedMs: 30_000 }],
    ['the tool', { maxAttempts: 3 }, {}, { maxAttempts: 4, maxElapsedMs: 30_000 }, { maxAttempts: 3 }],
    [
      'the operator over the tool',
      { maxAttempts: 3 },
      { maxAttempts: 6 },
      { maxAttempts: 9, maxElapsedMs: 9 },
      { maxAttempts: 6 },
    ],
  ] as const)('%s bounds', (_who, tool, operator, caller, expected) => {
    expect(retryPolicy(tool, operator, caller)).toMatchObject(expected);
  });

  test('where the caller names none, tool and operator decide; the operator’s defaults for all tools come first (R35)', () => {
    const policy = (...[tool, operator, defaults]: Partial<RetryPolicy>[]) =>
      retryPolicy(tool ?? {}, operator, LARGEST_RETRY_BUDGET, defaults);
    const long = { maxAttempts: 8, maxElapsedMs: 600_000 };
    expect(policy()).toEqual(DEFAULT_RETRY);
    expect(policy({}, long)).toMatchObject(long);
    expect(policy(long)).toMatchObject(long);
    expect(policy({}, {}, long)).toMatchObject(long);
    expect(policy({ maxAttempts: 3 }, {}, long)).toMatchObject({ maxAttempts: 3, maxElapsedMs: 600_000 });
    expect(policy({ maxAttempts: 3 }, { maxAttempts: 5 }, long)).toMatchObject({ maxAttempts: 5 });
  });

  const policy: RetryPolicy = { ...DEFAULT_RETRY, maxAttempts: 3, maxElapsedMs: 1_000 };
  test.each([
    ['attempts are used up', failed({ attempt: 3 }), 'all 3 attempts are used'],
    [
      'the next attempt would start after the time allowed',
      failed({ attempt: 2, elapsedMs: 700 }),
      'would start after 1000 ms',
    ],
    ['the next attempt would start after the deadline', failed({ remainingMs: 199 }), 'after the deadline'],
  ])('TR-7: when %s, the call ends as retry_exhausted', (_when, attempt, reason) => {
    const decision = decideRetry(attempt, policy, high);
    expect(decision).toMatchObject({
      kind: 'stop',
      status: 'retry_exhausted',
      reason: expect.stringContaining(reason),
    });
  });

  test.each([
    ['the last attempt but one', failed({ attempt: 2 }), 399],
    ['exactly at the time allowed', failed({ attempt: 2, elapsedMs: 601 }), 399],
    ['just before the deadline', failed({ remainingMs: 200 }), 199],
  ])('%s is followed by another', (_when, attempt, delayMs) => {
    expect(decideRetry(attempt, policy, high)).toEqual({ kind: 'retry', delayMs });
  });
});

describe('Retry-After (R18)', () => {
  const throttled = (retryAfterMs: number, change: Partial<FailedAttempt> = {}) =>
    failed({ failure: failureOf('HTTP_429', undefined, { retryAfterMs }), ...change });

  test('a longer wait than the backoff is honoured, a shorter one does not shorten it', () => {
    expect(decideRetry(throttled(5_000), DEFAULT_RETRY, high)).toEqual({ kind: 'retry', delayMs: 5_000 });
    expect(decideRetry(throttled(10), DEFAULT_RETRY, high)).toEqual({ kind: 'retry', delayMs: 199 });
  });

  test.each([
    ['the time allowed', throttled(30_001)],
    ['the deadline', throttled(5_000, { remainingMs: 4_000 })],
    ['everything', throttled(Number.POSITIVE_INFINITY)],
  ])('no wait beyond %s begins', (_bound, attempt) => {
    expect(decideRetry(attempt, DEFAULT_RETRY, low)).toMatchObject({ kind: 'stop', status: 'retry_exhausted' });
  });
});

describe('which attempts may run twice', () => {
  test.each(
    EFFECTS.flatMap((effects) =>
      (['HTTP_503', 'CONNECTION_RESET', 'TIMEOUT', 'CONNECTION_REFUSED', 'DNS_FAILED', 'HTTP_429'] as const).map(
        (code) => ({
          effects,
          code,
          again: effects !== 'once' || ['CONNECTION_REFUSED', 'DNS_FAILED', 'HTTP_429'].includes(code),
        }),
      ),
    ),
  )('$effects after $code: run again $again', ({ effects, code, again }) => {
    expect(decideRetry(failed({ effects, code }), DEFAULT_RETRY, low).kind).toBe(again ? 'retry' : 'stop');
  });

  test('a `once` tool that may not run again ends as retriable_error: its caller may decide to try again', () => {
    expect(decideRetry(failed({ effects: 'once' }), DEFAULT_RETRY, low)).toMatchObject({
      kind: 'stop',
      status: 'retriable_error',
      reason: expect.stringContaining("'once'"),
    });
  });

  test('a caller that vouches for a second run gets one (R3 expectedRetrySafe)', () => {
    expect(decideRetry(failed({ effects: 'once', expectedRetrySafe: true }), DEFAULT_RETRY, low).kind).toBe('retry');
    expect(mayRunAgain({ failure: failureOf('HTTP_503'), effects: 'once', expectedRetrySafe: true })).toBe(true);
  });
});

describe('failures that end a call at once', () => {
  test.each([
    'HTTP_4XX',
    'HTTP_5XX',
    'INVALID_PARAMS',
    'PERMISSION_DENIED',
    'TOOL_FAILED',
    'RESULT_TOO_LARGE',
    'RESULT_INVALID',
    'NOT_FOUND',
    'OUTCOME_UNKNOWN',
  ] as const)('TR-6: %s is not retriable: status error', (code) => {
    expect(decideRetry(failed({ code }), DEFAULT_RETRY, low)).toMatchObject({ kind: 'stop', status: 'error' });
  });

  test.each([
    [failed({ code: 'TIMEOUT', attempt: 4 }), 'timeout'],
    [failed({ code: 'TIMEOUT', effects: 'once' }), 'timeout'],
    [failed({ code: 'DEADLINE_EXCEEDED' }), 'timeout'],
    [failed({ code: 'UPSTREAM_TIMEOUT', attempt: 4 }), 'retry_exhausted'],
  ] as const)('ruling 11: a timeout that is the last word has the status %#', (attempt, status) => {
    expect(decideRetry(attempt, DEFAULT_RETRY, low)).toMatchObject({ kind: 'stop', status });
  });

  test.each(['OPEN', 'FORCED_OPEN'] as const)(
    'TR-11: while the circuit is %s no attempt is retried',
    (circuitState) => {
      expect(decideRetry(failed({ circuitState }), DEFAULT_RETRY, low)).toMatchObject({ kind: 'stop' });
    },
  );

  test('an attempt that ran never ends as circuit_open, whatever its failure and its circuit’s state', () => {
    const states = ['CLOSED', 'HALF_OPEN', 'OPEN', 'FORCED_OPEN'] as const;
    for (const code of Object.keys(FAILURES) as FailureCode[])
      for (const circuitState of states)
        for (const effects of ['none', 'once'] as const)
          for (const attempt of [1, 4]) {
            const decision = decideRetry(failed({ code, circuitState, effects, attempt }), DEFAULT_RETRY, low);
            expect(decision.kind === 'stop' && decision.status).not.toBe('circuit_open');
          }
  });

  test.each(['CLOSED', 'HALF_OPEN'] as const)('TR-11: while the circuit is %s a retry is scheduled', (circuitState) => {
    expect(decideRetry(failed({ circuitState }), DEFAULT_RETRY, low).kind).toBe('retry');
  });

  test('TR-11: a failure that is not retriable stays an error when the circuit is open', () => {
    const decision = decideRetry(failed({ code: 'HTTP_4XX', circuitState: 'OPEN' }), DEFAULT_RETRY, low);
    expect(decision).toMatchObject({ kind: 'stop', status: 'error' });
  });
});
