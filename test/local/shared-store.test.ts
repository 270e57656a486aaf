/** What a local runner writes into its store, and what another runner makes of it. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { fakeClock } from '../../src/local/fake-clock.ts';
import { createLocalRunner } from '../../src/local/run-tool.ts';
import type { DedupeRecord } from '../../src/shared/calls/dedupe-store.ts';
import { InMemoryDedupeStore } from '../../src/shared/store/dedupe/dedupe-memory.ts';
import { RedisDedupeStore } from '../../src/shared/store/dedupe/dedupe-redis.ts';
import { openConnection } from '../../src/shared/store/redis/connection.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import { eventually, signal, within } from '../helpers/signal.ts';
import { createWorld } from '../helpers/world.ts';
import { MINUTE_MS, open, openTimeless, scripted, unavailable } from './open-runner.ts';

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
