/** How long a call that failed is found, and when its key runs again. */
import { describe, expect, test } from 'vitest';
import { uuidv7 } from '../../../src/shared/util/time.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { gated, scripted } from '../../helpers/tools.ts';

const DAY_MS = 24 * 3_600_000;
const KEY = { idempotencyKey: 'k' };

/** What a call can fail of. Each answers the ID of a call under the key, and leaves a tool that succeeds the next time. */
const failures: Readonly<
  Record<string, (settings: object) => Promise<{ fleet: Fleet; tool: string; callId: string }>>
> = {
  async 'its tool refused it'(settings) {
    const { tool } = scripted('pay', ({ attempt }, { first }) =>
      first === true && attempt === 1 ? Promise.reject(new Error('no funds')) : { output: 'paid' },
    );
    const fleet = await startFleet({ tools: [tool], settings });
    const { callId = '' } = await fleet.session.call('pay', { first: true }, KEY);
    return { fleet, tool: 'pay', callId };
  },
  async 'it ran out of time'(settings) {
    const gate = gated('pay');
    const fleet = await startFleet({ tools: [gate.tool], settings });
    const { callId = '' } = await fleet.session.call(
      'pay',
      { first: true },
      { ...KEY, timeoutMs: 20, retryBudget: { maxAttempts: 1 } },
    );
    gate.open();
    return { fleet, tool: 'pay', callId };
  },
  async 'its time was over before it began'(settings) {
    const { tool } = scripted('pay', () => ({ output: 'paid' }));
    const fleet = await startFleet({ tools: [tool], settings, workers: 0 });
    const deadlineAtMs = (await fleet.pawl.backend.ledger.now()) + 50;
    const { callId = '' } = await fleet.session.call('pay', { first: true }, { ...KEY, deadlineAtMs });
    await fleet.startWorker();
    return { fleet, tool: 'pay', callId };
  },
  async 'an operator resolved it as failed'(settings) {
    const gate = gated('pay', { effects: 'once' });
    const fleet = await startFleet({ tools: [gate.tool], settings });
    const { callId, result } = pending(await fleet.session.submit('pay', { first: true }, KEY));
    await gate.arrived();
    await fleet.session.cancel(callId);
    await result;
    await fleet.pawl.resolve(callId, { as: 'failed' });
    gate.open();
    return { fleet, tool: 'pay', callId };
  },
  async 'a person denied it'(settings) {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { tier: 'elevated' });
    const fleet = await startFleet({ tools: [tool], settings });
    const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const { callId, result } = pending(await session.submit('pay', { first: true }, KEY));
    const waiting = await eventually(async () => (await fleet.pawl.approvals.list({ state: 'pending' }))[0]);
    await fleet.pawl.approvals.decide(waiting.record.request.id, {
      decision: 'deny',
      digest: waiting.digest,
      by: 'grace',
    });
    await result;
    return { fleet: { ...fleet, session }, tool: 'pay', callId };
  },
  async 'no person decided in time'(settings) {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { tier: 'elevated' });
    const fleet = await startFleet({ tools: [tool], settings: { ...settings, policy: { approvalLimitMs: 100 } } });
    const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const { callId = '' } = await session.call('pay', { first: true }, KEY);
    return { fleet: { ...fleet, session }, tool: 'pay', callId };
  },
};

function fail(why: string, settings: object) {
  const failing = failures[why];
  if (failing === undefined) throw new Error(why);
  return failing(settings);
}

describe('a call that failed', () => {
  test.each(Object.keys(failures))(
    'because %s is found as long as a success, and replayed until its key is free',
    async (why) => {
      const { fleet, tool, callId } = await fail(why, {});
      const record = await fleet.pawl.read(callId);
      expect(record?.state).toBe('failed');
      expect((record?.expiresAtMs ?? 0) - (record?.updatedAtMs ?? 0)).toBe(DAY_MS);
      expect((record?.freeAtMs ?? 0) - (record?.updatedAtMs ?? 0)).toBe(300_000);
      expect(await fleet.session.call(tool, { first: true }, KEY)).toMatchObject({ callId, fromCache: true });
      expect((await fleet.session.call(tool, {}, KEY)).error?.code).toBe('IDEMPOTENCY_CONFLICT');
    },
  );

  test.each(Object.keys(failures).filter((why) => !why.includes('person')))(
    'because %s is found when its key is free, and makes way when that is used, with whatever parameters',
    async (why) => {
      const settings = { tools: { pay: { ttl: { failedMs: 1 } } } };
      const { fleet, tool, callId } = await fail(why, settings);
      const free = await eventually(async () => {
        const record = await fleet.pawl.read(callId);
        return (record?.freeAtMs ?? Number.POSITIVE_INFINITY) < (record?.readAtMs ?? 0) ? record : undefined;
      });
      expect(free).toMatchObject({ state: 'failed', outcome: { status: expect.any(String) } });
      expect((await fleet.pawl.calls.list({ state: 'failed' })).map((call) => call.callId)).toEqual([callId]);
      const again = await fleet.session.call(tool, {}, KEY);
      expect(again).toMatchObject({ callId, status: 'success', fromCache: false });
      expect(await fleet.pawl.read(callId)).toMatchObject({ state: 'done', fence: (free?.fence ?? 0) + 1 });
    },
  );

  test('does not answer for a request that was merged into it once its key is free', async () => {
    const joined = signal();
    const { tool, contexts } = scripted('pay', async () => {
      if (contexts.length > 1) return { output: 'paid' };
      await joined.promise;
      throw new Error('no funds');
    });
    const fleet = await startFleet({ tools: [tool], settings: { ttl: { failedMs: 1 } } });
    const [one, two] = [uuidv7(), uuidv7()];
    const ask = (requestId: string) => fleet.session.submit('pay', {}, { requestId });
    const first = pending(await ask(one));
    const second = pending(await ask(two));
    expect(second.callId).toBe(first.callId);
    joined.fire();
    expect((await second.result).error?.message).toBe('no funds');
    await eventually(async () => {
      const record = await fleet.pawl.read(first.callId);
      return (record?.freeAtMs ?? Number.POSITIVE_INFINITY) < (record?.readAtMs ?? 0);
    });
    const again = pending(await ask(two));
    expect(again.callId).not.toBe(first.callId);
    expect(await again.result).toMatchObject({ status: 'success', fromCache: false });
    expect(await fleet.pawl.read(first.callId)).toMatchObject({ state: 'failed' });
  });
});
