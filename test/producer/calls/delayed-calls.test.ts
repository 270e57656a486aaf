import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { readShardState } from '../../../src/shared/store/queues/shard-state.ts';
import { openConnection } from '../../../src/shared/store/redis/connection.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';

const DAY_MS = 24 * 3_600_000;
const PARTITION = { tier: 'workspace', shard: 0 } as const;

function noteTool(onRun: (text: string, atMs: number) => void = () => {}) {
  return defineTool({
    name: 'note',
    version: '1.0.0',
    description: 'Takes a note.',
    tier: 'workspace',
    effects: 'once',
    input: z.object({ text: z.string() }),
    run: async ({ text }, { deadlineAtMs }) => {
      onRun(text, Date.now());
      return { output: { text, deadlineAtMs: deadlineAtMs ?? null } };
    },
  });
}

async function open(options: { readonly workers?: number; readonly settings?: object } = {}) {
  const runs: { readonly text: string; readonly atMs: number }[] = [];
  const note = noteTool((text, atMs) => runs.push({ text, atMs }));
  const fleet = await startFleet({ tools: [note], ...options });
  const phaseOf = async (callId: string) => (await fleet.pawl.read(callId))?.phase;
  /** The only way to a start that is days off: its time is moved in the record, in the queue and, unless `isSigned`, in its request. */
  const bringForward = async (callId: string, isSigned = false) => {
    const keys = fleet.pawl.backend.ledger.keys(PARTITION);
    const record = await fleet.pawl.read(callId);
    const nowMs = await fleet.pawl.backend.ledger.now();
    await fleet.pawl.backend.redis.hset(keys.record(callId), 'notBeforeMs', nowMs);
    const request = (await fleet.pawl.backend.redis.hget(keys.record(callId), 'request')) ?? '';
    const moved = request.replace(/"startAtMs":\d+/, `"startAtMs":${nowMs}`);
    if (!isSigned) await fleet.pawl.backend.redis.hset(keys.record(callId), 'request', moved);
    await fleet.pawl.backend.redis.zadd(keys.inflight, nowMs, callId);
    await fleet.pawl.backend.redis.zadd(keys.job('delayed'), String(nowMs * 0x1000), `${callId}.${record?.generation}`);
    await fleet.pawl.backend.redis.zadd(keys.job('marker'), 0, '0');
  };
  return { ...fleet, note, runs, phaseOf, bringForward };
}

describe('a delayed call', () => {
  test('is there at once, and runs in its time', async () => {
    const { session, note, runs, phaseOf, pawl } = await open();
    const beforeMs = Date.now();
    const { callId, result } = pending(
      await session.submit(note, { text: 'a' }, { startAfterMs: 5_000, timeoutMs: 5_000 }),
    );
    expect(await phaseOf(callId)).toBe('delayed');
    const listed = await pawl.calls.list({ state: 'delayed' });
    expect(listed.map((record) => record.callId)).toEqual([callId]);
    const startAtMs = listed[0]?.request.startAtMs ?? 0;
    // A producer follows Redis' clock, from which this process's may differ by some milliseconds.
    expect(startAtMs - beforeMs).toBeGreaterThanOrEqual(4_900);
    expect(contentOf(await result)).toEqual({ text: 'a', deadlineAtMs: expect.any(Number) });
    expect(runs[0]?.atMs).toBeGreaterThanOrEqual(startAtMs);
    const { deadlineAtMs } = contentOf(await result) as { deadlineAtMs: number };
    expect(Math.abs(deadlineAtMs - startAtMs - 5_000)).toBeLessThan(500);
  });

  test('starts at a time, too, by a string or a Date', async () => {
    const { session, note } = await open();
    const at = new Date(Date.now() + 600);
    const [one, other] = await Promise.all([
      session.call(note, { text: 'a' }, { startAt: at }),
      session.call(note, { text: 'b' }, { startAt: at.toISOString() }),
    ]);
    expect([one.status, other.status]).toEqual(['success', 'success']);
    expect(Date.now()).toBeGreaterThanOrEqual(at.getTime());
  });

  test('waits longer than one timer of Node can, with its deadline behind it', async () => {
    const { session, note, phaseOf, bringForward } = await open();
    const { callId, result } = pending(
      await session.submit(
        note,
        { text: 'far' },
        { startAfterMs: 300 * DAY_MS, timeoutMs: 10_000, idempotencyKey: 'far' },
      ),
    );
    expect(await phaseOf(callId)).toBe('delayed');
    await bringForward(callId);
    expect((await result).status).toBe('success');
  });

  test('starts at its signed start, although a writer to Redis moved its time', async () => {
    const { session, note, pawl, runs, bringForward } = await open();
    const { callId, result } = pending(
      await session.submit(note, { text: 'moved' }, { startAfterMs: 2_000, idempotencyKey: 'moved' }),
    );
    const startAtMs = (await pawl.read(callId))?.request.startAtMs ?? 0;
    await bringForward(callId, true);
    expect((await result).status).toBe('success');
    expect(runs.map(({ atMs }) => atMs >= startAtMs)).toEqual([true]);
  });

  test.each([
    [{ startAfterMs: -1 }, 'startAfterMs', 'from 0 on'],
    [{ startAfterMs: 1.5 }, 'startAfterMs', 'whole number'],
    [{ startAfterMs: Number.NaN }, 'startAfterMs', 'got NaN'],
    [{ startAfterMs: '10' as unknown as number }, 'startAfterMs', 'got "10"'],
    [{ startAfterMs: 366 * DAY_MS }, 'startAfterMs', '365 days'],
    [{ startAt: 'tomorrow' }, 'startAt', 'ISO 8601'],
    [{ startAt: '2027-02-30T00:00:00Z' }, 'startAt', 'ISO 8601'],
    [{ startAt: '2027-01-31T08:00:00' }, 'startAt', 'ISO 8601'],
    [{ startAt: new Date(Number.NaN) }, 'startAt', 'invalid Date'],
    [{ startAt: '2001-01-01T00:00:00Z' }, 'startAt', 'in the past'],
    [{ startAt: new Date(Date.now() + 366 * DAY_MS) }, 'startAt', '365 days'],
    [{ startAfterMs: 5, startAt: '2027-01-31T08:00:00Z' }, 'startAt', 'together'],
    [{ startAfterMs: 5_000, deadlineAtMs: Date.now() + 1_000 }, 'control.deadlineAtMs', 'after the start'],
  ])('is refused with %j: nothing is stored', async (options, path, message) => {
    const { session, note, pawl } = await open({ workers: 0 });
    const submission = await session.submit(note, { text: 'bad' }, options);
    const result = await submission.result;
    expect(result.error).toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path, message: expect.stringContaining(message) }],
    });
    expect(await pawl.calls.list()).toEqual([]);
  });

  test('is one call under its key: the first start holds', async () => {
    const { session, note, runs, pawl } = await open();
    const key = { idempotencyKey: 'k' };
    const first = pending(await session.submit(note, { text: 'a' }, { ...key, startAfterMs: 1_500 }));
    const startAtMs = (await pawl.read(first.callId))?.request.startAtMs;
    const [same, now] = [
      pending(await session.submit(note, { text: 'a' }, { ...key, startAfterMs: 60_000 })),
      pending(await session.submit(note, { text: 'a' }, key)),
    ];
    expect([same.callId, now.callId]).toEqual([first.callId, first.callId]);
    expect((await pawl.read(first.callId))?.request.startAtMs).toBe(startAtMs);
    const other = await session.call(note, { text: 'b' }, { ...key, startAfterMs: 1_500 });
    expect(other.error?.code).toBe('IDEMPOTENCY_CONFLICT');
    expect((await Promise.all([first.result, same.result, now.result])).map(({ status }) => status)).toEqual(
      Array(3).fill('success'),
    );
    // The caller that asks again after the start is not told that its time is over.
    const late = await session.call(note, { text: 'a' }, { ...key, startAt: new Date(startAtMs ?? 0) });
    expect(late).toMatchObject({ status: 'success', fromCache: true });
    expect(runs).toHaveLength(1);
  });

  test('without a key is not the call of the same parameters that is made now', async () => {
    const { session, note, runs } = await open();
    const later = pending(await session.submit(note, { text: 'a' }, { startAfterMs: 60_000 }));
    const now = await session.call(note, { text: 'a' });
    expect(now.callId).not.toBe(later.callId);
    expect(runs).toHaveLength(1);
    expect(await session.cancel(later.callId)).toMatchObject({ settlement: 'cancelled-before-start' });
  });

  test('leaves nothing in the queue when it is cancelled, and its session’s end cancels it', async () => {
    const { session, note, pawl, phaseOf } = await open();
    const one = pending(await session.submit(note, { text: 'a' }, { startAfterMs: 40 * DAY_MS }));
    const two = pending(await session.submit(note, { text: 'b' }, { startAfterMs: 60_000 }));
    await session.cancel(one.callId);
    expect((await one.result).error?.code).toBe('CANCELLED');
    await session.close();
    expect((await two.result).error?.code).toBe('CANCELLED');
    expect(await phaseOf(two.callId)).toBeUndefined();
    const keys = pawl.backend.ledger.keys(PARTITION);
    expect(await pawl.backend.redis.exists(keys.job('delayed'), keys.inflight)).toBe(0);
  });

  test('takes no place among the calls in flight before its start', async () => {
    const { session, note, pawl, world, phaseOf } = await open({ settings: { admission: { maxInflight: 10 } } });
    const later = await Promise.all(
      Array.from({ length: 30 }, (_, at) => session.submit(note, { text: `later ${at}` }, { startAfterMs: 60_000 })),
    );
    expect(later.every(({ kind }) => kind === 'pending')).toBe(true);
    expect((await session.call(note, { text: 'now' })).status).toBe('success');
    expect(await pawl.calls.backlog()).toBe(0);
    expect(await readShardState(pawl.backend.redis, world.prefix, PARTITION)).toMatchObject({
      inflight: 0,
      waiting: 0,
      delayed: 0,
      starting: 30,
      oldestWaitMs: 0,
    });
    expect(await phaseOf(pending(later[0] as never).callId)).toBe('delayed');
  });

  test('waits no time in the queue before its start', async () => {
    const { session, note, events } = await open();
    await session.call(note, { text: 'a' }, { startAfterMs: 3_000 });
    const [begun] = events.filter(({ type }) => type === 'tool_call_start');
    expect(begun).toMatchObject({ waitedMs: expect.any(Number) });
    expect((begun as { readonly waitedMs: number }).waitedMs).toBeLessThan(2_500);
  });

  test('that became due with many others leaves the calls of other sessions their turns', async () => {
    const order: string[] = [];
    const go = signal();
    const tool = defineTool({
      name: 'slow',
      version: '1.0.0',
      description: 'Waits.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.object({ text: z.string() }),
      run: async ({ text }) => {
        if (text === 'first') await go.promise;
        order.push(text);
        return { output: text };
      },
    });
    const { session, pawl } = await startFleet({ tools: [tool], concurrency: 1 });
    const other = await pawl.openSession({ actorId: 'bob' });
    const first = session.call(tool, { text: 'first' });
    await eventually(async () => (await pawl.calls.list({ state: 'running' })).length === 1, {
      what: 'the first call',
    });
    const startAt = new Date(Date.now() + 400);
    const crowd = Array.from({ length: 20 }, (_, at) => session.call(tool, { text: `crowd ${at}` }, { startAt }));
    const rest = [...crowd];
    await eventually(async () => (await pawl.calls.list({ state: 'queued' })).length === 20, {
      what: 'the crowd’s start',
    });
    const own = Array.from({ length: 3 }, (_, at) => other.call(tool, { text: `own ${at}` }));
    rest.push(...own);
    await eventually(async () => (await pawl.calls.list({ state: 'queued' })).length === 23, { what: 'the others' });
    go.fire();
    await Promise.all([first, ...rest]);
    const positions = order.flatMap((text, at) => (text.startsWith('own') ? [at] : []));
    expect(positions.at(-1)).toBeLessThan(12);
  });

  test('starts in its time, although the worker that took its marker was killed', async () => {
    const { startWorker, world, session, note, runs, pawl } = await open({
      workers: 0,
      settings: { stalledIntervalMs: 600 },
    });
    // Redis gives a marker to the worker that has waited the longest.
    const killed = openConnection({ url: world.redisUrl, name: 'killed', mode: 'fail-fast' });
    const taken = killed.bzpopmin(pawl.backend.ledger.keys(PARTITION).job('marker'), 0);
    await startWorker();
    const startAt = new Date(Date.now() + 1_000);
    const result = session.call(note, { text: 'late' }, { startAt });
    expect((await taken)?.[1]).toBe('1');
    killed.disconnect();
    expect((await result).status).toBe('success');
    expect((runs[0]?.atMs ?? 0) - startAt.getTime()).toBeLessThan(3_000);
  });
});
