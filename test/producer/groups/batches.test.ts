import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { openReceiver } from '../../workers/callbacks/receiver.ts';

function doublingTool() {
  const runs: number[] = [];
  const state = { running: 0, most: 0 };
  const tool = defineTool({
    name: 'double',
    version: '1.0.0',
    description: 'Doubles a number.',
    tier: 'read-only',
    input: z.object({ n: z.number() }),
    run: async ({ n }) => {
      runs.push(n);
      state.running += 1;
      state.most = Math.max(state.most, state.running);
      await new Promise((resolve) => setImmediate(resolve));
      state.running -= 1;
      if (n < 0) throw new Error('negative');
      return { output: n * 2 };
    },
  });
  return { tool, runs, state };
}

function gatedTool() {
  const gate = signal();
  const runs: string[] = [];
  const tool = defineTool({
    name: 'gated',
    version: '1.0.0',
    description: 'Waits.',
    tier: 'read-only',
    input: z.object({ id: z.string() }),
    run: async ({ id }, ctx) => {
      runs.push(id);
      await Promise.race([gate.promise, new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))]);
      ctx.signal.throwIfAborted();
      return { output: id };
    },
  });
  return { tool, gate, runs };
}

test('a batch resolves with all results in order, and one that is wrong refuses only itself', async () => {
  const { tool, runs } = doublingTool();
  const { session } = await startFleet({ tools: [tool] });
  const results = await session.batch([
    { tool, params: { n: 1 } },
    { tool: 'double', params: { n: 'two' } },
    { tool, params: { n: -1 }, retryBudget: { maxAttempts: 1 } },
    { tool: 'doubel', params: {} },
    { tool, params: { n: 5 }, idempotencyKey: 'five' },
  ]);
  const [first, invalid, failed, unknown, last] = results;
  expect(results.map(({ toolName }) => toolName)).toEqual(['double', 'double', 'double', 'doubel', 'double']);
  expect(contentOf(first)).toBe(2);
  expect(contentOf(last)).toBe(10);
  expect(invalid).toMatchObject({ status: 'error', error: { code: 'INVALID_PARAMS' } });
  expect(invalid.error?.issues).toMatchObject([{ path: 'calls.1.params.n' }]);
  expect(failed.error?.code).toBe('TOOL_FAILED');
  expect(unknown.error).toMatchObject({ code: 'UNKNOWN_TOOL', issues: [{ path: 'calls.3' }] });
  expect(runs.toSorted()).toEqual([-1, 1, 5]);
});

test('the calls of a batch are ordinary calls, and each key names the call that it names elsewhere', async () => {
  const { tool, runs } = doublingTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  const alone = await session.call(tool, { n: 3 }, { idempotencyKey: 'three' });
  const running = session.batch([
    { tool, params: { n: 3 }, idempotencyKey: 'three' },
    { tool, params: { n: 4 } },
  ]);
  const { batchId, calls } = await running.accepted;
  const [again] = await running;
  expect(again).toMatchObject({ fromCache: true, callId: alone.callId });
  expect(calls[0]).toEqual({ callId: alone.callId });
  expect(runs).toEqual([3, 4]);
  const batch = await pawl.batches.read(batchId);
  expect(batch.state).toBe('done');
  expect(batch.calls.map(({ state }) => state)).toEqual(['done', 'done']);
});

test('a batch has a concurrency of its own', async () => {
  const { tool, state } = doublingTool();
  const { session } = await startFleet({ tools: [tool], concurrency: 8 });
  const results = await session.batch(
    Array.from({ length: 40 }, (_, n) => ({ tool, params: { n } })),
    { concurrency: 3 },
  );
  expect(results.map((result) => contentOf(result))).toEqual(results.map((_, n) => n * 2));
  expect(state.most).toBeLessThanOrEqual(3);
});

test('one cancel ends a batch: calls that run are cancelled, and the others never begin', async () => {
  const { tool, runs } = gatedTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  const running = session.batch(
    ['a', 'b', 'c', 'd'].map((id) => ({ tool, params: { id } })),
    { concurrency: 2 },
  );
  await eventually(() => runs.length === 2, { what: 'two calls that run' });
  await running.cancel();
  const results = await running;
  expect(results.map(({ error }) => error?.code)).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED', 'CANCELLED']);
  expect(runs.toSorted()).toEqual(['a', 'b']);
  expect((await pawl.batches.read((await running.accepted).batchId)).state).toBe('cancelled');
});

test('a signal cancels a batch, also one that was aborted before', async () => {
  const { tool } = gatedTool();
  const { session } = await startFleet({ tools: [tool] });
  const results = await session.batch([{ tool, params: { id: 'a' } }], { signal: AbortSignal.abort() });
  expect(results[0]).toMatchObject({ error: { code: 'CANCELLED' } });
});

test('an empty batch, one that is too large and a wrong concurrency are refused, and nothing is stored', async () => {
  const { tool } = doublingTool();
  const { session, world } = await startFleet({ tools: [tool] });
  const call = { tool, params: { n: 1 } };
  await expect(session.batch([])).rejects.toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'calls' }] });
  await expect(session.batch(Array.from({ length: 1_001 }, () => call))).rejects.toThrow('1 to 1000');
  for (const concurrency of [0, 1.5, 1_001, Number.NaN])
    await expect(session.batch([call], { concurrency })).rejects.toMatchObject({ issues: [{ path: 'concurrency' }] });
  expect((await world.keys()).filter((key) => key.includes('{groups}'))).toEqual([]);
  const large = { tool, params: { n: 'x'.repeat(4_200_000) } as never };
  const [refused] = await session.batch([large]);
  expect(refused.error?.issues).toMatchObject([{ path: 'calls.0.params' }]);
  const [signalled] = await session.batch([{ ...call, signal: new AbortController().signal } as never]);
  expect(signalled?.error?.issues).toMatchObject([{ path: 'calls.0.signal' }]);
});

test('another process goes on with a batch whose process has left, and no call runs twice', async () => {
  const { tool, gate, runs } = gatedTool();
  const { session, openProducer, world } = await startFleet({ tools: [tool] });
  const frontDoor = await openProducer();
  const leaving = await openProducer();
  frontDoor.takeOverGroups();
  const own = await leaving.session(session.key);
  const running = own.batch(
    ['a', 'b', 'c', 'd', 'e'].map((id) => ({ tool, params: { id } })),
    { concurrency: 2 },
  );
  const { batchId } = await running.accepted;
  await eventually(() => runs.length === 2, { what: 'two calls that run' });
  running.catch(() => {});
  await leaving.close();
  gate.fire();
  const results = await frontDoor.batches.results({ batchId });
  expect(results.map((result) => contentOf(result))).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(runs.toSorted()).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect((await world.keys()).filter((key) => key.endsWith('{groups}:open'))).toEqual([]);
});

test('an entry of a batch starts later, and its end is posted; a start that is none refuses only itself', async () => {
  const { tool, runs } = doublingTool();
  const { session, pawl } = await startFleet({ tools: [tool], settings: { allowedHosts: ['127.0.0.1'] } });
  const receiver = await openReceiver();
  const beganMs = Date.now();
  const running = session.batch([
    { tool, params: { n: 1 }, startAfterMs: 700, callbackUrl: receiver.url },
    { tool, params: { n: 2 } },
    { tool, params: { n: 3 }, startAt: 'tomorrow' },
    { tool, params: { n: 4 }, startAt: new Date(beganMs - 60_000) },
  ]);
  const { calls } = await running.accepted;
  const delayed = calls[0] as { readonly callId: string };
  await eventually(async () => (await pawl.read(delayed.callId))?.phase === 'delayed', { what: 'the delayed call' });
  const [first, second, none, past] = await running;
  expect(Date.now() - beganMs).toBeGreaterThanOrEqual(700);
  expect([contentOf(first), contentOf(second)]).toEqual([2, 4]);
  expect(runs).toEqual([2, 1]);
  expect(none.error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'calls.2.startAt' }] });
  expect(past.error).toMatchObject({ code: 'CONTRACT_INVALID' });
  await eventually(() => receiver.received.length === 1);
  expect(JSON.parse(receiver.received[0]?.body ?? '').data.callId).toBe(delayed.callId);
});

test('the same key is the same batch, and other calls under it are a conflict', async () => {
  const { tool, runs } = doublingTool();
  const { session, pawl } = await startFleet({ tools: [tool] });
  const batch = (n: number) =>
    session.batch(
      [
        { tool, params: { n } },
        { tool: 'no', params: {} },
      ],
      { idempotencyKey: 'a' },
    );
  const [first, second] = [batch(1), batch(1)];
  expect(await first.accepted).toEqual(await second.accepted);
  expect([await first, await second].map(([one]) => contentOf(one))).toEqual([2, 2]);
  expect((await batch(1))[1]?.error?.code).toBe('UNKNOWN_TOOL');
  await expect(batch(2)).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
  await expect(session.batch([{ tool, params: { n: 1 } }], { idempotencyKey: '' })).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'idempotencyKey' }],
  });
  const entries = [{ envelope: session.envelope(tool, { n: 3 }, {}) }];
  const ids = await Promise.all([1, 2].map(() => pawl.batches.create({ entries, idempotencyKey: 'a' })));
  expect(ids[0]).toEqual(ids[1]);
  await pawl.batches.results(ids[0] ?? { batchId: '' });
  expect(runs).toEqual([1, 3]);
});
