import { describe, expect, test } from 'vitest';
import type { CallOptions } from '../../../src/producer/calls/call-envelope.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, scripted } from '../../helpers/tools.ts';

/** Leaves a call of a `once` tool whose attempt began and left no record. */
async function unknownOutcome(tool: AnyTool, options: CallOptions = {}) {
  const fleet = await startFleet({ tools: [tool], workers: 0 });
  const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k', ...options }));
  const { callId } = submission;
  const record = await fleet.pawl.read(callId);
  const job = { callId, generation: record?.generation ?? '', session: fleet.session.key };
  await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
  await fleet.startWorker();
  expect((await submission.result).error?.code).toBe('OUTCOME_UNKNOWN');
  return { fleet, callId };
}

describe('resolving an unknown outcome', () => {
  test('as succeeded: the answer is replayed', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    expect(await fleet.pawl.resolve(callId, { as: 'succeeded', output: { receipt: 7 } })).toMatchObject({
      state: 'done',
    });
    const replay = await fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    expect(replay).toMatchObject({
      fromCache: true,
      output: { content: { receipt: 7 }, metadata: { resolved: true } },
    });
    expect(contexts).toHaveLength(0);
    await expect(fleet.pawl.resolve(callId, { as: 'failed' })).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
  });

  test('as failed: the failure is replayed', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    expect(await fleet.pawl.resolve(callId, { as: 'failed' })).toMatchObject({ state: 'failed' });
    const replay = await fleet.session.call(tool, {}, { idempotencyKey: 'k' });
    expect(replay).toMatchObject({ fromCache: true, error: { code: 'TOOL_FAILED' } });
  });

  test('as retry: it runs, and who waits by ID gets the new end, not the old one', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    await fleet.pawl.resolve(callId, { as: 'retry' });
    expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'paid' } });
    expect(contexts.map(({ fence }) => fence)).toEqual([3]);
  });

  test('as retry after its deadline: that was of the caller who has given it up, and it runs', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const deadlineAtMs = Date.now() + 3_000;
    const { fleet, callId } = await unknownOutcome(tool, { deadlineAtMs });
    const { pawl } = fleet;
    await eventually(async () => (await pawl.backend.ledger.now()) > deadlineAtMs, { what: 'the deadline' });
    await pawl.resolve(callId, { as: 'retry' });
    expect(await pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'paid' } });
    expect(contexts.map((context) => context.deadlineAtMs)).toEqual([undefined]);
  });

  test('as retry in a closed session: it is refused, with a dry run too, and the other resolutions still hold', async () => {
    const { tool, contexts } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const { fleet, callId } = await unknownOutcome(tool);
    const { pawl, session } = fleet;
    await session.close();
    await expect(pawl.resolve(callId, { as: 'retry' })).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
    for (const dryRun of [true, false])
      expect(await pawl.calls.resolveMany({ as: 'retry', reason: 'a test', filter: {}, dryRun })).toEqual({
        matched: 1,
        started: 0,
        skipped: [{ callId, code: 'SESSION_CLOSED' }],
      });
    expect(await pawl.resolve(callId, { as: 'failed' })).toMatchObject({ state: 'failed' });
    expect(contexts).toEqual([]);
  });

  test('other calls cannot be resolved', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const { callId = '' } = await session.call(echo, { text: 'x' });
    for (const resolution of [{ as: 'succeeded' }, { as: 'failed' }, { as: 'retry' }] as const)
      await expect(pawl.resolve(callId, resolution)).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
    await expect(pawl.resolve('nonsense', { as: 'failed' })).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});
