import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { type FakeClock, fakeClock } from '../../src/local/fake-clock.ts';
import { createLocalRunner, type LocalRunnerOptions, runWithToolIdempotency } from '../../src/local/run-tool.ts';
import type { LocalRunner } from '../../src/local/runner.ts';
import type { DedupeRecord } from '../../src/shared/calls/dedupe-store.ts';
import type { PawlError } from '../../src/shared/errors/failure.ts';
import type { Effects } from '../../src/shared/retries/effects.ts';
import { InMemoryDedupeStore } from '../../src/shared/store/dedupe/dedupe-memory.ts';
import { RedisDedupeStore } from '../../src/shared/store/dedupe/dedupe-redis.ts';
import { openConnection } from '../../src/shared/store/redis/connection.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import type { ProbeAnswer } from '../../src/shared/tools/tool-result.ts';
import { eventually, signal, within } from '../helpers/signal.ts';
import { createWorld } from '../helpers/world.ts';

const MINUTE_MS = 60_000;

/** A tool that does what the test says, and counts. */
function scripted(effects: Effects, script: (ctx: ToolContext, run: number) => unknown = () => undefined) {
  const contexts: ToolContext[] = [];
  const answers: ProbeAnswer<unknown>[] = [];
  const tool = defineTool({
    name: `work_${effects}`,
    version: '1.0.0',
    description: 'Does what a test says.',
    tier: effects === 'none' ? 'read-only' : 'workspace',
    effects,
    input: z.looseObject({}),
    run: async (_params, ctx) => {
      contexts.push(ctx);
      return { output: (await script(ctx, contexts.length)) ?? { run: contexts.length } };
    },
    ...(effects === 'probe' ? { probe: () => answers.shift() ?? { state: 'unknown' } } : {}),
  });
  return { tool, contexts, answers };
}

function open(tools: readonly AnyTool[], options: Partial<LocalRunnerOptions> = {}): LocalRunner {
  const runner = createLocalRunner({ tools, ...options });
  onTestFinished(() => runner.close(0));
  return runner;
}

/** A runner whose time passes when the test says so. */
function openTimeless(tool: AnyTool, options: Partial<LocalRunnerOptions> = {}) {
  const clock = fakeClock();
  return { clock, runner: createLocalRunner({ tools: [tool], clock, ...options }) };
}

async function elapsed<T>(clock: FakeClock, promise: Promise<T>): Promise<{ readonly value: T; readonly ms: number }> {
  const startMs = clock.now();
  const value = await clock.until(promise);
  return { value, ms: clock.now() - startMs };
}

const unavailable = () => Object.assign(new Error('busy'), { status: 503 });

describe('time', () => {
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

describe('the record in the store', () => {
  test('R14: tells who asked, what was tried and how it ended', async () => {
    const { tool } = scripted('idempotent', (_ctx, run) => {
      if (run === 1) throw unavailable();
    });
    const { clock, runner } = openTimeless(tool, { random: () => 0 });
    const options = { idempotencyKey: 'k', toolCallId: 'call-1', sessionKey: 's', actorId: 'ada' };
    const startMs = clock.now();
    const { callId, requestId } = await clock.until(runner.run(tool, { a: 1 }, options));
    expect(await runner.store.get(callId ?? '')).toEqual({
      key: callId,
      tool: 'tools.work_idempotent',
      idempotencyKey: 'k',
      state: 'done',
      createdAtMs: startMs,
      updatedAtMs: startMs,
      expiresAtMs: startMs + 24 * 60 * MINUTE_MS,
      ttlMs: 24 * 60 * MINUTE_MS,
      request: { sessionKey: 's', actorId: 'ada', requestId, toolCallId: 'call-1', paramsDigest: expect.any(String) },
      execution: {
        attemptCount: 2,
        attempts: [
          {
            startedAtMs: startMs,
            finishedAtMs: startMs,
            status: 'error',
            retriable: true,
            errorCode: 'HTTP_503',
            inDoubt: true,
          },
          { startedAtMs: startMs, finishedAtMs: startMs, status: 'success', retriable: false },
        ],
      },
      payload: expect.objectContaining({ status: 'success', output: { content: { run: 2 } } }),
      version: expect.any(Number),
    } satisfies Record<keyof Omit<DedupeRecord, 'error' | 'lockUntilMs'>, unknown>);
  });

  test('while it runs the record is in flight, with a lease and the attempt that began', async () => {
    const gate = signal();
    const { tool, contexts } = scripted('once', () => gate.promise);
    const { clock, runner } = openTimeless(tool);
    const result = runner.run(tool, {}, { sessionKey: 's', idempotencyKey: 'k' });
    await clock.advance(1_000);
    const [{ callId: key } = { callId: 'none' }] = contexts;
    expect(await runner.store.get(key)).toMatchObject({
      state: 'inflight',
      lockUntilMs: clock.now() - 1_000 + 2 * MINUTE_MS,
      execution: { attemptCount: 1, attempts: [] },
    });
    gate.fire();
    await clock.until(result);
    expect(await runner.store.get(key)).not.toHaveProperty('lockUntilMs');
  });

  test('a cancelled key is free once an operator clears it (R11)', async () => {
    const begun = signal();
    let stopped = false;
    const { tool } = scripted('none', (ctx) => {
      if (stopped) return undefined;
      begun.fire();
      return new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)));
    });
    const runner = open([tool]);
    const stop = new AbortController();
    const running = runner.run(tool, {}, { idempotencyKey: 'k', signal: stop.signal });
    await begun.promise;
    stop.abort();
    stopped = true;
    const { callId = '' } = await running;
    expect(await runner.store.get(callId)).toMatchObject({ state: 'cancelled', error: { code: 'CANCELLED' } });
    expect(await runner.run(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
    await runner.store.delete(callId);
    expect(await runner.run(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ status: 'success', fromCache: false });
  });

  test('a record that is deleted under a running call is written all the same, and its callers hear of the end', async () => {
    const begun = signal();
    const gate = signal();
    const { tool, contexts } = scripted('idempotent', () => {
      begun.fire();
      return gate.promise;
    });
    const runner = open([tool]);
    const running = runner.run(tool, {}, { idempotencyKey: 'k' });
    await begun.promise;
    expect(await runner.store.delete(contexts[0]?.callId ?? 'none')).toBe(true);
    gate.fire();
    expect(await running).toMatchObject({ status: 'success' });
    expect(await runner.run(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
  });

  test('a store that is full of calls in flight takes no other, and does when one has ended (R15)', async () => {
    const gate = signal();
    const { tool, contexts } = scripted('idempotent', () => gate.promise);
    const runner = open([tool], { store: new InMemoryDedupeStore({ maxKeys: 1 }) });
    const first = runner.run(tool, {}, { idempotencyKey: 'a' });
    await eventually(() => contexts.length === 1);
    await expect(runner.run(tool, {}, { idempotencyKey: 'b' })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    gate.fire();
    await first;
    expect(await runner.run(tool, {}, { idempotencyKey: 'b' })).toMatchObject({ status: 'success' });
  });
});

describe('a runner that shares its store', () => {
  /** Makes a call end as that of a process that died: claimed, begun, and never heard of again. */
  async function diesWith(tool: AnyTool, { attempts = 1 } = {}) {
    const clock = fakeClock();
    const store = new InMemoryDedupeStore({ clock });
    let key = 'none';
    const run: AnyTool['run'] = (_params, ctx) => {
      key = ctx.callId;
      return new Promise(() => {});
    };
    const dead = createLocalRunner({ tools: [{ ...tool, run }], clock, store });
    void dead.run(tool, { a: 1 }, { idempotencyKey: 'k' }).catch(() => {});
    await clock.advance(0);
    const record = await store.get(key);
    if (record === undefined) throw new Error('the call did not begin');
    const lost = {
      startedAtMs: 1,
      finishedAtMs: 2,
      status: 'error',
      retriable: false,
      errorCode: 'LEASE_LOST',
    } as const;
    // A higher version than the dead runner knows: it can write nothing any more.
    await store.compareAndSet(key, record.version, {
      ...record,
      lockUntilMs: clock.now() + 1_000,
      execution: { attemptCount: attempts, attempts: Array.from({ length: attempts - 1 }, () => lost) },
    });
    const runner = createLocalRunner({ tools: [tool], clock, store });
    return { clock, store, call: () => runner.run(tool, { a: 1 }, { idempotencyKey: 'k' }) };
  }

  test.each(['none', 'idempotent', 'keyed'] as const)(
    'a lost attempt of a tool with effects %s is run again once its lease has ended, and not before',
    async (effects) => {
      const { tool, contexts } = scripted(effects);
      const { clock, call } = await diesWith(tool);
      const result = call();
      await clock.advance(900);
      expect(contexts).toHaveLength(0);
      expect(await clock.until(result)).toMatchObject({
        status: 'success',
        attempts: 2,
        retriedBy: [{ attempt: 1, reasonCode: 'LEASE_LOST' }],
      });
      expect(contexts.map(({ attempt, idempotencyKey }) => [attempt, idempotencyKey])).toEqual([[2, 'k']]);
      expect(contexts[0]?.fence).toBeGreaterThan(1);
    },
  );

  test('a lost attempt of a once tool is of unknown outcome for every caller, and never run again', async () => {
    const { tool, contexts } = scripted('once');
    const { clock, call } = await diesWith(tool);
    const results = await clock.until(Promise.all([call(), call()]));
    for (const result of results) expect(result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await clock.until(call())).toMatchObject({ fromCache: true, error: { code: 'OUTCOME_UNKNOWN' } });
    expect(contexts).toHaveLength(0);
  });

  test('a lost attempt of a tool with a probe is asked after first', async () => {
    for (const [answer, expected, ran] of [
      [
        { state: 'done', result: { output: { found: true } } },
        { status: 'success', output: { content: { found: true } } },
        0,
      ],
      [{ state: 'not-done' }, { status: 'success', output: { content: { run: 1 } } }, 1],
      [{ state: 'unknown' }, { status: 'error', error: { code: 'OUTCOME_UNKNOWN' } }, 0],
    ] as const) {
      const { tool, contexts, answers } = scripted('probe');
      answers.push(answer);
      const { clock, call } = await diesWith(tool);
      expect(await clock.until(call())).toMatchObject(expected);
      expect(contexts).toHaveLength(ran);
    }
  });

  test('a call that crashed three processes is quarantined', async () => {
    const { tool, contexts } = scripted('idempotent');
    const { clock, call } = await diesWith(tool, { attempts: 3 });
    expect(await clock.until(call())).toMatchObject({ status: 'error', error: { code: 'POISONED' } });
    expect(contexts).toHaveLength(0);
  });

  test('two processes with one Redis run a key once, whichever asks', async () => {
    const world = await createWorld();
    const gate = signal();
    const { tool, contexts } = scripted('once', () => gate.promise);
    const runners = [1, 2].map((number) => {
      const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:${number}`, mode: 'fail-fast' });
      onTestFinished(() => redis.disconnect());
      return open([tool], { store: new RedisDedupeStore({ redis, prefix: world.prefix }) });
    });
    const calls = Array.from({ length: 20 }, (_, index) =>
      runners[index % 2]?.run(tool, { a: 1 }, { idempotencyKey: 'k' }),
    );
    await eventually(() => contexts.length > 0);
    gate.fire();
    const results = await within(Promise.all(calls), 30_000, 'the results');
    expect(results.filter((result) => result?.fromCache === false)).toHaveLength(1);
    expect(new Set(results.map((result) => JSON.stringify(result?.output))).size).toBe(1);
    expect(contexts).toHaveLength(1);
  });
});

describe('a runner', () => {
  test('keeps a session for each kind, and refuses a kind that the session is not', async () => {
    const { tool, contexts } = scripted('none');
    const runner = open([tool]);
    await runner.run(tool, {});
    await runner.run(tool, {}, { kind: 'worker' });
    await runner.run(tool, {}, { sessionKey: 'mine', actorId: 'ada' });
    await runner.run(tool, {}, { sessionKey: 'mine', actorId: 'bob' });
    expect(contexts.map(({ sessionKey, actorId }) => `${sessionKey} ${actorId}`)).toEqual([
      'local-main anonymous',
      'local-worker anonymous',
      'mine ada',
      'mine bob',
    ]);
    await expect(runner.run(tool, {}, { sessionKey: 'mine', kind: 'worker' })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'kind' }],
    });
  });

  test('refuses tools of the same name, and settings that are none', () => {
    const { tool } = scripted('none');
    expect(() => createLocalRunner({ tools: [tool, tool] })).toThrow('Two tools are named tools.work_none');
    expect(() => createLocalRunner({ tools: [], settings: { drainMs: -1 } })).toThrow('drainMs');
  });

  test('that closes waits for what runs, and takes nothing new', async () => {
    const begun = signal();
    const gate = signal();
    const { tool } = scripted('once', () => {
      begun.fire();
      return gate.promise;
    });
    const runner = createLocalRunner({ tools: [tool] });
    const running = runner.run(tool, {});
    await begun.promise;
    const closed = runner.close();
    await expect(runner.run(tool, {}, { sessionKey: 'late' })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    gate.fire();
    expect(await running).toMatchObject({ status: 'success' });
    await closed;
  });

  test('that closes without patience leaves no caller waiting, and no call in doubt that was not', async () => {
    const { tool: hanging, contexts } = scripted('once', (ctx) => {
      return new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)));
    });
    const { tool: failing, contexts: failures } = scripted('idempotent', () => {
      throw unavailable();
    });
    const store = new InMemoryDedupeStore();
    const runner = createLocalRunner({ tools: [hanging, failing], store, random: () => 0.99 });
    const running = runner.run(hanging, {}, { sessionKey: 's', idempotencyKey: 'running' });
    const waiting = runner.run(failing, {}, { sessionKey: 's', idempotencyKey: 'waiting' });
    await eventually(async () => {
      const failed = await store.get(failures[0]?.callId ?? 'none');
      return contexts.length === 1 && failed?.execution?.attempts.length === 1;
    });
    await runner.close(0);
    expect(await running).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await waiting).toMatchObject({ status: 'retriable_error', error: { code: 'DRAINED', retriable: true } });
    // Whoever shares the store goes on where this one stopped.
    const next = open([hanging, failing], { store, sleep: async () => {} });
    expect(await next.run(failing, {}, { sessionKey: 's', idempotencyKey: 'waiting' })).toMatchObject({
      status: 'retry_exhausted',
      attempts: 4,
    });
  });
});

describe('runWithToolIdempotency (R38)', () => {
  const key = { tool: 'send_letter', idempotencyKey: 'letter-1', sessionKey: 's', actorId: 'ada' };

  test('executes once for a key, at the same time and later, and replays failures', async () => {
    const store = new InMemoryDedupeStore();
    let sent = 0;
    const send = async () => ({ number: ++sent });
    const results = await Promise.all(Array.from({ length: 25 }, () => runWithToolIdempotency(store, key, send)));
    for (const result of results)
      expect(result).toMatchObject({ status: 'success', output: { content: { number: 1 } } });
    expect(await runWithToolIdempotency(store, key, send)).toMatchObject({ cache: { matchedOn: 'completed' } });
    expect(await runWithToolIdempotency(store, { ...key, params: { to: 'Bob' } }, send)).toMatchObject({
      error: { code: 'IDEMPOTENCY_CONFLICT' },
    });
    expect(await runWithToolIdempotency(store, { ...key, sessionKey: 'other' }, send)).toMatchObject({
      output: { content: { number: 2 } },
    });
    expect(sent).toBe(2);

    let failed = 0;
    const failing = { ...key, idempotencyKey: 'letter-2' };
    const fail = () => {
      failed += 1;
      throw new Error('no stamps');
    };
    for (let index = 0; index < 2; index += 1)
      expect(await runWithToolIdempotency(store, failing, fail)).toMatchObject({
        status: 'error',
        error: { code: 'TOOL_FAILED', message: 'no stamps' },
      });
    expect(failed).toBe(1);
  });

  test('a function that takes longer than it may is aborted', async () => {
    const aborted = signal();
    const wait = (limit: AbortSignal) =>
      new Promise<never>((_resolve, reject) => {
        limit.addEventListener('abort', () => {
          aborted.fire();
          reject(limit.reason as Error);
        });
      });
    const result = await runWithToolIdempotency(new InMemoryDedupeStore(), { ...key, timeoutMs: 30 }, wait);
    expect(result).toMatchObject({ status: 'timeout', error: { code: 'TIMEOUT' } });
    await aborted.promise;
  });
});

test('the next attempt of a local call gets the last checkpoint, and the next call none', async () => {
  const seen: unknown[] = [];
  const { tool } = scripted('idempotent', async (ctx, run) => {
    seen.push(ctx.lastCheckpoint);
    const value = { page: run };
    await ctx.checkpoint(value);
    value.page = 0;
    if (run < 3) throw unavailable();
  });
  const runner = open([tool], { sleep: async () => {} });
  expect((await runner.run(tool, {}, { idempotencyKey: 'one' })).status).toBe('success');
  expect((await runner.run(tool, {}, { idempotencyKey: 'two' })).status).toBe('success');
  expect(seen).toEqual([undefined, { page: 1 }, { page: 2 }, undefined]);
});

test('a checkpoint that is not JSON fails the call with its path', async () => {
  const { tool } = scripted('idempotent', (ctx) => ctx.checkpoint({ at: [Number.NaN] }));
  const { error } = await open([tool]).run(tool, {});
  expect(error).toMatchObject({
    code: 'CHECKPOINT_INVALID',
    message: 'The checkpoint of work_idempotent: value.at[0] must be JSON-serializable; it is NaN.',
  });
});
