import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { defineTool, type Effects, type ProbeAnswer, ToolError } from '../../../src/index.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { backoffMs, DEFAULT_RETRY } from '../../../src/shared/retries/retry.ts';
import { Approvals } from '../../../src/shared/store/approvals/approvals.ts';
import { Breakers } from '../../../src/shared/store/circuits/circuits.ts';
import { Limits } from '../../../src/shared/store/limits/concurrency-limits.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../../helpers/tools.ts';

const circuitOf = async ({ pawl }: Fleet) => (await pawl.circuits.list())[0]?.circuit;
const states = ({ events }: Fleet) =>
  events.flatMap((event) => (event.type === 'tool_call_circuit_state' ? [`${event.from} ${event.to}`] : []));

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

describe('TR-8 to TR-11: the fleet’s circuit', () => {
  /** Cooldown and probes as short as they may be; `down` decides what the service does. */
  const start = async (
    change: { readonly cooldownMs?: number; readonly whenOpen?: 'refuse' | 'park' } = {},
    settings = {},
  ) => {
    const service = { down: true };
    const { tool, contexts } = scripted(
      'ask',
      () => {
        if (service.down) throw httpError(503);
        return { output: 'up' };
      },
      { retry: { maxAttempts: 1 }, circuit: { consecutiveFailures: 3, cooldownMs: 60_000, ...change } },
    );
    const fleet = await startFleet({ tools: [tool], settings });
    const ask = () => fleet.session.call(tool, {});
    return { service, tool, contexts, fleet, ask };
  };

  test('TR-8: opens at the threshold, and refuses from then on without running the tool', async () => {
    const { fleet, contexts, ask } = await start();
    for (let index = 0; index < 3; index += 1) expect((await ask()).status).toBe('retry_exhausted');
    expect(contexts).toHaveLength(3);
    expect(await circuitOf(fleet)).toMatchObject({ state: 'OPEN', reason: '3 failures in a row' });
    expect(await ask()).toMatchObject({
      status: 'circuit_open',
      attempts: 0,
      error: { code: 'CIRCUIT_OPEN', breakerState: 'OPEN' },
    });
    expect(contexts).toHaveLength(3);
    expect(states(fleet)).toEqual(['CLOSED OPEN']);
  });

  test('TR-9: after the cooldown two successful probes close it', async () => {
    const { fleet, ask, service } = await start({ cooldownMs: 50 });
    for (let index = 0; index < 3; index += 1) await ask();
    service.down = false;
    await eventually(async () => (await ask()).status === 'success');
    expect((await circuitOf(fleet))?.state).toBe('HALF_OPEN');
    expect((await ask()).status).toBe('success');
    expect((await circuitOf(fleet))?.state).toBe('CLOSED');
    expect(states(fleet)).toEqual(['CLOSED OPEN', 'OPEN HALF_OPEN', 'HALF_OPEN CLOSED']);
  });

  test('TR-10: a probe that fails opens it again', async () => {
    const { fleet, ask, contexts } = await start({ cooldownMs: 50 });
    for (let index = 0; index < 3; index += 1) await ask();
    await eventually(async () => {
      await ask();
      return contexts.length > 3;
    });
    expect(await circuitOf(fleet)).toMatchObject({ state: 'OPEN', reason: 'a probe failed' });
    expect(states(fleet).slice(0, 3)).toEqual(['CLOSED OPEN', 'OPEN HALF_OPEN', 'HALF_OPEN OPEN']);
  });

  test('TR-11: a call whose own failure opens the circuit is not retried, and ends with that failure', async () => {
    const { tool } = scripted(
      'ask',
      () => {
        throw httpError(503);
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    expect(await fleet.session.call(tool, {})).toMatchObject({
      status: 'retriable_error',
      attempts: 2,
      error: { code: 'HTTP_503', breakerState: 'OPEN', retriable: true, terminal: false },
    });
  });

  test('R35: an operator’s policy for all tools counts less than what a tool says of its own', async () => {
    const down = () => {
      throw httpError(503);
    };
    const { tool } = scripted('ask', down);
    const { tool: firm } = scripted('firm', down, { circuit: { consecutiveFailures: 3 } });
    const settings = { defaults: { circuit: { consecutiveFailures: 2 } } };
    const { session } = await startFleet({ tools: [tool, firm], settings });
    expect(await session.call(tool, {})).toMatchObject({ status: 'retriable_error', attempts: 2 });
    expect(await session.call(firm, {})).toMatchObject({ status: 'retriable_error', attempts: 3 });
  });

  test('ruling 13: with `park` a queued call waits for the circuit, without spending an attempt', async () => {
    const { ask, service } = await start({ cooldownMs: 300, whenOpen: 'park' });
    for (let index = 0; index < 3; index += 1) await ask();
    service.down = false;
    expect(await ask()).toMatchObject({ status: 'success', attempts: 1 });
  });

  test('ruling 12: what is the caller’s fault does not open it', async () => {
    const { tool } = scripted(
      'ask',
      () => {
        throw httpError(404);
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    for (let index = 0; index < 4; index += 1) expect((await fleet.session.call(tool, {})).status).toBe('error');
    expect(await fleet.pawl.circuits.list()).toEqual([]);
  });

  test('a probe that ends as the caller’s fault gives its lease back', async () => {
    const answers = [503, 503, 404, 0];
    const { tool } = scripted(
      'ask',
      () => {
        const status = answers.shift();
        if (status !== undefined && status > 0) throw httpError(status);
        return { output: 'up' };
      },
      { retry: { maxAttempts: 1 }, circuit: { consecutiveFailures: 2, cooldownMs: 20, successesToClose: 1 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    const ask = () => fleet.session.call(tool, {});
    for (let index = 0; index < 2; index += 1) await ask();
    await eventually(async () => (await ask()).status === 'error');
    expect((await ask()).status).toBe('success');
    expect((await circuitOf(fleet))?.state).toBe('CLOSED');
  });

  test('R33: with TOOL_RELIABILITY_OPEN_MODE=off it observes and never refuses, retries included', async () => {
    const { tool, contexts } = scripted(
      'ask',
      ({ attempt }) => {
        if (attempt < 4) throw httpError(503);
        return { output: 'up' };
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool], settings: { reliability: { openMode: 'off' } } });
    expect(await fleet.session.call(tool, {})).toMatchObject({ status: 'success', attempts: 4 });
    expect(contexts).toHaveLength(4);
    expect((await circuitOf(fleet))?.state).toBe('OPEN');
  });
});

describe('D12: whatever a tool throws becomes a failed call, and the worker lives', () => {
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const bare: unknown = Object.create(null);
  const later = (error: unknown) =>
    new Promise<never>(() => {
      setImmediate(() => {
        throw error;
      });
    });

  test.each<[string, () => unknown]>([
    ['an error', () => thrown(new Error('boom'))],
    ['a string', () => thrown('boom')],
    ['undefined', () => thrown(undefined)],
    ['an object without a prototype', () => thrown(bare)],
    ['a revoked proxy', () => thrown(revoked.proxy)],
    ['a rejection', () => Promise.reject(new Error('boom'))],
    ['an error in a timer', () => later(new Error('boom'))],
    ['an object without a prototype, in a timer', () => later(bare)],
    [
      'a rejection that nobody awaits',
      () => {
        void Promise.reject(new Error('boom'));
        return new Promise(() => {});
      },
    ],
  ])('%s', async (_what, run) => {
    const { tool } = scripted('hostile', () => run() as never);
    const { session } = await startFleet({ tools: [tool, echo] });
    const result = await session.call(tool, {});
    expect(result).toMatchObject({ status: 'error', attempts: 1, error: { code: 'TOOL_FAILED', terminal: true } });
    expect(JSON.stringify(result)).not.toContain('execute.test');
    expect(contentOf(await session.call(echo, { text: 'still here' }))).toEqual({ text: 'still here' });
  });

  function thrown(value: unknown): never {
    throw value;
  }

  test('a tool’s own error says whether another try helps', async () => {
    const { tool } = scripted('till', ({ attempt }) => {
      if (attempt === 1) throw new ToolError('busy', { code: 'TILL_BUSY', retriable: true });
      throw new ToolError('broken', { code: 'TILL_BROKEN' });
    });
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({
      status: 'error',
      attempts: 2,
      error: { code: 'TILL_BROKEN', message: 'broken' },
      retriedBy: [{ reasonCode: 'TILL_BUSY' }],
    });
  });
});

describe('what a tool returns', () => {
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  const throwing = new Proxy(
    {},
    {
      has: () => true,
      get: () => {
        throw new Error('trap');
      },
    },
  );

  test.each<[string, unknown, string]>([
    ['nothing', undefined, 'RESULT_INVALID'],
    ['a bare value', 'text', 'RESULT_INVALID'],
    ['a cycle', { output: cycle }, 'RESULT_INVALID'],
    ['a BigInt', { output: 1n }, 'RESULT_INVALID'],
    ['too much', { output: 'x'.repeat(2_000) }, 'RESULT_TOO_LARGE'],
    ['a proxy whose every trap throws', throwing, 'TOOL_FAILED'],
    ['a display that cannot be shown', { output: 1, display: Object.create(null) as unknown }, 'RESULT_INVALID'],
  ])('%s: a failed call of one attempt', async (_what, value, code) => {
    const { tool } = scripted('odd', () => value as never, { maxResultBytes: 1_000 });
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({ status: 'error', attempts: 1, error: { code } });
  });

  test('an output that its own schema refuses is RESULT_INVALID', async () => {
    const tool = defineTool({
      name: 'count',
      version: '1.0.0',
      description: 'Counts.',
      tier: 'read-only',
      input: z.object({}),
      output: z.object({ count: z.number() }),
      run: () => ({ output: { count: 'many' as never } }),
    });
    const { session } = await startFleet({ tools: [tool] });
    expect((await session.call(tool, {})).error).toMatchObject({
      code: 'RESULT_INVALID',
      message: expect.stringContaining('count'),
    });
  });

  test('undefined is null, display and artifacts are kept, and a large result comes back whole', async () => {
    const text = 'ü'.repeat(100_000);
    const { tool } = scripted('give', (_ctx, { what }) => ({
      output: what === 'large' ? text : undefined,
      display: 'given',
      artifacts: [{ kind: 'other', reference: 'x' }],
    }));
    const { session } = await startFleet({ tools: [tool] });
    expect((await session.call(tool, {})).output).toEqual({
      content: null,
      metadata: { display: 'given', artifacts: [{ kind: 'other', reference: 'x' }] },
    });
    expect(contentOf(await session.call(tool, { what: 'large' }))).toBe(text);
  });
});

describe('time limits', () => {
  test('a tool that does not finish in time ends as timeout, its signal aborted', async () => {
    const gate = gated('slow', { timeoutMs: 30, retry: { maxAttempts: 1 } });
    const { session } = await startFleet({ tools: [gate.tool] });
    expect(await session.call(gate.tool, {})).toMatchObject({
      status: 'timeout',
      attempts: 1,
      error: { code: 'TIMEOUT' },
    });
    expect(gate.contexts[0]?.signal.reason).toMatchObject({ code: 'TIMEOUT' });
  });

  test('ruling 11: a timeout is retried where a second run does no harm, and nowhere else', async () => {
    for (const [effects, attempts] of [
      ['idempotent', 2],
      ['once', 1],
    ] as const) {
      const gate = gated('slow', { effects, timeoutMs: 20, retry: { maxAttempts: 2 } });
      const { session } = await startFleet({ tools: [gate.tool] });
      expect(await session.call(gate.tool, {}), effects).toMatchObject({ status: 'timeout', attempts });
    }
  });

  test('R16: the key of a `once` call that ran out of time is taken as long as that of a success: its effect may have happened', async () => {
    for (const [effects, keptMs] of [
      ['once', 600_000],
      ['idempotent', 60_000],
    ] as const) {
      const gate = gated('slow', { effects, timeoutMs: 20, retry: { maxAttempts: 1 } });
      const fleet = await startFleet({ tools: [gate.tool], settings: { ttl: { doneMs: 600_000, failedMs: 60_000 } } });
      const { callId = '' } = await fleet.session.call(gate.tool, {});
      const { ledger, redis } = fleet.pawl.backend;
      const ttlMs = await redis.pttl(ledger.keys({ tier: gate.tool.tier, shard: 0 }).record(callId));
      expect(ttlMs, effects).toBeGreaterThan(300_000);
      const { freeAtMs, expiresAtMs = 0, updatedAtMs } = (await fleet.pawl.read(callId)) ?? { updatedAtMs: 0 };
      expect((freeAtMs ?? expiresAtMs) - updatedAtMs, effects).toBe(keptMs);
    }
  });

  test.each<[number, Effects, number]>([
    [503, 'once', 600_000],
    [503, 'probe', 600_000],
    [503, 'keyed', 60_000],
    [429, 'once', 60_000],
    [400, 'once', 60_000],
  ])('R16: after HTTP %i the key of a call with effects %s is taken for %i ms', async (status, effects, keptMs) => {
    const fails = () => {
      throw httpError(status);
    };
    const probe = () => ({ state: 'not-done' as const });
    const { tool } = scripted('down', fails, {
      effects,
      ...(effects === 'probe' ? { probe } : {}),
      retry: { maxAttempts: 1 },
    });
    const fleet = await startFleet({ tools: [tool], settings: { ttl: { doneMs: 600_000, failedMs: 60_000 } } });
    const { callId = '' } = await fleet.session.call(tool, {});
    const { freeAtMs, expiresAtMs = 0, updatedAtMs } = (await fleet.pawl.read(callId)) ?? { updatedAtMs: 0 };
    expect(expiresAtMs - updatedAtMs).toBe(600_000);
    expect((freeAtMs ?? expiresAtMs) - updatedAtMs).toBe(keptMs);
  });

  test('what a tool finishes in spite of its limit counts', async () => {
    const { tool } = scripted(
      'stubborn',
      (ctx) =>
        new Promise<{ output: string }>((done) =>
          ctx.signal.addEventListener('abort', () => done({ output: 'done after all' })),
        ),
      { timeoutMs: 20 },
    );
    const { session } = await startFleet({ tools: [tool] });
    expect(contentOf(await session.call(tool, {}))).toBe('done after all');
  });

  test('the call’s deadline ends an attempt as well', async () => {
    const gate = gated('slow', { effects: 'once' });
    const { session } = await startFleet({ tools: [gate.tool] });
    const result = await session.call(gate.tool, {}, { deadlineAtMs: Date.now() + 2_500 });
    expect(result).toMatchObject({ status: 'timeout', attempts: 1 });
  });
});

describe('an attempt that began and left no record (DESIGN, decision 5)', () => {
  const lose = async (effects: Effects, times: number, probe?: { readonly answer: ProbeAnswer<string> }) => {
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects,
      tier: effects === 'none' ? 'read-only' : 'workspace',
      ...(probe === undefined ? {} : { probe: () => probe.answer }),
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const record = await fleet.pawl.read(submission.callId);
    const job = { callId: submission.callId, generation: record?.generation ?? '', session: fleet.session.key };
    for (let index = 0; index < times; index += 1)
      await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: `dead ${index}` });
    await fleet.startWorker();
    return { result: await submission.result, runs: contexts.length };
  };

  test.each<[Effects, number, string, number]>([
    ['none', 1, 'success', 1],
    ['idempotent', 1, 'success', 1],
    ['keyed', 1, 'success', 1],
    ['once', 1, 'OUTCOME_UNKNOWN', 0],
    ['none', 9, 'success', 1],
    ['idempotent', 2, 'success', 1],
    ['once', 9, 'OUTCOME_UNKNOWN', 0],
  ])('%s, lost %i times: %s', async (effects, times, end, runs) => {
    const lost = await lose(effects, times);
    expect(lost.result.error?.code ?? lost.result.status).toBe(end);
    expect(lost.runs).toBe(runs);
    const reasons = lost.result.retriedBy?.map(({ reasonCode }) => reasonCode);
    if (end === 'success') expect(reasons).toEqual(Array(times).fill('LEASE_LOST'));
  });

  test.each<[string, ProbeAnswer<string>, string, number]>([
    ['done', { state: 'done', result: { output: 'was done' } }, 'was done', 0],
    ['not done', { state: 'not-done' }, 'ran', 1],
    ['unknown', { state: 'unknown' }, 'OUTCOME_UNKNOWN', 0],
    ['nothing', undefined as never, 'OUTCOME_UNKNOWN', 0],
    ['something else', { state: 'maybe' } as never, 'OUTCOME_UNKNOWN', 0],
    ['done without a result', { state: 'done' } as never, 'OUTCOME_UNKNOWN', 0],
  ])('a probe that says %s', async (_answer, probe, end, runs) => {
    const lost = await lose('probe', 1, { answer: probe });
    expect(lost.result.error?.code ?? lost.result.output?.content).toBe(end);
    expect(lost.runs).toBe(runs);
    const isAnswer = ['done', 'not done', 'unknown'].includes(_answer);
    if (!isAnswer) expect(lost.result.error?.message).toContain('probe of work must return');
  });

  test.each<[string, ProbeAnswer<string>['state']]>([
    ['found done', 'done'],
    ['run again', 'not-done'],
  ])(
    'a probe is asked about the parameters that the hooks let run, and each hook runs once: %s',
    async (_end, state) => {
      const seen: unknown[] = [];
      const note = (what: string, { room }: Record<string, unknown>) => void seen.push(`${what} ${String(room)}`);
      const { tool } = scripted(
        'book',
        ({ values }, params) => {
          note(`run with ${String(values.get('house'))}`, params);
          return { output: null };
        },
        {
          effects: 'probe',
          probe: (params) => {
            note('asked', params as Record<string, unknown>);
            return (state === 'done' ? { state, result: { output: null } } : { state }) as ProbeAnswer<string>;
          },
        },
      );
      const hook: Hook = {
        name: 'rooms',
        beforeAttempt: ({ params, values }) => {
          note('hook', params);
          values.set('house', 'east');
          return { params: { room: `${String(params['room'])}-east` } };
        },
      };
      const fleet = await startFleet({ tools: [tool], workers: 0, hooks: [hook] });
      const { callId, result } = pending(await fleet.session.submit(tool, { room: 'a' }, { idempotencyKey: 'k' }));
      const generation = (await fleet.pawl.read(callId))?.generation ?? '';
      const job = { callId, generation, session: fleet.session.key };
      await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
      await fleet.startWorker();
      expect(await result).toMatchObject({ status: 'success' });
      const ran = state === 'done' ? [] : ['run with east a-east'];
      expect(seen).toEqual(['hook a', 'asked a-east', ...ran]);
    },
  );

  test.each([
    ['hides a part of it', 'success', 'card ****'],
    ['fails', 'error', 'HOOK_FAILED'],
  ])('a result that a probe found goes through the hook behind attempts, which %s', async (does, status, end) => {
    const { tool } = scripted('pay', () => ({ output: null }), {
      effects: 'probe',
      probe: () => ({ state: 'done', result: { output: 'card 4711' } }),
    });
    const hook: Hook = {
      name: 'cards',
      onFailure: 'closed',
      afterAttempt: ({ ending }) => {
        if (does === 'fails' || ending.kind !== 'value') throw new Error('no');
        return { result: { output: String(ending.result.output).replaceAll(/\d/g, '*') } };
      },
    };
    const fleet = await startFleet({ tools: [tool], workers: 0, hooks: [hook] });
    const { callId, result } = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const generation = (await fleet.pawl.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    await fleet.startWorker();
    const ended = await result;
    expect(ended.status).toBe(status);
    expect(ended.error?.code ?? ended.output?.content).toBe(end);
  });

  test('a probe that can be asked no more, because the deadline has passed, leaves the outcome unknown', async () => {
    const probed: unknown[] = [];
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects: 'probe',
      probe: (params) => {
        probed.push(params);
        return { state: 'not-done' };
      },
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const { ledger } = fleet.pawl.backend;
    const deadlineAtMs = (await ledger.now()) + 500;
    const { callId } = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k', deadlineAtMs }));
    const generation = (await ledger.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    await eventually(async () => (await ledger.now()) > deadlineAtMs, { what: 'the deadline' });
    await fleet.startWorker();
    const ended = await eventually(
      async () => {
        const record = await ledger.read(callId);
        return record?.state === 'failed' && record;
      },
      { what: 'the end of the call' },
    );
    expect(ended.outcome?.error?.code).toBe('OUTCOME_UNKNOWN');
    expect([probed.length, contexts.length]).toEqual([0, 0]);
  });
});

describe('a tool that is being asked what became of an attempt', () => {
  const asked = async (atEnd: ProbeAnswer<string> = { state: 'unknown' }) => {
    const held = signal();
    const answers: ((ended: AbortSignal) => ProbeAnswer<string> | Promise<ProbeAnswer<string>>)[] = [
      (ended) => {
        if (atEnd.state === 'done') ended.addEventListener('abort', () => held.fire(), { once: true });
        return held.promise.then(() => atEnd);
      },
      () => ({ state: 'done', result: { output: 'was done' } }),
    ];
    const probed: number[] = [];
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects: 'probe',
      probe: (_params, ctx) => answers[probed.push(ctx.fence) - 1]?.(ctx.signal) ?? { state: 'unknown' },
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const { callId } = submission;
    const generation = (await fleet.pawl.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    const worker = await fleet.startWorker();
    await eventually(() => probed.length === 1, { what: 'the question' });
    onTestFinished(() => held.fire());
    return { ...fleet, submission, worker, runs: () => contexts.length };
  };

  test('is asked again by the next worker, when the one that asks is drained', async () => {
    const { submission, worker, startWorker, runs } = await asked();
    await worker.close(0);
    await startWorker();
    expect(await submission.result).toMatchObject({ status: 'success', output: { content: 'was done' } });
    expect(runs()).toBe(0);
  });

  test('leaves its call unsettled when that is cancelled meanwhile', async () => {
    const { submission, pawl, runs } = await asked();
    expect(await pawl.cancel(submission.callId)).toMatchObject({ settlement: 'unsettled' });
    expect(runs()).toBe(0);
  });

  test('counts when it comes as its call is cancelled', async () => {
    const { submission, pawl } = await asked({ state: 'done', result: { output: 'was done' } });
    expect(await pawl.cancel(submission.callId)).toMatchObject({
      settlement: 'too-late',
      result: { status: 'success', output: { content: 'was done' } },
    });
  });
});

describe('a `probe` tool whose attempt failed in the middle', () => {
  const failing = (answer: ProbeAnswer<string>, failure: () => Error) => {
    const probed: number[] = [];
    const { tool, contexts } = scripted(
      'charge',
      ({ attempt }) => {
        if (attempt === 1) throw failure();
        return { output: 'ran' };
      },
      {
        effects: 'probe',
        probe: (_params, { attempt }) => {
          probed.push(attempt);
          return answer;
        },
      },
    );
    return { tool, contexts, probed };
  };
  const reset = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  const refused = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });

  test.each<[string, ProbeAnswer<string>, string, number]>([
    ['done', { state: 'done', result: { output: 'was done' } }, 'was done', 1],
    ['not done', { state: 'not-done' }, 'ran', 2],
    ['unknown', { state: 'unknown' }, 'OUTCOME_UNKNOWN', 1],
  ])('is asked before it runs again, and says %s', async (_answer, answer, end, runs) => {
    const { tool, contexts, probed } = failing(answer, reset);
    const { session } = await startFleet({ tools: [tool] });
    const result = await session.call(tool, {});
    expect(result.error?.code ?? result.output?.content).toBe(end);
    expect(result.retriedBy).toMatchObject([{ attempt: 1, reasonCode: 'CONNECTION_RESET' }]);
    expect([contexts.length, probed]).toEqual([runs, [2]]);
  });

  test.each([
    ['leaves the outcome unknown when its circuit opened meanwhile', reset, 'OUTCOME_UNKNOWN'],
    ['is refused by a circuit that opened meanwhile where nothing happened', refused, 'CIRCUIT_OPEN'],
  ])('%s', async (_does, failure, code) => {
    const { tool, contexts, probed } = failing({ state: 'not-done' }, failure);
    const hook: Hook = {
      name: 'operator',
      onRetry: async () => void (await fleet.pawl.circuits.set('force_open', { tool: 'charge' })),
    };
    const fleet = await startFleet({ tools: [tool], hooks: [hook] });
    const result = await fleet.session.call(tool, {});
    expect(result).toMatchObject({ attempts: 1, error: { code, breakerState: 'FORCED_OPEN' } });
    expect([contexts.length, probed]).toEqual([1, []]);
  });

  test('runs again unasked where the failure proves that nothing happened', async () => {
    const { tool, probed } = failing({ state: 'unknown' }, refused);
    const { session } = await startFleet({ tools: [tool] });
    expect(contentOf(await session.call(tool, {}))).toBe('ran');
    expect(probed).toEqual([]);
  });

  test('runs again unasked when a person resolved it so', async () => {
    const { tool, probed } = failing({ state: 'unknown' }, reset);
    const { session, pawl } = await startFleet({ tools: [tool] });
    const { callId = '', error } = await session.call(tool, {});
    expect(error?.code).toBe('OUTCOME_UNKNOWN');
    await pawl.resolve(callId, { as: 'retry' });
    expect(await pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'ran' } });
    expect(probed).toEqual([2]);
  });
});

describe('a process that stood still', () => {
  /** Blocks this process as one that is stopped, or short of memory, stands still: no timer runs before what comes next. */
  const standStill = (ms: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

  test.each<[Effects, string, readonly number[]]>([
    ['idempotent', 'success', [2]],
    // It never came to the tool's code, and says so.
    ['once', 'success', [2]],
  ])('runs no tool under a lease that is over: %s', async (effects, end, fences) => {
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), { effects });
    const settings = { lockDurationMs: 600, stalledIntervalMs: 200 };
    const slow: Hook = {
      name: 'slow',
      beforeAttempt: ({ fence }) => (fence === 1 ? standStill(settings.lockDurationMs) : undefined),
    };
    const warn = vi.fn();
    const fleet = await startFleet({ tools: [tool], settings, hooks: [slow], log: { ...silentLogger, warn } });
    const result = await fleet.session.call(tool, {});
    expect(result.error?.code ?? result.status).toBe(end);
    expect(contexts.map(({ fence }) => fence)).toEqual(fences);
    expect(warn.mock.calls.filter(([{ event }]) => event === 'lease_lost')).toMatchObject([
      [{ toolName: 'work', fence: 1, reason: expect.stringContaining('could not be renewed') }, expect.anything()],
    ]);
  });
});

describe('an attempt that Redis could not take a step of', () => {
  const away = () => new PawlError('BACKEND_UNAVAILABLE', 'OOM command not allowed');

  test('is released without consuming an attempt before it has a slot under a limit', async () => {
    const { tool, contexts } = scripted('visit', () => ({ output: 'seen' }), { effects: 'once' });
    const settings = { tools: { visit: { limits: { concurrency: 1 } } } };
    const fleet = await startFleet({ tools: [tool], settings });
    const failing = vi.spyOn(Limits.prototype, 'acquire').mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    expect(await fleet.session.call(tool, {})).toMatchObject({ status: 'success', attempts: 1 });
    expect(contexts).toHaveLength(1);
    const { limits } = fleet.pawl.backend;
    const isFree = async () => (await limits.counts({ name: 'policy:tools.visit' })).running === 0;
    await eventually(isFree, { what: 'a free slot' });
  });

  test('gives its slot under a limit back as soon as Redis takes that', async () => {
    const { tool } = scripted('visit', () => ({ output: 'seen' }));
    const settings = { tools: { visit: { limits: { concurrency: 1 } } } };
    const fleet = await startFleet({ tools: [tool], settings });
    const failing = vi.spyOn(Limits.prototype, 'release').mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    await fleet.session.call(tool, {});
    await fleet.session.call(tool, {});
    expect(failing).toHaveBeenCalledTimes(3);
    expect(await fleet.pawl.backend.limits.counts({ name: 'policy:tools.visit' })).toMatchObject({ running: 0 });
  });

  test('is released without consuming an attempt at the gate, and its decision is looked at again', async () => {
    const { tool, contexts } = scripted('visit', () => ({ output: 'seen' }), { effects: 'once' });
    const settings = { policy: { global: { tools: { visit: 'ask' } } } } as const;
    const fleet = await startFleet({ tools: [tool], settings, workers: 0 });
    const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const { callId, result } = pending(await session.submit(tool, {}));
    const { digest } = await fleet.pawl.approvals.show(callId);
    await fleet.pawl.approvals.decide(callId, { decision: 'approve', digest, by: 'grace' });
    const failing = vi.spyOn(Approvals.prototype, 'read').mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    await fleet.startWorker();
    expect(await result).toMatchObject({ status: 'success', attempts: 1 });
    expect(contexts).toHaveLength(1);
  });
});

describe('what a tool came to is not lost when Redis cannot take a word on its circuit', () => {
  const away = () => new PawlError('BACKEND_UNAVAILABLE', 'OOM command not allowed');

  test('a failure', async () => {
    const { tool } = scripted('charge', () => Promise.reject(new Error('no funds')), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool] });
    const failing = vi.spyOn(Breakers.prototype, 'addFailure').mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    expect(await fleet.session.call(tool, {})).toMatchObject({ attempts: 1, error: { code: 'TOOL_FAILED' } });
    expect(failing).toHaveBeenCalledTimes(2);
  });

  test('the success of a probe of the circuit', async () => {
    const { tool, contexts } = scripted(
      'charge',
      (_ctx, { fails }) => (fails === true ? Promise.reject(new Error('no')) : { output: 'charged' }),
      { effects: 'once', circuit: { consecutiveFailures: 1, cooldownMs: 1, whenOpen: 'park' } },
    );
    const fleet = await startFleet({ tools: [tool] });
    await fleet.session.call(tool, { fails: true });
    const change = Breakers.prototype.change;
    let refused = 0;
    const failing = vi.spyOn(Breakers.prototype, 'change').mockImplementation(function (this: Breakers, ...args) {
      if (contexts.length < 2 || refused > 0) return change.apply(this, args);
      refused += 1;
      return Promise.reject(away());
    });
    onTestFinished(() => failing.mockRestore());
    expect(contentOf(await fleet.session.call(tool, {}))).toBe('charged');
    expect([contexts.length, refused]).toEqual([2, 1]);
  });
});

describe('DESIGN, decision 11: nothing trusts the job or the producer', () => {
  test('parameters are checked again by the worker that runs the tool', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: null }));
    const strict = defineTool({
      ...tool,
      variant: { type: 'function' },
      input: z.object({ text: z.string() }),
      run: tool.run as never,
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit('note', { text: 7 }));
    await fleet.startWorker({ tools: [strict] });
    expect(await submission.result).toMatchObject({
      status: 'error',
      attempts: 0,
      error: { code: 'DEFINITION_CHANGED', issues: [{ path: 'text' }] },
    });
    expect(contexts).toHaveLength(0);
  });

  test('a tool that is elevated where it runs is denied, whatever tier the producer knew', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit('note', {}));
    await fleet.startWorker({ tools: [{ ...tool, tier: 'system' }] });
    expect((await submission.result).error?.code).toBe('PERMISSION_DENIED');
    expect(contexts).toHaveLength(0);
  });
});
