/** Retries, circuits, leases and records of a local runner, by a clock that a test moves. */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { FakeClock } from '../../src/local/fake-clock.ts';
import { createLocalRunner } from '../../src/local/run-tool.ts';
import type { PawlError } from '../../src/shared/errors/failure.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import { startProgram } from '../helpers/process.ts';
import { signal } from '../helpers/signal.ts';
import { MINUTE_MS, open, openTimeless, scripted, unavailable } from './open-runner.ts';

async function elapsed<T>(clock: FakeClock, promise: Promise<T>): Promise<{ readonly value: T; readonly ms: number }> {
  const startMs = clock.now();
  const value = await clock.until(promise);
  return { value, ms: clock.now() - startMs };
}

describe('time', () => {
  test('a program that ran before the clock was made is not waited for', { timeout: 15_000 }, async () => {
    const server = startProgram('sleep', ['60']);
    const { tool } = scripted('idempotent', (_ctx, run) => {
      if (run < 4) throw unavailable();
    });
    const { clock, runner } = openTimeless(tool);
    expect(await clock.until(runner.run(tool, {}))).toMatchObject({ status: 'success', attempts: 4 });
    await server.kill();
  });

  test('TR-5: retries wait as the dice say, and cost no real time', async () => {
    const { tool } = scripted('idempotent', (_ctx, run) => {
      if (run < 4) throw unavailable();
    });
    const { clock, runner } = openTimeless(tool, { random: () => 0.5 });
    const { value, ms } = await elapsed(clock, runner.run(tool, {}));
    expect(value).toMatchObject({ status: 'success', attempts: 4 });
    expect(value.retriedBy?.map(({ delayMs }) => delayMs)).toEqual([100, 200, 400]);
    expect(ms).toBe(700);
    expect(value.durationMs).toBe(700);
  });

  test('an injected sleep is what waits between two attempts', async () => {
    const { tool } = scripted('idempotent', (_ctx, run) => {
      if (run < 3) throw unavailable();
    });
    const slept: number[] = [];
    const sleep = async (ms: number) => void slept.push(ms);
    const runner = open([tool], { sleep, random: () => 0.99 });
    expect(await runner.run(tool, {})).toMatchObject({ status: 'success', attempts: 3 });
    expect(slept).toEqual([198, 396]);
  });

  test('each attempt has the parameters as they came, whatever the one before made of them', async () => {
    const seen: string[] = [];
    const tool = defineTool({
      name: 'append',
      version: '1.0.0',
      description: 'Changes what it is given.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.looseObject({ items: z.array(z.unknown()), at: z.unknown() }),
      run: ({ items, at }, { attempt }) => {
        seen.push(JSON.stringify([items, typeof at]));
        items.push(attempt);
        if (attempt < 3) throw unavailable();
        return { output: null };
      },
    });
    const runner = open([tool], { sleep: async () => {} });
    const params = { items: [0], at: new Date(0), more: {} };
    expect(await runner.run(tool, params)).toMatchObject({ status: 'success', attempts: 3 });
    expect(seen).toEqual(Array(3).fill('[[0],"string"]'));
    expect(params.items).toEqual([0]);
  });

  test('a call whose tool is not ready is parked, consumes no attempt, and runs when it is', async () => {
    const asked: number[] = [];
    const hooked: string[] = [];
    const tool = defineTool({
      name: 'ripen',
      version: '1.0.0',
      description: 'Waits for what ripens.',
      tier: 'read-only',
      timeoutMs: 1_000,
      input: z.object({ bad: z.boolean().default(false) }),
      ready: ({ bad }, _ctx, waitedMs) => {
        if (bad) throw Object.assign(new Error('no such fruit'), { status: 404 });
        asked.push(waitedMs);
        return waitedMs < 60_000 ? { ready: false, againInMs: 25_000 } : { ready: true };
      },
      run: () => ({ output: 'ripe' }),
    });
    const hooks = [{ name: 'count', beforeAttempt: () => void hooked.push('attempt') }];
    const { clock, runner } = openTimeless(tool, { hooks });
    const { value, ms } = await elapsed(clock, runner.run(tool, {}));
    expect(value).toMatchObject({ status: 'success', attempts: 1, output: { content: 'ripe' }, durationMs: 75_000 });
    expect(asked).toEqual([0, 25_000, 50_000, 75_000]);
    expect([hooked, ms]).toEqual([['attempt'], 75_000]);

    const bad = await clock.until(runner.run(tool, { bad: true }));
    expect(bad).toMatchObject({ status: 'error', error: { message: expect.stringContaining('no such fruit') } });
    const late = await elapsed(clock, runner.run(tool, {}, { deadlineAtMs: clock.now() + 30_000 }));
    expect(late.value).toMatchObject({ status: 'timeout', error: { code: 'DEADLINE_EXCEEDED' } });
    expect(late.ms).toBeLessThan(31_000);
  });

  test.each<[unknown]>([
    [{ ready: false }],
    [{ ready: false, againInMs: '5 s' }],
    [{ ready: false, againInMs: Number.NaN }],
    [true],
    [undefined],
    ['soon'],
    [{ ready: false, againInMs: Number.POSITIVE_INFINITY }],
    [{ ready: 'no' }],
  ])(
    'an answer of `ready` that says nothing, such as %j, fails the call and is not asked for again',
    async (answer) => {
      let asked = 0;
      const ready = () => {
        asked += 1;
        if (asked > 100) throw new Error('asked again and again');
        return answer;
      };
      const { tool, contexts } = scripted('idempotent', () => {});
      const { clock, runner } = openTimeless({ ...tool, ready } as AnyTool);
      const { error } = await clock.until(runner.run(tool, {}));
      expect(error).toMatchObject({ code: 'RESULT_INVALID', message: expect.stringContaining('againInMs') });
      expect([asked, contexts.length]).toEqual([1, 0]);
    },
  );

  test.each<[string, (ctx: ToolContext) => unknown, string]>([
    ['three values', (ctx) => ctx.progress(...([1, 3, 'step'] as never as [never])), 'it got 1'],
    ['nothing', (ctx) => ctx.progress(...([] as never as [never])), 'it got nothing'],
    ['a share of nothing', (ctx) => ctx.progress({ progress: 0 / 0 }), 'it got { progress: NaN }'],
  ])('progress that is reported as %s is named', async (_name, report, words) => {
    const { tool } = scripted('idempotent', report);
    const { clock, runner } = openTimeless(tool);
    const { error } = await clock.until(runner.run(tool, {}));
    expect(error).toMatchObject({ code: 'RESULT_INVALID', message: expect.stringContaining(words) });
  });

  test('a delayed call runs at its start, has its time limit from there, and is cancelled before', async () => {
    const { tool, contexts } = scripted('once');
    const { clock, runner } = openTimeless(tool);
    const startedMs = clock.now();
    const session = await runner.openSession();
    const later = await session.submit(tool, {}, { startAfterMs: 60 * MINUTE_MS, timeoutMs: MINUTE_MS });
    const cancelled = await session.submit(tool, {}, { startAt: new Date(startedMs + MINUTE_MS) });
    expect(await session.cancel(cancelled.callId ?? '')).toMatchObject({ settlement: 'cancelled-before-start' });
    expect(await clock.until(Promise.resolve(later.result))).toMatchObject({ status: 'success' });
    const afterMs = clock.now() - startedMs;
    expect(afterMs).toBeGreaterThanOrEqual(60 * MINUTE_MS);
    expect(afterMs).toBeLessThan(60 * MINUTE_MS + 100);
    expect(contexts).toHaveLength(1);
    const left = await session.submit(tool, {}, { startAfterMs: MINUTE_MS });
    await runner.close();
    expect((await left.result).error?.code).toBe('DRAINED');
    expect(contexts).toHaveLength(1);
  });

  test('a pending call waits for its completion, and expires in its time', async () => {
    const tokens: string[] = [];
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Asks a bank for a payment.',
      tier: 'workspace',
      effects: 'once',
      input: z.object({ invoice: z.number() }),
      output: z.object({ receipt: z.string() }),
      run: (_params, ctx) => {
        tokens.push(ctx.completionToken());
        return ctx.pending({ expiresInMs: 60 * MINUTE_MS });
      },
    });
    const { clock, runner } = openTimeless(pay);
    const session = await runner.openSession();
    const waits = new Promise((resolve) => session.events.once('pending', resolve));
    const first = await session.submit(pay, { invoice: 1 });
    expect(await waits).toMatchObject({ callId: first.callId, expiresAtMs: clock.now() + 60 * MINUTE_MS });
    const [token = ''] = tokens;
    const complete = (output: unknown) =>
      runner.complete(token, { status: 'success', output }).catch(({ code }: PawlError) => code);
    expect(await complete({ receipt: 1 })).toBe('COMPLETION_INVALID');
    expect(await complete({ receipt: 'R-1' })).toEqual({ state: 'completed' });
    expect(await complete({ receipt: 'R-2' })).toBe('COMPLETION_USED');
    expect((await first.result).output?.content).toEqual({ receipt: 'R-1' });
    const late = await elapsed(clock, runner.run(pay, { invoice: 2 }));
    expect(late).toMatchObject({ value: { error: { code: 'OUTCOME_UNKNOWN' } }, ms: 60 * MINUTE_MS });
    await runner.close();
  });

  test('a call whose tool cannot say whether it changes something does not run', async () => {
    const { tool, contexts } = scripted('idempotent');
    const unsure = { ...tool, resource: () => 'r', isMutating: async () => false } as never as AnyTool;
    const { clock, runner } = openTimeless(unsure);
    const { error } = await clock.until(runner.run(unsure, {}));
    expect(error?.message).toContain('isMutating of work_idempotent must return true or false; it returned a promise');
    expect(contexts).toEqual([]);
  });

  test('a tool that hangs is timed out after its limit, and a deadline ends the call', async () => {
    const { tool } = scripted('once', () => new Promise(() => {}));
    const { clock, runner } = openTimeless(tool);
    const hung = await elapsed(clock, runner.run(tool, {}));
    expect(hung.value).toMatchObject({ status: 'timeout', attempts: 1, error: { code: 'TIMEOUT' } });
    // Two seconds to clean up.
    expect(hung.ms).toBe(32_000);
    const late = await elapsed(clock, runner.run(tool, {}, { timeoutMs: 5_000 }));
    expect(late.value.status).toBe('timeout');
    expect(late.ms).toBeLessThanOrEqual(7_000);
  });

  test('TR-8, TR-9: with the seed’s defaults 5 failures open the circuit, for 30 s, and two probes close it', async () => {
    let down = true;
    const { tool, contexts } = scripted('idempotent', () => {
      if (down) throw unavailable();
    });
    const { clock, runner } = openTimeless(tool);
    const call = () => clock.until(runner.run(tool, {}, { retryBudget: { maxAttempts: 1 } }));
    const states = async () => (await runner.circuits.list()).map(({ circuit }) => circuit.state);
    for (let index = 0; index < 5; index += 1) expect((await call()).status).toBe('retry_exhausted');
    expect(await states()).toEqual(['OPEN']);
    await clock.advance(29_990);
    expect(await call()).toMatchObject({ status: 'circuit_open', attempts: 0, error: { retryAfterMs: 10 } });
    expect(contexts).toHaveLength(5);
    await clock.advance(11);
    down = false;
    expect((await call()).status).toBe('success');
    expect(await states()).toEqual(['HALF_OPEN']);
    expect((await call()).status).toBe('success');
    expect(await states()).toEqual(['CLOSED']);
  });

  test('R16: a success is replayed for 24 hours, a failure for 5 minutes, and not a moment longer', async () => {
    const { tool, contexts } = scripted('idempotent', (_ctx, run) => {
      if (run === 1) throw new Error('broken');
    });
    const { clock, runner } = openTimeless(tool);
    const call = () => clock.until(runner.run(tool, {}, { idempotencyKey: 'k' }));
    await call();
    await clock.advance(5 * MINUTE_MS);
    expect(await call()).toMatchObject({ status: 'error', fromCache: true, cache: { ageMs: 5 * MINUTE_MS } });
    await clock.advance(1);
    expect(await call()).toMatchObject({ status: 'success', fromCache: false });
    await clock.advance(24 * 60 * MINUTE_MS);
    expect(await call()).toMatchObject({ fromCache: true });
    await clock.advance(1);
    expect(await call()).toMatchObject({ fromCache: false });
    expect(contexts).toHaveLength(3);
  });

  test('ruling 6: a call that runs longer than its lease stays claimed, because the lease is renewed', async () => {
    const gate = signal();
    const patient = { ...scripted('once', () => gate.promise).tool, timeoutMs: 24 * 60 * MINUTE_MS };
    const { clock, runner } = openTimeless(patient);
    const other = createLocalRunner({ tools: [patient], clock, store: runner.store });
    const startMs = clock.now();
    const first = runner.run(patient, {}, { idempotencyKey: 'long' });
    await clock.advance(30 * MINUTE_MS);
    const joined = other.run(patient, {}, { idempotencyKey: 'long' });
    await clock.advance(30 * MINUTE_MS);
    gate.fire();
    const { callId } = await clock.until(first);
    expect(await clock.until(joined)).toMatchObject({ status: 'success', callId, cache: { matchedOn: 'inflight' } });
    expect((await runner.store.get(callId ?? ''))?.createdAtMs).toBe(startMs);
  });
});
