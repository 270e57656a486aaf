import { expect, test } from 'vitest';
import { z } from 'zod';
import type { Pawl } from '../../../src/producer/client.ts';
import { compensationKey } from '../../../src/shared/calls/compensation.ts';
import type { HookEvent } from '../../../src/shared/calls/hook-events.ts';
import { ToolError } from '../../../src/shared/errors/failure.ts';
import type { CallRecord } from '../../../src/shared/store/calls/call-record.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { Tier } from '../../../src/shared/tools/tool.ts';
import type { ToolResult } from '../../../src/shared/tools/tool-result.ts';
import { contentOf, pending, resultOf, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';

function bookingTool(tier: Tier = 'workspace', failures: readonly Error[] = []) {
  const undone: [string, unknown, string | undefined][] = [];
  const left = [...failures];
  const book = defineTool({
    name: 'book',
    version: '1.0.0',
    description: 'Books a room.',
    tier,
    effects: 'idempotent',
    input: z.object({ room: z.string() }),
    output: z.object({ booking: z.string() }),
    run: ({ room }) => ({ output: { booking: `${room}-1` }, display: `booked ${room}` }),
    compensate: async ({ room }, { output, display }) => {
      const failure = left.shift();
      if (failure !== undefined) throw failure;
      undone.push([room, output, display]);
    },
  });
  return { book, undone };
}

/** The one that undoing a call has. */
async function keyOf(pawl: Pawl, callId: string): Promise<string> {
  return compensationKey((await pawl.calls.readAsItRan(callId)) as CallRecord);
}

test('a call that succeeded is undone once, through the queue, and audited (I18)', async () => {
  const { book, undone } = bookingTool();
  const { session, pawl, audited } = await startFleet({ tools: [book] });
  const { callId, result: booked } = pending(await session.submit('book', { room: 'a' }, { idempotencyKey: 'one' }));
  await booked;
  const results = await Promise.all([session.compensate(callId), session.compensate(callId)]);
  for (const result of results) expect(contentOf(result)).toEqual({ compensated: callId });
  const later = await session.compensate(callId);
  expect(later).toMatchObject({ status: 'success', fromCache: true });
  expect(undone).toEqual([['a', { booking: 'a-1' }, 'booked a']]);
  // The call itself stays what it was, and is replayed as it was.
  expect(contentOf(await session.call('book', { room: 'a' }, { idempotencyKey: 'one' }))).toEqual({ booking: 'a-1' });
  const told = audited.filter((event) => 'compensates' in event && event.compensates === callId);
  expect(told.map(({ type }) => type).sort()).toEqual(['attempt', 'call', 'call', 'call']);
  const again = await pawl.session(session.key);
  await expect(again.compensate(later.callId ?? '')).rejects.toThrow('it is itself a compensation');
});

test('an undoing that fails is retried like any attempt, and can be asked for again (I18)', async () => {
  const failures = [new ToolError('busy', { retriable: true }), new ToolError('no')];
  const { book, undone } = bookingTool('workspace', failures);
  const { session } = await startFleet({ tools: [book], settings: { ttl: { failedMs: 1 } } });
  const { callId, result } = pending(await session.submit('book', { room: 'a' }));
  await result;
  expect(await session.compensate(callId)).toMatchObject({ status: 'error', attempts: 2, error: { message: 'no' } });
  await eventually(async () => (await session.compensate(callId)).status === 'success');
  expect(undone).toHaveLength(1);
});

test('the caller of a compensation learns that its answer was no, and that it came from outside (I18)', async () => {
  const results: ToolResult<unknown>[] = [];
  const declined = defineTool({
    name: 'order',
    version: '1.0.0',
    description: 'Orders, if there is any left.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({}),
    run: () => ({ output: 'none left', success: false, tainted: true }),
    compensate: async (_params, result) => void results.push(result),
  });
  const { session } = await startFleet({ tools: [declined] });
  const { callId = '' } = await session.call(declined, {});
  expect((await session.compensate(callId)).status).toBe('success');
  expect(results).toEqual([{ output: 'none left', success: false, tainted: true }]);
});

test('a call that is forgotten and runs again is undone again (I18)', async () => {
  const { book, undone } = bookingTool();
  const { session, pawl, world } = await startFleet({ tools: [book] });
  const { callId = '' } = await session.call('book', { room: 'a' }, { idempotencyKey: 'one' });
  await session.compensate(callId);
  await pawl.backend.redis.unlink((await world.keys()).filter((key) => key.endsWith(`call:${callId}`)));
  expect(await session.call('book', { room: 'a' }, { idempotencyKey: 'one' })).toMatchObject({
    callId,
    fromCache: false,
  });
  expect(await session.compensate(callId)).toMatchObject({ status: 'success', fromCache: false });
  expect(await session.compensate(callId)).toMatchObject({ status: 'success', fromCache: true });
  expect(undone).toHaveLength(2);
});

test('a hook that rewrites the parameters of each call leaves those of an undoing alone (I18)', async () => {
  const { book, undone } = bookingTool();
  const label = { name: 'label', beforeCall: ({ params }: HookEvent) => ({ params: { room: `${params['room']}!` } }) };
  const { session } = await startFleet({ tools: [book], hooks: [label] });
  const { callId = '' } = await session.call('book', { room: 'a' });
  expect(contentOf(await session.compensate(callId))).toEqual({ compensated: callId });
  expect(undone).toEqual([['a!', { booking: 'a!-1' }, 'booked a!']]);
});

test('an undoing that was cancelled before it began can be asked for again as one that failed (I18)', async () => {
  const { book, undone } = bookingTool();
  const { session, pawl, startWorker } = await startFleet({
    tools: [book],
    workers: 0,
    settings: { ttl: { failedMs: 1 } },
  });
  const worker = await startWorker();
  const { callId = '' } = await session.call('book', { room: 'a' });
  await worker.close();
  const { callId: undoing } = pending(await pawl.submit(await session.compensation(callId)));
  expect(await session.cancel(undoing)).toMatchObject({ settlement: 'cancelled-before-start' });
  expect(await pawl.read(undoing)).toMatchObject({ state: 'cancelled', freeAtMs: expect.any(Number) });
  await startWorker();
  expect(contentOf(await session.compensate(callId))).toEqual({ compensated: callId });
  expect(undone).toHaveLength(1);
});

test('no other call stands where its undoing would: it could be taken for one (I18)', async () => {
  const { book, undone } = bookingTool();
  const { session, pawl } = await startFleet({ tools: [book] });
  const { callId, result } = pending(await session.submit('book', { room: 'a' }));
  await result;
  const idempotencyKey = await keyOf(pawl, callId);
  const second = await session.call('book', { room: 'a' }, { idempotencyKey });
  expect(second.error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'payload.idempotencyKey' }] });
  expect(await session.compensate(callId)).toMatchObject({ status: 'success', fromCache: false });
  expect(undone).toHaveLength(1);
});

test.each<[string, unknown]>([
  ['false', false],
  ['{ success: false }', { success: false }],
])('a compensate that answers %s has not undone the call, and that is named (I18)', async (words, answer) => {
  const book = { ...bookingTool().book, compensate: async () => answer as never };
  const { session } = await startFleet({ tools: [book] });
  const { callId = '' } = await session.call(book, { room: 'a' });
  expect((await session.compensate(callId)).error?.message).toContain(`it returned ${words}.`);
});

test('what did not succeed, has no compensate, or is of another session is not undone (I18)', async () => {
  const { book, undone } = bookingTool();
  const { pawl, session } = await startFleet({ tools: [book, echo] });
  const { callId, result } = pending(await session.submit('book', { room: 'a' }));
  await result;
  const read = pending(await session.submit('echo', { text: 'a' }));
  await read.result;
  expect((await session.compensate(read.callId)).error).toMatchObject({ code: 'CALL_NOT_COMPENSABLE' });
  await expect(session.compensate('w0.unknown')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  const other = await pawl.openSession({});
  await expect(other.compensate(callId)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  // Nor by an envelope made by hand, which the worker does not believe.
  const forged = (params: object, key: string, control = {}) =>
    resultOf(pawl, {
      ...session.envelope('book', params, { idempotencyKey: key }),
      control: { requestTags: [`compensates:${callId}`], ...control },
    });
  expect((await forged({ room: 'b' }, await keyOf(pawl, callId))).error?.code).toBe('CALL_NOT_COMPENSABLE');
  expect((await forged({ room: 'a' }, 'another key')).error?.code).toBe('CALL_NOT_COMPENSABLE');
  expect((await forged({ room: 'a' }, `compensates:${callId}.1`)).error?.code).toBe('CALL_NOT_COMPENSABLE');
  expect(undone).toEqual([]);
});

test('a person who decides on a compensation learns that it is one (A4, I18)', async () => {
  const { book, undone } = bookingTool('elevated');
  const { pawl } = await startFleet({ tools: [book] });
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const decideNext = async () => {
    const [asked] = await eventually(async () => {
      const pendingOnes = await pawl.approvals.list({ state: 'pending' });
      return pendingOnes.length === 1 && pendingOnes;
    });
    const { record, digest } = asked as NonNullable<typeof asked>;
    await pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace' });
    return record.request.reason;
  };
  const { callId, result } = pending(await session.submit('book', { room: 'a' }));
  expect(await decideNext()).not.toContain('undoes');
  await result;
  const undoing = session.compensate(callId);
  expect(await decideNext()).toContain(`it undoes the call ${callId}`);
  expect(contentOf(await undoing)).toEqual({ compensated: callId });
  expect(undone).toHaveLength(1);
});

test('what an approver edited is undone as it ran, and the person who decides on the undoing is shown that (A4, I18)', async () => {
  const { book, undone } = bookingTool('elevated');
  const { pawl, world } = await startFleet({ tools: [book] });
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const approve = async (params?: { room: string }) => {
    const { record, digest } = await eventually(async () => (await pawl.approvals.list({ state: 'pending' }))[0]);
    const { id } = record.request;
    await pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace', ...(params && { params }) });
    return record.request;
  };
  const call = session.call('book', { room: 'a' });
  const { id } = await approve({ room: 'b' });
  const { callId = '', status } = await call;
  expect(status).toBe('success');
  const undoing = session.compensate(callId);
  expect((await approve()).params).toEqual({ room: 'b' });
  expect(contentOf(await undoing)).toEqual({ compensated: callId });
  expect(undone).toEqual([['b', { booking: 'b-1' }, 'booked b']]);
  // Without the approval nobody knows what ran.
  const [record = ''] = (await world.keys()).filter((key) => key.endsWith(`:${id}`));
  await pawl.backend.redis.unlink(record);
  await expect(session.compensate(callId)).rejects.toMatchObject({ code: 'CALL_NOT_COMPENSABLE' });
});

test('a standing approval covers calls and not their compensation, and approving a compensation creates none', async () => {
  const { book, undone } = bookingTool('elevated');
  const { pawl } = await startFleet({ tools: [book] });
  const session = await pawl.openSession({ channel: { kind: 'operator' } });
  const approve = async () => {
    const { record, digest } = await eventually(async () => (await pawl.approvals.list({ state: 'pending' }))[0]);
    await pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace', remember: true });
    return record.request;
  };
  const first = session.call('book', { room: 'a' });
  expect((await approve()).amendment).toBeDefined();
  await first;
  const { callId = '' } = await session.call('book', { room: 'a' });
  const undoing = session.compensate(callId);
  expect((await approve()).amendment).toBeUndefined();
  expect((await undoing).status).toBe('success');
  expect(undone).toHaveLength(1);
  const other = session.call('book', { room: 'b' });
  await approve();
  const { callId: unremembered = '' } = await other;
  const again = session.compensate(unremembered);
  expect((await approve()).reason).toContain('it undoes the call');
  expect((await again).status).toBe('success');
});

test('a writer of Redis changes nothing of what is undone: the parameters are those that ran', async () => {
  const { book, undone } = bookingTool();
  const signingKeys = [{ kid: 'k1', key: 'a key that only this fleet knows' }];
  const { session, pawl } = await startFleet({ tools: [book], settings: { signingKeys } });
  const { ledger, redis } = pawl.backend;
  const bookRoom = async (room: string) => {
    const { callId, result } = pending(await session.submit('book', { room }, { idempotencyKey: room }));
    await result;
    return { callId, record: ledger.access.callKeys(callId).record(callId) };
  };
  const [cheap, dear] = [await bookRoom('cheap'), await bookRoom('dear')];
  const stored = (await redis.hget(cheap.record, 'request')) ?? '';
  const other = await redis.hgetall(dear.record);
  const forgeries: Record<string, string>[] = [
    { request: stored.replace('cheap', 'forged') },
    { request: other['request'] ?? '' },
    { request: other['request'] ?? '', signature: other['signature'] ?? '', ended: other['ended'] ?? '' },
  ];
  const before = await redis.hgetall(cheap.record);
  for (const forgery of forgeries) {
    await redis.hset(cheap.record, { ...before, ...forgery });
    await expect(session.compensate(cheap.callId)).rejects.toMatchObject({ code: 'SIGNATURE_INVALID' });
  }
  expect(undone).toEqual([]);
  await redis.hset(cheap.record, before);
  expect(contentOf(await session.compensate(cheap.callId))).toEqual({ compensated: cheap.callId });
  expect(undone.map(([room]) => room)).toEqual(['cheap']);
});

test('with keys, a call whose tool has no compensate is as little undone as a compensation, and no forgery (I18)', async () => {
  const { book } = bookingTool();
  const signingKeys = [{ kid: 'k1', key: 'a key that only this fleet knows' }];
  const { session } = await startFleet({ tools: [book, echo], settings: { signingKeys } });
  const { callId: read = '' } = await session.call('echo', { text: 'a' });
  const { callId: booked = '' } = await session.call(book, { room: 'a' });
  const { callId: undone = '' } = await session.compensate(booked);
  for (const [callId, why] of [
    [read, 'its tool had no compensate when it ran'],
    [undone, 'it is itself a compensation'],
  ] as const) {
    const message = `Call ${callId} cannot be undone: ${why}.`;
    await expect(session.compensate(callId)).rejects.toMatchObject({ code: 'CALL_NOT_COMPENSABLE', message });
  }
});

test('with keys, a call that an outside system completed is undone, too', async () => {
  let token = '';
  const undone: string[] = [];
  const order = defineTool({
    name: 'order',
    version: '1.0.0',
    description: 'Orders a room.',
    tier: 'system',
    effects: 'once',
    input: z.object({ room: z.string() }),
    output: z.object({ order: z.number() }),
    run: (_params, ctx) => {
      token = ctx.completionToken();
      return ctx.pending({ expiresInMs: 60_000 });
    },
    compensate: async ({ room }) => void undone.push(room),
  });
  const signingKeys = [{ kid: 'k1', key: 'a key that only this fleet knows' }];
  const { session, pawl } = await startFleet({ tools: [order], settings: { signingKeys } });
  const { callId, result } = pending(await session.submit('order', { room: 'a' }, { idempotencyKey: 'one' }));
  await eventually(async () => (await pawl.read(callId))?.phase === 'pending', { what: 'the pending call' });
  await pawl.complete(token, { status: 'success', output: { order: 1 } });
  expect(contentOf(await result)).toEqual({ order: 1 });
  expect(contentOf(await session.compensate(callId))).toEqual({ compensated: callId });
  expect(undone).toEqual(['a']);
});
