/** The results of a batch, as another process reads them from the records. */
import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../../src/shared/calls/envelope.ts';
import type { LeasedGroup } from '../../../src/shared/store/groups/groups.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

const { tool } = scripted(
  'pay',
  (_ctx, { status }) => {
    if (typeof status === 'number') throw httpError(status);
    return { output: 'paid' };
  },
  { effects: 'once' },
);
const CALLS = [
  { tool, params: {}, idempotencyKey: 'one' },
  { tool, params: { other: true }, idempotencyKey: 'one' },
  { tool, params: {}, idempotencyKey: 'two', dedupeMode: 'bestEffort' },
  { tool, params: {}, idempotencyKey: 'two', dedupeMode: 'bestEffort' },
  { tool, params: { status: 422 } },
  { tool, params: { status: 500 } },
  { tool: 'unknown', params: {} },
] as const;
const errorsOf = (results: readonly ToolResultEnvelope[]) =>
  results.map(({ status, error }) => [status, error?.code, error?.message, error?.retriable, error?.mayHaveHappened]);

test('a call that was refused for another call with its key keeps its refusal', async () => {
  const { session, pawl } = await startFleet({ tools: [tool] });
  const running = session.batch(CALLS);
  const { batchId } = await running.accepted;
  const results = await running;
  expect(results.map(({ error }) => error?.code)).toEqual([
    undefined,
    'IDEMPOTENCY_CONFLICT',
    undefined,
    'IN_FLIGHT',
    'HTTP_422',
    'HTTP_500',
    'UNKNOWN_TOOL',
  ]);
  expect(errorsOf(await pawl.batches.results({ batchId }))).toEqual(errorsOf(results));
  const { calls, counts } = await pawl.batches.read(batchId);
  expect(counts).toEqual({ total: 7, done: 2, failed: 4, refused: 1 });
  expect(calls[1]).toMatchObject({ state: 'failed', errorCode: 'IDEMPOTENCY_CONFLICT' });
});

test('a batch whose records are gone says what became of each call', async () => {
  const { session, pawl } = await startFleet({ tools: [tool] });
  const running = session.batch(CALLS);
  const { batchId } = await running.accepted;
  const results = await running;
  await pawl.calls.flush();
  const later = await pawl.batches.results({ batchId });
  expect(errorsOf(later).filter((_, index) => index !== 0 && index !== 2)).toEqual(
    errorsOf(results).filter((_, index) => index !== 0 && index !== 2),
  );
  for (const index of [0, 2])
    expect(later[index]).toMatchObject({
      status: 'error',
      toolName: 'pay',
      error: { code: 'RESULT_LOST', message: expect.stringContaining('succeeded'), retriable: false },
    });
});

test('the results of what is no batch are refused by name', async () => {
  const { session, pawl } = await startFleet({ tools: [tool] });
  const plan = session.plan({ nodes: { one: { tool } } });
  const { planId } = await plan.accepted;
  await plan;
  for (const batchId of [planId, 'nothing', ''])
    await expect(pawl.batches.results({ batchId })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: `There is no batch "${batchId}", or it has expired.`,
    });
  const batch = session.batch([{ tool, params: {} }]);
  const { batchId } = await batch.accepted;
  await batch;
  await expect(pawl.plans.ended(batchId)).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

test('the holes of a list refuse themselves alone', async () => {
  const { session } = await startFleet({ tools: [tool] });
  const calls: { tool: typeof tool; params: Record<string, never> }[] = [];
  calls[2] = { tool, params: {} };
  const results = await session.batch(calls);
  expect(results.map(({ error }) => error?.code)).toEqual(['CONTRACT_INVALID', 'CONTRACT_INVALID', undefined]);
});

test('another process that goes on with a batch does not take the call that has the key for its own', async () => {
  const { session, pawl, openProducer } = await startFleet({ tools: [tool] });
  const { callId } = await session.call(tool, { other: true }, { idempotencyKey: 'one' });
  const entries = [{}, { other: true }].map((params) => ({
    envelope: session.envelope(tool, params, { idempotencyKey: 'one' }),
    callId: callId ?? '',
  }));
  // The record of a driver that died behind the write of its first step.
  const fields = new Map(entries.map((_, index) => [`call:${index}`, { callId: callId ?? '' }]));
  const { groups } = pawl.backend;
  const batch = await groups.create({ id: 'left', kind: 'batch', createdAtMs: 0 }, { entries }, fields);
  await groups.advance(batch as LeasedGroup, { release: true });
  const frontDoor = await openProducer();
  const results = await frontDoor.batches.results({ batchId: 'left' });
  expect(results.map(({ error }) => error?.code)).toEqual(['IDEMPOTENCY_CONFLICT', undefined]);
});
