import { describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { defineTool, type Effects } from '../../../src/index.ts';
import { completionToken, TOKEN_BYTES } from '../../../src/shared/calls/completion.ts';
import type { PawlError } from '../../../src/shared/errors/failure.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';
import type { PendingOptions } from '../../../src/types.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';

const HOUR_MS = 3_600_000;

/** A tool that leaves each of its calls to an outside system, which the test is. */
function payment(
  options: Partial<PendingOptions> = {},
  effects: Effects = 'once',
  before?: (ctx: ToolContext) => Promise<void>,
) {
  const tokens: string[] = [];
  const tool = defineTool({
    name: 'pay',
    version: '1.0.0',
    description: 'Asks a bank for a payment.',
    tier: 'workspace',
    effects,
    input: z.object({ amount: z.number() }),
    output: z.object({ paid: z.number() }),
    probe: () => ({ state: 'not-done' }),
    run: async (_params, ctx) => {
      const token = ctx.completionToken();
      tokens.push(token);
      await before?.(ctx);
      return ctx.pending({ expiresInMs: HOUR_MS, ...options });
    },
  });
  return { tool, tokens };
}

async function pay({ session, pawl }: Fleet, tool: ReturnType<typeof payment>['tool']) {
  const call = pending(await session.submit(tool, { amount: 3 }));
  await eventually(async () => (await pawl.read(call.callId))?.phase === 'pending', { what: 'a pending call' });
  return call;
}

const codeOf = (refusal: unknown) => (refusal as PawlError).code;

describe('a pending call', () => {
  test('holds no worker, and is completed once, with an output that its tool’s schema accepts', async () => {
    const { tool, tokens } = payment();
    const fleet = await startFleet({ tools: [tool, echo], concurrency: 1 });
    const call = await pay(fleet, tool);
    const { pawl, session } = fleet;
    expect(contentOf(await session.call(echo, { text: 'free' }))).toEqual({ text: 'free' });
    const record = await pawl.read(call.callId);
    expect(record).toMatchObject({ state: 'inflight', phase: 'pending', attempts: [{ status: 'pending' }] });
    expect(record?.worker).toBeUndefined();
    expect(record?.lockUntilMs).toBeUndefined();
    expect(await pawl.calls.list({ state: 'pending' })).toMatchObject([{ callId: call.callId }]);
    expect(await pawl.calls.list({ state: 'inflight' })).toMatchObject([{ callId: call.callId }]);
    expect(await pawl.calls.list({ state: 'unresolved' })).toEqual([]);
    expect(await pawl.calls.backlog()).toBe(0);

    const [token = ''] = tokens;
    const misfit = await pawl.complete(token, { status: 'success', output: { paid: 'much' } }).catch((error) => error);
    expect(misfit).toMatchObject({ code: 'COMPLETION_INVALID', issues: [{ path: 'output.paid' }] });
    const answers = await Promise.allSettled(
      Array.from({ length: 50 }, (_, paid) =>
        pawl.complete(token, { status: 'success', output: { paid }, display: 'paid' }),
      ),
    );
    const won = answers.findIndex(({ status }) => status === 'fulfilled');
    const lost = answers.flatMap((answer) => (answer.status === 'rejected' ? [codeOf(answer.reason)] : []));
    expect(lost).toEqual(Array(49).fill('COMPLETION_USED'));
    const result = await call.result;
    expect(result).toMatchObject({
      status: 'success',
      attempts: 1,
      output: { content: { paid: won }, metadata: { display: 'paid', tainted: true } },
    });
    expect(await pawl.read(call.callId)).toMatchObject({
      state: 'done',
      attempts: [{ status: 'success', completedAtMs: expect.any(Number) }],
    });
    expect((await pawl.session(session.key)).record.taint).toMatchObject([{ source: 'tools.pay' }]);
    expect(await pawl.calls.list({ state: 'pending' })).toEqual([]);
    expect((await fleet.world.keys()).filter((key) => key.includes(`:workspace:${call.callId}`))).toEqual([]);
    expect(fleet.audited.filter((event) => 'callId' in event && event.callId === call.callId)).toMatchObject([
      { type: 'call', answer: 'claimed' },
      { type: 'attempt', status: 'pending' },
      { type: 'call-ended', status: 'success', result: { paid: won } },
    ]);
    expect(JSON.stringify(fleet.audited)).not.toContain(token);
  });

  test('ends with the error that the outside system reports, which is no doubt', async () => {
    const { tool, tokens } = payment();
    const fleet = await startFleet({ tools: [tool] });
    const call = await pay(fleet, tool);
    await fleet.pawl.complete(tokens[0] ?? '', { status: 'error', error: { code: 'CARD_DECLINED', message: 'No.' } });
    expect(await call.result).toMatchObject({
      status: 'error',
      attempts: 1,
      error: { code: 'CARD_DECLINED', message: 'No.' },
    });
    const record = await fleet.pawl.read(call.callId);
    expect(record).toMatchObject({ state: 'failed', attempts: [{ status: 'error', errorCode: 'CARD_DECLINED' }] });
    expect(record?.outcome?.error?.mayHaveHappened).toBeUndefined();
  });

  test('is completed at once where the completion comes before the tool has returned', async () => {
    const completed = signal();
    const { tool, tokens } = payment({}, 'once', () => completed.promise);
    const fleet = await startFleet({ tools: [tool], concurrency: 1 });
    const call = pending(await fleet.session.submit(tool, { amount: 3 }));
    await eventually(() => tokens.length === 1);
    const { pawl } = fleet;
    expect(await pawl.complete(tokens[0] ?? '', { progress: 1, total: 2, message: 'on its way' })).toEqual({
      state: 'pending',
    });
    expect(await pawl.complete(tokens[0] ?? '', { extendMs: 5 })).toEqual({ state: 'pending' });
    await pawl.complete(tokens[0] ?? '', { status: 'success', output: { paid: 3 } });
    expect(contentOf(await call.result)).toEqual({ paid: 3 });
    completed.fire();
    const second = pending(await fleet.session.submit(tool, { amount: 4 }));
    await eventually(async () => (await pawl.read(second.callId))?.phase === 'pending');
    expect(await pawl.read(call.callId)).toMatchObject({ state: 'done', attempts: [{ status: 'success' }] });
    expect(await fleet.pawl.backend.redis.llen(`${fleet.settings.prefix}:{workspace}:workspace:active`)).toBe(0);
  });

  test('reports progress from outside, and gets more time, for more than the timers of Node can wait', async () => {
    const { tool, tokens } = payment({ expiresInMs: 40 * 24 * HOUR_MS });
    const fleet = await startFleet({ tools: [tool] });
    const reports: unknown[] = [];
    fleet.session.events.on('progress', (report) => reports.push(report));
    const became: unknown[] = [];
    fleet.session.events.on('pending', (event) => became.push(event));
    const call = pending(await fleet.session.submit(tool, { amount: 3 }));
    const { pawl } = fleet;
    const events: string[] = [];
    pawl.follow(call.callId, { onEvents: (some) => events.push(...some.map(({ type }) => type)), onEnd() {} });
    const record = await eventually(async () => {
      const read = await pawl.read(call.callId);
      return read?.phase === 'pending' && read;
    });
    const untilMs = record.pendingUntilMs ?? 0;
    expect(untilMs - record.readAtMs).toBeGreaterThan(39 * 24 * HOUR_MS);
    await pawl.complete(tokens[0] ?? '', { progress: { progress: 0.5, message: 'half' } });
    await eventually(() => reports.length === 1);
    expect(reports).toMatchObject([{ progress: 0.5, message: 'half' }]);
    expect(became).toMatchObject([{ callId: call.callId, expiresAtMs: untilMs }]);
    await eventually(() => events.includes('progress'), { what: 'the progress behind the event of pending' });
    expect(events).toEqual(['queued', 'attempt', 'pending', 'progress']);
    const extended = { state: 'pending', expiresAtMs: untilMs + HOUR_MS };
    expect(await pawl.complete(tokens[0] ?? '', { extendMs: HOUR_MS })).toEqual(extended);
    expect((await pawl.read(call.callId))?.pendingUntilMs).toBe(untilMs + HOUR_MS);
    const tooLong = await pawl.complete(tokens[0] ?? '', { extendMs: 365 * 24 * HOUR_MS }).catch((error) => error);
    expect(tooLong).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'extendMs' }] });
  });

  test('is cancelled like a call that runs: what it left outside may have had its effect', async () => {
    const { tool, tokens } = payment();
    const fleet = await startFleet({ tools: [tool] });
    const call = await pay(fleet, tool);
    expect(await fleet.pawl.cancel(call.callId)).toMatchObject({ settlement: 'unsettled' });
    expect(await fleet.pawl.calls.list({ state: 'unresolved' })).toMatchObject([{ callId: call.callId }]);
    const late = await fleet.pawl.complete(tokens[0] ?? '', { status: 'success', output: { paid: 3 } }).catch(codeOf);
    expect(late).toBe('COMPLETION_EXPIRED');
  });

  test('ends with its session', async () => {
    const { tool } = payment({}, 'idempotent');
    const fleet = await startFleet({ tools: [tool] });
    const call = await pay(fleet, tool);
    await fleet.session.close();
    expect(await call.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
    expect(await fleet.pawl.calls.list({ state: 'pending' })).toEqual([]);
  });

  test('outlives its deadline, and its caller waits on', async () => {
    const { tool, tokens } = payment();
    const fleet = await startFleet({ tools: [tool] });
    const cancel = vi.spyOn(fleet.pawl.backend.ledger, 'cancel');
    const call = pending(await fleet.session.submit(tool, { amount: 3 }, { timeoutMs: 1_500 }));
    await eventually(async () => (await fleet.pawl.read(call.callId))?.phase === 'pending');
    await eventually(() => cancel.mock.results.length === 1, { what: 'the deadline' });
    expect(await cancel.mock.results[0]?.value).toEqual({ kind: 'pending' });
    await fleet.pawl.complete(tokens[0] ?? '', { status: 'success', output: { paid: 3 } });
    expect(contentOf(await call.result)).toEqual({ paid: 3 });
  });
});

describe('a pending call that expires', () => {
  test.each([
    { effects: 'idempotent', onExpiry: undefined, code: 'COMPLETION_EXPIRED', unresolved: 0 },
    { effects: 'once', onExpiry: undefined, code: 'OUTCOME_UNKNOWN', unresolved: 1 },
    { effects: 'once', onExpiry: 'fail', code: 'COMPLETION_EXPIRED', unresolved: 0 },
    { effects: 'keyed', onExpiry: 'unknown', code: 'OUTCOME_UNKNOWN', unresolved: 1 },
  ] as const)(
    'of effects $effects with onExpiry $onExpiry ends as $code',
    async ({ effects, onExpiry, code, unresolved }) => {
      const { tool, tokens } = payment({ expiresInMs: 50, ...(onExpiry === undefined ? {} : { onExpiry }) }, effects);
      const fleet = await startFleet({ tools: [tool] });
      const result = await fleet.session.call(tool, { amount: 3 });
      expect(result).toMatchObject({ error: { code }, attempts: 1 });
      expect(await fleet.pawl.calls.list({ state: 'unresolved' })).toHaveLength(unresolved);
      expect(await fleet.pawl.calls.list({ state: 'pending' })).toEqual([]);
      const late = await fleet.pawl.complete(tokens[0] ?? '', { status: 'success', output: { paid: 3 } }).catch(codeOf);
      expect(late).toBe('COMPLETION_EXPIRED');
      if (unresolved === 0) return;
      await fleet.pawl.resolve(result.callId ?? '', { as: 'succeeded', output: { paid: 3 } });
      expect(await fleet.pawl.read(result.callId ?? '')).toMatchObject({ state: 'done' });
    },
  );

  test('has another attempt with onExpiry retry, whose token is another one', async () => {
    const { tool, tokens } = payment({ expiresInMs: 50, onExpiry: 'retry' }, 'idempotent');
    const fleet = await startFleet({ tools: [tool], settings: { tools: { pay: { retry: { maxAttempts: 2 } } } } });
    const result = await fleet.session.call(tool, { amount: 3 });
    expect(result).toMatchObject({ status: 'timeout', attempts: 2, error: { code: 'COMPLETION_EXPIRED' } });
    expect(result.retriedBy).toMatchObject([{ reasonCode: 'COMPLETION_EXPIRED' }]);
    expect(new Set(tokens).size).toBe(2);
  });

  test('has all its attempts again, and no deadline, when it is redriven', async () => {
    const { tool, tokens } = payment({ expiresInMs: 50, onExpiry: 'retry' }, 'idempotent');
    const fleet = await startFleet({ tools: [tool], settings: { tools: { pay: { retry: { maxAttempts: 2 } } } } });
    const deadlineAtMs = Date.now() + 2_000;
    const { callId = '' } = await fleet.session.call(tool, { amount: 3 }, { deadlineAtMs });
    await eventually(() => Date.now() > deadlineAtMs);
    expect(await fleet.pawl.deadLetters.redrive({ ids: [callId] })).toMatchObject({ started: 1 });
    expect(await fleet.pawl.result(callId)).toMatchObject({ error: { code: 'COMPLETION_EXPIRED' } });
    expect((await fleet.pawl.read(callId))?.attempts.map(({ round }) => round)).toEqual([1, 1, undefined, undefined]);
    expect(tokens).toHaveLength(4);
  });

  test('is probed before its next attempt, where its tool can say what became of the first', async () => {
    const { tool, tokens } = payment({ expiresInMs: 50 }, 'probe');
    const fleet = await startFleet({ tools: [tool], settings: { tools: { pay: { retry: { maxAttempts: 2 } } } } });
    const result = await fleet.session.call(tool, { amount: 3 });
    expect(result).toMatchObject({ attempts: 2, error: { code: 'COMPLETION_EXPIRED', mayHaveHappened: true } });
    expect(tokens).toHaveLength(2);
  });
});

describe('a completion', () => {
  test('with a token that no attempt issued, or whose attempt has ended without it, changes nothing', async () => {
    const tokens: string[] = [];
    const tool = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Asks for a token and does not use it.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.object({}),
      run: async (_params, ctx) => {
        tokens.push(ctx.completionToken(), ctx.completionToken());
        return { output: 'done' };
      },
    });
    const { pawl, session } = await startFleet({ tools: [tool] });
    const done = await session.call(tool, {});
    expect(new Set(tokens).size).toBe(1);
    expect(tokens[0]).toMatch(/^pawlc_w0\.[\w-]{43}$/);
    const complete = (token: string) => pawl.complete(token, { status: 'success', output: 1 }).catch(codeOf);
    expect(await complete(tokens[0] ?? '')).toBe('COMPLETION_EXPIRED');
    expect(await complete(completionToken(done.callId ?? '', Buffer.alloc(TOKEN_BYTES, 1)))).toBe('UNKNOWN_COMPLETION');
    expect(await complete('nonsense')).toBe('UNKNOWN_COMPLETION');
    expect(contentOf(await session.call(tool, {}))).toBe('done');
  });

  test('whose entry no key of the fleet has signed is refused', async () => {
    const { tool, tokens } = payment();
    const fleet = await startFleet({ tools: [tool], settings: { signingKeys: [{ kid: 'a', key: 'k'.repeat(32) }] } });
    const call = await pay(fleet, tool);
    const [entry = ''] = (await fleet.world.keys()).filter((key) => key.includes(':completion:'));
    await fleet.pawl.backend.redis.hset(entry, 'signature', 'a.forged');
    const refused = await fleet.pawl
      .complete(tokens[0] ?? '', { status: 'success', output: { paid: 1 } })
      .catch(codeOf);
    expect(refused).toBe('UNKNOWN_COMPLETION');
    expect(await fleet.pawl.read(call.callId)).toMatchObject({ phase: 'pending' });
  });
});

test('a tool whose ctx.pending is wrong ends in doubt, because it may have had its effect', async () => {
  const { tool } = payment({ expiresInMs: 0 });
  const { session } = await startFleet({ tools: [tool] });
  const result = await session.call(tool, { amount: 3 });
  expect(result).toMatchObject({ error: { code: 'RESULT_INVALID', mayHaveHappened: true } });
  expect(result.error?.message).toContain('ctx.pending of pay: expiresInMs must be');
});
