import { describe, expect, test } from 'vitest';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { ask, KEYS, transfer, waiting, withChannel } from './waiting-calls.ts';

describe('an approved call whose outcome is unknown', () => {
  async function unknown() {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS, workers: 0 });
    const session = await withChannel(fleet);
    const { submission, digest, id } = await ask(fleet, session);
    const { callId } = submission;
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    const { ledger } = fleet.pawl.backend;
    const job = { callId, generation: (await ledger.read(callId))?.generation ?? '', session: session.key };
    await ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    const worker = await fleet.startWorker();
    expect((await submission.result).error?.code).toBe('OUTCOME_UNKNOWN');
    const again = async () => {
      const { phase } = await fleet.pawl.resolve(callId, { as: 'retry' }, 'joan');
      expect(phase).toBe('awaiting-approval');
      const shown = await fleet.pawl.approvals.show(callId);
      return { ...shown, id: shown.record.request.id };
    };
    return { fleet, worker, ran, callId, first: id, again };
  }

  test('that is resolved as retry runs again when a person approves that', async () => {
    const { fleet, ran, callId, first, again } = await unknown();
    const { record, digest, id } = await again();
    expect(id).not.toBe(first);
    expect(record.request).toMatchObject({ params: { to: 'bob', amount: 5 }, attemptsBefore: 1 });
    expect(record.request.reason).toContain('it is to run again');
    const asked = fleet.audited.filter(({ type }) => type === 'approval-requested');
    expect(asked).toMatchObject([{ approvalId: first }, { approvalId: id }]);
    expect(await waiting(fleet)).toMatchObject([{ digest }]);
    await expect(fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'agent-7' })).rejects.toMatchObject(
      { code: 'PERMISSION_DENIED' },
    );
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    expect(contentOf((await fleet.pawl.result(callId)) ?? expect.fail())).toEqual({ sent: 5 });
    expect(ran).toHaveLength(1);
  });

  test('stays unknown when the retry is not approved, and can be resolved', async () => {
    const { fleet, ran, callId, again } = await unknown();
    const { digest, id } = await again();
    await fleet.pawl.approvals.decide(id, { decision: 'deny', digest, by: 'grace', reason: 'look first' });
    const denied = await fleet.pawl.read(callId);
    expect(denied?.outcome).toMatchObject({
      attempts: 1,
      error: { code: 'OUTCOME_UNKNOWN', message: expect.stringContaining('look first') },
    });
    // As long as any other one whose outcome is unknown.
    expect((denied?.expiresAtMs ?? 0) - (denied?.updatedAtMs ?? 0)).toBe(fleet.settings.ttl.doneMs);
    const { ledger, redis } = fleet.pawl.backend;
    expect(await redis.zscore(ledger.keys({ tier: 'elevated', shard: 0 }).inDoubt, callId)).not.toBeNull();
    const next = await again();
    expect(next.record.request.reason.match(/it is to run again/g)).toHaveLength(1);
    expect((await fleet.pawl.cancel(callId)).settlement).toBe('unsettled');
    expect((await fleet.pawl.approvals.show(next.id)).record.state).toBe('cancelled');
    expect(ran).toEqual([]);
  });

  test('does not run again when what a person had approved is not there any more', async () => {
    const { fleet, callId, first } = await unknown();
    const { ledger, redis } = fleet.pawl.backend;
    await redis.del(`${ledger.keys({ tier: 'elevated', shard: 0 }).approvals}:${first}`);
    await expect(fleet.pawl.resolve(callId, { as: 'retry' })).rejects.toMatchObject({
      code: 'CALL_NOT_RESOLVABLE',
      message: expect.stringContaining('approval'),
    });
    expect((await fleet.pawl.resolve(callId, { as: 'failed' })).state).toBe('failed');
  });
});
