import { describe, expect, test } from 'vitest';
import { backoffMs, DEFAULT_RETRY } from '../../../src/shared/retries/retry.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';

describe('TR-5: retries', () => {
  test('a call that fails twice and succeeds the third time has 3 attempts, and says what the first two died of', async () => {
    const { tool, contexts } = scripted('flaky', ({ attempt }) => {
      if (attempt <= 2) throw httpError(attempt === 1 ? 503 : 429);
      return { output: 'up' };
    });
    const fleet = await startFleet({ tools: [tool] });
    const result = await fleet.session.call(tool, {});
    expect(result).toMatchObject({ status: 'success', attempts: 3, output: { content: 'up' } });
    expect(result.retriedBy).toEqual([
      { attempt: 1, delayMs: 0, reasonCode: 'HTTP_503', latencyMs: expect.any(Number) },
      { attempt: 2, delayMs: 0, reasonCode: 'HTTP_429', latencyMs: expect.any(Number) },
    ]);
    expect(contexts.map(({ attempt, fence }) => [attempt, fence])).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
    ]);
    expect(new Set(contexts.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(1);
    const record = await fleet.pawl.read(result.callId ?? '');
    expect(record?.attempts.map(({ status, errorCode }) => errorCode ?? status)).toEqual([
      'HTTP_503',
      'HTTP_429',
      'success',
    ]);
  });

  test('one failure gives 2 attempts', async () => {
    const { tool } = scripted('flaky', ({ attempt }) => {
      if (attempt === 1) throw httpError(500);
      return { output: 'up' };
    });
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({ status: 'success', attempts: 2 });
  });

  test('the delay is the dice’s share of the backoff, and is spent in the queue, not in a worker’s slot', async () => {
    const random = () => 0.25;
    const { tool } = scripted('flaky', ({ attempt }) => {
      if (attempt === 1) throw httpError(503);
      return { output: 'up' };
    });
    const { session } = await startFleet({ tools: [tool, echo], random, concurrency: 1 });
    const flaky = pending(await session.submit(tool, {}));
    const result = await flaky.result;
    expect(result.retriedBy).toMatchObject([{ delayMs: backoffMs(1, DEFAULT_RETRY, random) }]);
    expect(result.durationMs).toBeGreaterThanOrEqual(50);
  });
});

describe('TR-6 and TR-7: what is not retried, and what is no more', () => {
  test.each([400, 401, 403, 404, 413, 422])(
    'TR-6: %i ends the call after one attempt, terminal, and leaves the circuit alone',
    async (status) => {
      const { tool, contexts } = scripted('refused', () => {
        throw httpError(status);
      });
      const fleet = await startFleet({ tools: [tool] });
      expect(await fleet.session.call(tool, {})).toMatchObject({
        status: 'error',
        attempts: 1,
        error: { code: `HTTP_${status}`, retriable: false, terminal: true },
      });
      expect(contexts).toHaveLength(1);
      expect(await fleet.pawl.backend.breakers.window({ tier: 'workspace', shard: 0 }, 'tool:tools.refused')).toEqual(
        [],
      );
    },
  );

  test('TR-7: 503 for ever ends as retry_exhausted with all attempts used, and the breaker has seen each', async () => {
    const { tool, contexts } = scripted('down', () => {
      throw httpError(503);
    });
    const fleet = await startFleet({ tools: [tool] });
    const result = await fleet.session.call(tool, {});
    expect(result).toMatchObject({
      status: 'retry_exhausted',
      attempts: 4,
      error: { code: 'HTTP_503', retriable: true, terminal: true, breakerState: 'CLOSED' },
    });
    expect(result.retriedBy).toHaveLength(3);
    expect(contexts).toHaveLength(4);
    const window = await fleet.pawl.backend.breakers.window({ tier: 'workspace', shard: 0 }, 'tool:tools.down');
    expect(window.map(({ ok }) => ok)).toEqual([false, false, false, false]);
  });

  test.each([
    ['the caller’s budget', { retryBudget: { maxAttempts: 2 } }, {}, 2],
    ['the operator’s policy', {}, { tools: { down: { retry: { maxAttempts: 3 } } } }, 3],
    ['the operator’s list of terminal codes', {}, { tools: { down: { retry: { terminalCodes: ['HTTP_503'] } } } }, 1],
    [
      'the operator’s higher policy',
      {},
      { tools: { down: { retry: { maxAttempts: 6 }, circuit: { consecutiveFailures: 9 } } } },
      6,
    ],
    [
      'the operator’s policy for all tools',
      {},
      { defaults: { retry: { maxAttempts: 7 }, circuit: { consecutiveFailures: 9 } } },
      7,
    ],
    [
      'the caller’s budget below a higher policy',
      { retryBudget: { maxAttempts: 2, maxElapsedMs: 60_000 } },
      { tools: { down: { retry: { maxAttempts: 6 } } } },
      2,
    ],
  ])('%s bounds the attempts', async (_whose, options, settings, attempts) => {
    const { tool, contexts } = scripted('down', () => {
      throw httpError(503);
    });
    const { session } = await startFleet({ tools: [tool], settings });
    expect((await session.call(tool, {}, options)).attempts).toBe(attempts);
    expect(contexts).toHaveLength(attempts);
  });

  test('an operator may allow a tool to try for longer than 30 s', async () => {
    const { tool } = scripted('busy', ({ attempt }) => {
      if (attempt === 1) throw httpError(429, { retryAfterMs: 40_000 });
      return { output: null };
    });
    const fleet = await startFleet({
      tools: [tool],
      settings: { tools: { busy: { retry: { maxElapsedMs: 600_000 } } } },
    });
    const { callId } = pending(await fleet.session.submit(tool, {}));
    await eventually(async () => (await fleet.pawl.read(callId))?.phase === 'waiting-retry');
    expect((await fleet.pawl.read(callId))?.attempts).toMatchObject([{ errorCode: 'HTTP_429', delayMs: 40_000 }]);
    await fleet.session.cancel(callId);
  });

  test('a Retry-After beyond the time allowed ends the call at once', async () => {
    const { tool } = scripted('busy', () => {
      throw httpError(429, { retryAfterMs: 60_000 });
    });
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({
      status: 'retry_exhausted',
      attempts: 1,
      error: { code: 'HTTP_429', retryAfterMs: 60_000 },
    });
  });

  test.each<[string, number, string]>([
    ['HTTP 503', 1, 'retriable_error'],
    ['a refused connection', 4, 'retry_exhausted'],
  ])('a `once` tool is tried again only when nothing happened: %s', async (what, attempts, status) => {
    const { tool } = scripted(
      'pay',
      () => {
        throw what === 'HTTP 503' ? httpError(503) : Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
      },
      { effects: 'once' },
    );
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({ status, attempts });
  });

  test('a caller who vouches for it has a `once` tool tried again', async () => {
    const { tool } = scripted(
      'pay',
      ({ attempt }) => {
        if (attempt === 1) throw httpError(503);
        return { output: 'paid' };
      },
      { effects: 'once' },
    );
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {}, { expectedRetrySafe: true })).toMatchObject({ status: 'success', attempts: 2 });
  });
});
