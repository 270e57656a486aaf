import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { defineTool, type Effects, ToolError } from '../../../src/index.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { Approvals } from '../../../src/shared/store/approvals/approvals.ts';
import { Ledger } from '../../../src/shared/store/calls/ledger.ts';
import { Limits } from '../../../src/shared/store/limits/concurrency-limits.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, within } from '../../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../../helpers/tools.ts';

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

describe('an attempt that Redis could not take a step of', () => {
  const away = () => new PawlError('BACKEND_UNAVAILABLE', 'OOM command not allowed');

  test('begins as soon as Redis takes that, and not when the lock of its job has ended', async () => {
    const { tool, contexts } = scripted('visit', () => ({ output: 'seen' }), { effects: 'once' });
    const { session } = await startFleet({ tools: [tool] });
    const failing = vi.spyOn(Ledger.prototype, 'begin').mockRejectedValueOnce(away()).mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    const result = await within(session.call(tool, {}), 10_000, 'the result');
    expect(result).toMatchObject({ status: 'success', attempts: 1 });
    expect(contexts).toHaveLength(1);
    expect(failing).toHaveBeenCalledTimes(3);
  });

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
