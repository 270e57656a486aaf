import { describe, expect, test } from 'vitest';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../../helpers/tools.ts';

describe('the four ways a cancellation ends', () => {
  test('cancelled-before-start, and it is replayed', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: null }));
    const { session, pawl, startWorker } = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await session.submit(tool, {}, { idempotencyKey: 'k' }));
    expect(await pawl.cancel(submission.callId)).toMatchObject({
      settlement: 'cancelled-before-start',
      result: { error: { code: 'CANCELLED' } },
    });
    expect((await submission.result).error?.code).toBe('CANCELLED');
    await startWorker();
    expect(await session.call(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
    expect(contexts).toHaveLength(0);
  });

  test.each([
    ['cancelled', 'none', 'read-only'],
    ['unsettled', 'once', 'workspace'],
    ['unsettled', 'idempotent', 'workspace'],
  ] as const)('%s: a running tool with effects %s', async (settlement, effects, tier) => {
    const gate = gated('gate', { effects, tier });
    const { session, openProducer } = await startFleet({ tools: [gate.tool] });
    const submission = pending(await session.submit(gate.tool, {}));
    await gate.arrived();
    const canceller = await openProducer();
    expect(await canceller.cancel(submission.callId)).toMatchObject({ settlement });
    expect(await submission.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' }, attempts: 1 });
    expect(gate.contexts[0]?.signal.aborted).toBe(true);
  });

  test.each([
    ['cancelled', 'idempotent', 'workspace', 429],
    ['cancelled', 'none', 'read-only', 503],
    ['unsettled', 'idempotent', 'workspace', 503],
  ] as const)('%s: a call between two attempts, with effects %s in the tier %s, after HTTP %i', async (...row) => {
    const [settlement, effects, tier, status] = row;
    const down = () => {
      throw httpError(status, { retryAfterMs: 20_000 });
    };
    const { tool, contexts } = scripted('down', down, { effects, tier });
    const { session, pawl } = await startFleet({ tools: [tool] });
    const submission = pending(await session.submit(tool, {}));
    await eventually(async () => (await pawl.read(submission.callId))?.phase === 'waiting-retry');
    expect(await pawl.cancel(submission.callId)).toMatchObject({ settlement, result: { attempts: 1 } });
    expect(contexts).toHaveLength(1);
  });

  test('unsettled: a call whose attempt was lost, and which waits for a worker that has its tool', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const { callId } = await passedOn(fleet, pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' })));
    expect(await fleet.pawl.cancel(callId)).toMatchObject({ settlement: 'unsettled', result: { attempts: 1 } });
  });

  test('the deadline of such a call leaves its outcome unknown', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const deadlineAtMs = Date.now() + 3_000;
    const asked = { idempotencyKey: 'k', deadlineAtMs };
    const submission = await passedOn(fleet, pending(await fleet.session.submit(tool, {}, asked)));
    expect(await submission.result).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await fleet.pawl.resolve(submission.callId, { as: 'succeeded' })).toMatchObject({ state: 'done' });
  });

  test('too-late, with the outcome; and an unknown call is a typed error', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const { callId = '' } = await session.call(echo, { text: 'x' });
    expect(await pawl.cancel(callId)).toMatchObject({ settlement: 'too-late', result: { status: 'success' } });
    await expect(pawl.cancel('nonsense')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});

/** Its worker died in the middle, and another one that does not have its tool has put it aside. */
async function passedOn({ pawl, session }: Fleet, submission: ReturnType<typeof pending>) {
  const { callId } = submission;
  const { ledger } = pawl.backend;
  const job = { callId, generation: (await pawl.read(callId))?.generation ?? '', session: session.key };
  await ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
  const taken = await ledger.begin(job, { workerId: 'other', leaseMs: 1_000, token: 'other' });
  if (taken.kind !== 'started') throw new Error(`the call did not begin: ${taken.kind}`);
  await ledger.postpone(callId, taken.fence, { phase: 'queued', attempts: taken.earlierAttempts, delayMs: 60_000 });
  return submission;
}
