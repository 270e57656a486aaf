import { describe, expect, test, vi } from 'vitest';
import type { ToolResultEnvelope } from '../../../src/shared/calls/envelope.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import type { ProducerEvent } from '../../../src/shared/telemetry/call-events.ts';
import { producerLine } from '../../../src/shared/telemetry/log-events.ts';
import { uuidv7 } from '../../../src/shared/util/time.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { gated, httpError, scripted } from '../../helpers/tools.ts';

describe('TR-2: the same key while the call is in flight', () => {
  const start = async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool] });
    const first = pending(await fleet.session.submit(gate.tool, { a: 1 }, { idempotencyKey: 'k' }));
    await gate.arrived();
    return { gate, fleet, first };
  };

  test('enforced: the second caller waits for the same outcome, and nothing runs twice', async () => {
    const { gate, fleet, first } = await start();
    const second = pending(await fleet.session.submit(gate.tool, { a: 1 }, { idempotencyKey: 'k' }));
    expect(second.callId).toBe(first.callId);
    gate.open();
    const [one, two] = await Promise.all([first.result, second.result]);
    expect(one).toMatchObject({ status: 'success', fromCache: false });
    expect(two).toMatchObject({
      status: 'success',
      fromCache: true,
      requestId: second.requestId,
      cache: { matchedOn: 'inflight', keyFingerprint: first.callId },
    });
    expect(JSON.stringify(two.output)).toBe(JSON.stringify(one.output));
    expect(gate.contexts).toHaveLength(1);
  });

  test('enforced: a caller in another process waits for it as well', async () => {
    const { gate, fleet, first } = await start();
    const other = await fleet.openProducer();
    const session = await other.session(fleet.session.key);
    const second = pending(await session.submit(gate.tool, { a: 1 }, { idempotencyKey: 'k' }));
    gate.open();
    expect((await second.result).output).toEqual((await first.result).output);
    expect(gate.contexts).toHaveLength(1);
  });

  test('bestEffort: refused at once as IN_FLIGHT, naming the call', async () => {
    const { gate, fleet, first } = await start();
    const result = await fleet.session.call(gate.tool, { a: 1 }, { idempotencyKey: 'k', dedupeMode: 'bestEffort' });
    expect(result).toMatchObject({
      status: 'error',
      callId: first.callId,
      error: { code: 'IN_FLIGHT', retriable: true, terminal: false, message: expect.stringContaining(first.callId) },
    });
    gate.open();
    expect((await first.result).status).toBe('success');
  });

  test('disabled: runs by itself', async () => {
    const gate = gated('gate', { tier: 'read-only', effects: 'none' });
    const fleet = await startFleet({ tools: [gate.tool] });
    const options = { idempotencyKey: 'k', dedupeMode: 'disabled' } as const;
    const calls = [fleet.session.call(gate.tool, {}, options), fleet.session.call(gate.tool, {}, options)];
    await gate.arrived(2);
    gate.open();
    const [one, two] = await Promise.all(calls);
    expect([one?.fromCache, two?.fromCache]).toEqual([false, false]);
    expect(one?.callId).not.toBe(two?.callId);
  });

  test('a caller who joins with a shorter deadline stops waiting, and does not end the call of the other', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], workers: 0 });
    const first = pending(await fleet.session.submit(gate.tool, {}, { idempotencyKey: 'k' }));
    const joined = await fleet.session.call(gate.tool, {}, { idempotencyKey: 'k', deadlineAtMs: Date.now() + 20 });
    expect(joined).toMatchObject({ status: 'timeout', callId: first.callId, error: { code: 'DEADLINE_EXCEEDED' } });
    gate.open();
    await fleet.startWorker();
    expect((await first.result).status).toBe('success');
  });
});

describe('equal calls of one moment', () => {
  /** Makes the calls at once; returns their results, and how many claims Redis was sent. */
  const atOnce = async (fleet: Fleet, calls: () => Promise<ToolResultEnvelope>[]) => {
    const claims = vi.spyOn(fleet.pawl.backend.ledger, 'claim');
    const results = await Promise.all(calls());
    return { results, claims: claims.mock.calls.length };
  };

  test('share one claim: one runs, and each of the others has its own copy and its own record', async () => {
    const { tool, contexts } = scripted('once', () => ({ output: { n: 1 } }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool] });
    const call = () => fleet.session.call(tool, { a: 1 }, { idempotencyKey: 'k' });
    const { results, claims } = await atOnce(fleet, () => Array.from({ length: 50 }, call));
    expect(claims).toBe(1);
    expect(contexts).toHaveLength(1);
    expect(results.filter(({ fromCache }) => !fromCache)).toHaveLength(1);
    expect(new Set(results.map(({ callId }) => callId)).size).toBe(1);
    expect(new Set(results.map(({ requestId }) => requestId)).size).toBe(50);
    expect(new Set(results.map(({ output }) => output?.content)).size).toBe(50);
    const records = await fleet.pawl.audit({ type: 'call' });
    expect(records.filter(({ record }) => record['answer'] === 'merged')).toHaveLength(49);
  });

  test('share the answer of a call that has ended, each with its own copy', async () => {
    const { tool, contexts } = scripted('once', () => ({ output: { n: 1 } }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool] });
    await fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    const other = await fleet.openProducer();
    const session = await other.session(fleet.session.key);
    const call = () => session.call(tool, {}, { idempotencyKey: 'k' });
    const { results, claims } = await atOnce({ ...fleet, pawl: other }, () => Array.from({ length: 20 }, call));
    expect(claims).toBe(1);
    expect(contexts).toHaveLength(1);
    expect(results.every(({ status, cache }) => status === 'success' && cache?.matchedOn === 'completed')).toBe(true);
    expect(new Set(results.map(({ output }) => output?.content)).size).toBe(20);
  });

  test('with other parameters, another mode or a refusal are answered one by one', async () => {
    const { tool, contexts } = scripted('once', () => ({ output: 1 }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0, settings: { admission: { maxInflight: 10 } } });
    const call = (a: number, dedupeMode?: 'bestEffort') =>
      fleet.session.call(tool, { a }, { idempotencyKey: 'k', ...(dedupeMode && { dedupeMode }) });
    const { results } = await atOnce(fleet, () => [
      call(1),
      call(2),
      call(2),
      call(1, 'bestEffort'),
      fleet.startWorker().then(() => call(1)),
    ]);
    const codes = results.map(({ status, error }) => error?.code ?? status);
    expect(codes).toEqual(['success', 'IDEMPOTENCY_CONFLICT', 'IDEMPOTENCY_CONFLICT', 'IN_FLIGHT', 'success']);
    expect(contexts).toHaveLength(1);
  });

  test('are each refused when their tier accepts no more, and each fail when Redis is away', async () => {
    const { tool } = scripted('once', () => ({ output: 1 }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0, settings: { admission: { maxInflight: 10 } } });
    await Promise.all(Array.from({ length: 10 }, (_, a) => fleet.session.submit(tool, { a })));
    const call = () => fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    const { results } = await atOnce(fleet, () => [call(), call(), call()]);
    expect(results.map(({ error }) => error?.code)).toEqual(Array(3).fill('OVERLOADED'));
    vi.spyOn(fleet.pawl.backend.ledger, 'claim').mockRejectedValue(new PawlError('BACKEND_UNAVAILABLE', 'away'));
    const failed = await Promise.allSettled([call(), call(), call()]);
    expect(failed.map((each) => each.status === 'rejected' && each.reason)).toEqual(
      Array(3).fill(expect.objectContaining({ code: 'BACKEND_UNAVAILABLE' })),
    );
  });
});

describe('TR-3: the same key after the end', () => {
  test('is answered from the ledger: byte for byte, with its age and the call’s name', async () => {
    const { tool, contexts } = scripted('count', (ctx, params) => ({
      output: { b: [1e21, -0, 'ü\u2028'], a: params, fence: ctx.fence },
      display: 'counted',
      artifacts: [{ kind: 'other', reference: 'x' }],
    }));
    const fleet = await startFleet({ tools: [tool] });
    const first = await fleet.session.call(tool, { a: 1 }, { idempotencyKey: 'k' });
    const again = await fleet.session.call(tool, { a: 1 }, { idempotencyKey: 'k' });
    const elsewhere = await (await (await fleet.openProducer()).session(fleet.session.key)).call(
      tool,
      { a: 1 },
      { idempotencyKey: 'k' },
    );
    for (const replay of [again, elsewhere]) {
      expect(replay).toMatchObject({ status: 'success', fromCache: true, callId: first.callId, attempts: 1 });
      expect(replay.cache).toEqual({
        matchedOn: 'completed',
        ageMs: expect.any(Number),
        keyFingerprint: first.callId,
      });
      expect(replay.cache?.ageMs).toBeGreaterThanOrEqual(0);
      expect(JSON.stringify(replay.output)).toBe(JSON.stringify(first.output));
      expect(replay.requestId).not.toBe(first.requestId);
    }
    expect(contexts).toHaveLength(1);
  });

  test('a call whose end a producer has seen is answered by its record alone, and runs again when that is gone', async () => {
    const { tool, contexts } = scripted('count', () => ({ output: 'x' }));
    const fleet = await startFleet({ tools: [tool] });
    const call = () => fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    const { callId = '' } = await call();
    const { ledger, redis } = fleet.pawl.backend;
    const claims = vi.spyOn(ledger, 'claim');
    expect(await call()).toMatchObject({ fromCache: true, callId });
    expect(claims).not.toHaveBeenCalled();
    await redis.del(ledger.keys({ tier: 'workspace', shard: 0 }).record(callId));
    expect(await call()).toMatchObject({ fromCache: false, callId });
    expect(claims).toHaveBeenCalledTimes(1);
    expect(contexts).toHaveLength(2);
  });

  test('R12: a failure is replayed as well; bestEffort runs a retriable one again', async () => {
    const { tool, contexts } = scripted(
      'down',
      () => {
        throw httpError(503);
      },
      { retry: { maxAttempts: 1 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    const call = (dedupeMode?: 'bestEffort') =>
      fleet.session.call(tool, {}, { idempotencyKey: 'k', ...(dedupeMode === undefined ? {} : { dedupeMode }) });
    expect(await call()).toMatchObject({ status: 'retry_exhausted', fromCache: false });
    expect(await call()).toMatchObject({
      status: 'retry_exhausted',
      fromCache: true,
      cache: { matchedOn: 'completed' },
    });
    expect(contexts).toHaveLength(1);
    expect(await call('bestEffort')).toMatchObject({ status: 'retry_exhausted', fromCache: false });
    expect(contexts).toHaveLength(2);
  });

  test('a call that runs again is not answered with the end of its first run', async () => {
    let down = true;
    const { tool } = scripted(
      'recovering',
      () => {
        if (down) throw httpError(503);
        return { output: 'up' };
      },
      { retry: { maxAttempts: 1 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    const options = { idempotencyKey: 'k', dedupeMode: 'bestEffort' } as const;
    const first = pending(await fleet.session.submit(tool, {}, options));
    first.stop();
    const watcher = await fleet.openProducer();
    expect((await watcher.result(first.callId))?.status).toBe('retry_exhausted');
    // The event of the first end has reached the first producer as well once a later call's has.
    await fleet.session.call(tool, {}, { idempotencyKey: 'later' });
    down = false;
    expect(await fleet.session.call(tool, {}, options)).toMatchObject({ status: 'success', fromCache: false });
  });
});

describe('TR-4: the same key with other parameters', () => {
  test('is a conflict that names the first call, and nothing runs', async () => {
    const { tool, contexts } = scripted('count', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool] });
    const first = await fleet.session.call(tool, { a: 1 }, { idempotencyKey: 'k' });
    for (const dedupeMode of ['enforced', 'bestEffort'] as const) {
      const result = await fleet.session.call(tool, { a: 2 }, { idempotencyKey: 'k', dedupeMode });
      expect(result).toMatchObject({
        status: 'error',
        callId: first.callId,
        error: { code: 'IDEMPOTENCY_CONFLICT', terminal: true, message: expect.stringContaining(first.callId ?? '?') },
      });
    }
    expect(contexts).toHaveLength(1);
    expect(fleet.events).toContainEqual(expect.objectContaining({ type: 'refused', code: 'IDEMPOTENCY_CONFLICT' }));
  });

  test('with the policy `independent` it is a call of its own, which is replayed under the same key and parameters', async () => {
    const { tool, contexts } = scripted('count', (_ctx, params) => ({ output: params }));
    const fleet = await startFleet({ tools: [tool], settings: { tools: { count: { onConflict: 'independent' } } } });
    const call = (a: number) => fleet.session.call(tool, { a }, { idempotencyKey: 'k' });
    expect(contentOf(await call(1))).toEqual({ a: 1 });
    expect(contentOf(await call(2))).toEqual({ a: 2 });
    expect(await call(2)).toMatchObject({ fromCache: true, output: { content: { a: 2 } } });
    expect(await call(1)).toMatchObject({ fromCache: true, output: { content: { a: 1 } } });
    expect(contexts).toHaveLength(2);
  });

  test.each(['refuse', 'independent'] as const)(
    'is an alarm, counted and logged, with the policy `%s` (R17)',
    async (onConflict) => {
      const { tool } = scripted('count', () => ({ output: null }));
      const fleet = await startFleet({ tools: [tool], settings: { tools: { count: { onConflict } } } });
      const first = await fleet.session.call(tool, { a: 1 }, { idempotencyKey: 'k' });
      await fleet.session.call(tool, { a: 2 }, { idempotencyKey: 'k' });
      const conflicts = fleet.events.filter((event) => event.type === 'accepted' && event.answer === 'conflict');
      expect(conflicts).toMatchObject([{ callId: first.callId }]);
      const hits = [...fleet.pawl.metrics.series()].filter(([name]) => name.includes('conflict'));
      expect(hits).toEqual([[expect.stringContaining('idempotency_hits'), 1]]);
      expect(producerLine(conflicts[0] as ProducerEvent)).toMatchObject({
        level: 'warn',
        fields: { callId: first.callId, errorCode: 'IDEMPOTENCY_CONFLICT' },
      });
    },
  );

  test('fields that change from try to try are no other parameters (R9)', async () => {
    const { tool, contexts } = scripted('count', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool] });
    for (const retryCount of [0, 1])
      await fleet.session.call(tool, { a: 1, retryCount, clientTs: retryCount }, { idempotencyKey: 'k' });
    expect(contexts).toHaveLength(1);
  });
});

describe('ruling 3: calls without a key', () => {
  test('merge while one is in flight, and run again afterwards: a file read twice is read twice', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool] });
    const call = () => fleet.session.submit(gate.tool, { path: 'a.txt' });
    const first = pending(await call());
    await gate.arrived();
    const merged = pending(await call());
    expect(merged.callId).toBe(first.callId);
    gate.open();
    expect((await first.result).fromCache).toBe(false);
    expect((await merged.result).cache?.matchedOn).toBe('inflight');
    const later = pending(await call());
    expect((await later.result).fromCache).toBe(false);
    expect(gate.contexts).toHaveLength(2);
  });

  test.each([
    ['toolCallId', { toolCallId: 'call_7' }],
    ['requestId', { requestId: uuidv7() }],
  ])('the same %s replays the same call', async (_name, options) => {
    const { tool, contexts } = scripted('count', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool] });
    await fleet.session.call(tool, { a: 1 }, options);
    expect((await fleet.session.call(tool, { a: 1 }, options)).cache?.matchedOn).toBe('completed');
    expect(contexts).toHaveLength(1);
  });

  test('PAWL_DERIVED_REPLAY=always replays equal parameters', async () => {
    const { tool, contexts } = scripted('count', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool], settings: { reliability: { derivedReplay: 'always' } } });
    await fleet.session.call(tool, { a: 1, b: 2 });
    expect((await fleet.session.call(tool, { b: 2, a: 1 })).cache?.matchedOn).toBe('completed');
    expect((await fleet.session.call(tool, { a: 2 })).fromCache).toBe(false);
    expect(contexts).toHaveLength(2);
  });

  test('R33: with derivation off they never merge', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], settings: { reliability: { deriveKeys: 'off' } } });
    const calls = [fleet.session.call(gate.tool, {}), fleet.session.call(gate.tool, {})];
    await gate.arrived(2);
    gate.open();
    expect((await Promise.all(calls)).map((result) => result.fromCache)).toEqual([false, false]);
  });

  test('R10: the global scope shares reads among sessions, and only reads', async () => {
    const read = scripted('read_rate', () => ({ output: null }), { tier: 'read-only', effects: 'none' });
    const write = scripted('write_rate', () => ({ output: null }));
    const settings = { tools: { read_rate: { scope: 'global' }, write_rate: { scope: 'global' } } } as const;
    const fleet = await startFleet({ tools: [read.tool, write.tool], settings });
    for (const session of [fleet.session, await fleet.pawl.openSession({ actorId: 'bob' })]) {
      await session.call(read.tool, {}, { idempotencyKey: 'k' });
      await session.call(write.tool, {}, { idempotencyKey: 'k' });
    }
    expect([read.contexts.length, write.contexts.length]).toEqual([1, 2]);
  });
});
