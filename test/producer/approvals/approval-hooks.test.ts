/** D5, D9: `onApproval` runs for each transition of an approval, and a hook may deny before anybody is asked. */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import type { ApprovalEvent } from '../../../src/shared/calls/hook-events.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

const send = defineTool({
  name: 'send',
  version: '1.0.0',
  description: 'Sends money.',
  tier: 'elevated',
  input: z.object({ amount: z.number() }),
  preview: ({ amount }) => ({ summary: `Send ${amount}` }),
  run: ({ amount }) => ({ output: amount }),
});

async function start(
  answer: (event: ApprovalEvent) => ReturnType<NonNullable<Hook['onApproval']>> = () => {},
  approvalLimitMs = 60_000,
) {
  const seen: ApprovalEvent[] = [];
  const hook: Hook = {
    name: 'guard',
    onApproval: (event) => {
      seen.push(event);
      return answer(event);
    },
  };
  const settings = { signingKeys: [{ kid: 'k', key: 'a key that nobody else has' }], policy: { approvalLimitMs } };
  const fleet = await startFleet({ tools: [send], hooks: [hook], settings });
  const session = await fleet.pawl.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
  const ask = async (amount: number) => {
    const submission = await session.submit(send, { amount }, { idempotencyKey: String(amount) });
    const listed = await eventually(async () => {
      const found = await fleet.pawl.approvals.list({ state: 'pending' });
      return found.find(({ record }) => record.request.callId === submission.callId);
    });
    const decide = (decision: 'approve' | 'deny', reason?: string, params?: { readonly amount: number }) =>
      fleet.pawl.approvals.decide(listed.record.request.id, {
        decision,
        digest: listed.digest,
        by: 'grace',
        ...(reason === undefined ? {} : { reason }),
        ...(params === undefined ? {} : { params }),
      });
    return { callId: submission.callId ?? '', result: submission.result, decide, id: listed.record.request.id };
  };
  return { fleet, session, seen, ask, states: () => seen.map(({ state }) => state) };
}

describe('D5: hooks of approvals', () => {
  test('each transition runs the hook once, with the decider and the reason', async () => {
    const { ask, seen, states, session } = await start();
    const approved = await ask(1);
    await approved.decide('approve');
    expect((await approved.result).status).toBe('success');
    // The same call again is answered from its record, and asks nobody.
    expect((await session.call(send, { amount: 1 }, { idempotencyKey: '1' })).fromCache).toBe(true);
    const denied = await ask(2);
    await denied.decide('deny', 'too much');
    const cancelled = await ask(3);
    await session.cancel(cancelled.callId);
    await session.cancel(cancelled.callId);
    expect(states()).toEqual(['requested', 'approved', 'requested', 'denied', 'requested', 'cancelled']);
    expect(seen[1]).toMatchObject({ callId: approved.callId, approvalId: approved.id, decidedBy: 'grace' });
    expect(seen[3]).toMatchObject({ decidedBy: 'grace', reason: 'too much', preview: { summary: 'Send 2' } });
    const { requestId } = seen[2] as ApprovalEvent;
    expect(seen[3]).toMatchObject({ requestId, params: { amount: 2 }, actorId: 'agent-7', tool: { name: 'send' } });
  });

  test('the hook gets the parameters that were approved', async () => {
    const { ask, seen } = await start();
    const edited = await ask(1000);
    await edited.decide('approve', undefined, { amount: 100 });
    expect((await edited.result).output?.content).toBe(100);
    expect(seen.map(({ params }) => params)).toEqual([{ amount: 1000 }, { amount: 100 }]);
  });

  test('the process that expires a request runs the hook', async () => {
    const { states, session } = await start(undefined, 300);
    expect((await session.call(send, { amount: 1 })).error?.code).toBe('PERMISSION_DENIED');
    await eventually(() => states().length === 2);
    expect(states()).toEqual(['requested', 'expired']);
  });

  test('a hook that denies a request refuses the call, and no person is asked', async () => {
    const { fleet, session } = await start(({ params }) =>
      Number(params['amount']) > 10 ? { deny: 'more than 10 needs a contract' } : undefined,
    );
    expect(await session.call(send, { amount: 11 })).toMatchObject({
      status: 'error',
      error: {
        code: 'PERMISSION_DENIED',
        message: 'The hook guard denied the call: more than 10 needs a contract.',
      },
    });
    expect(await fleet.pawl.approvals.list()).toEqual([]);
  });

  test('a hook that throws guards; once decided, what it says changes nothing', async () => {
    const { ask, session } = await start(({ state, params }) => {
      if (state !== 'requested' || Number(params['amount']) > 10) throw new Error('no idea');
    });
    expect((await session.call(send, { amount: 11 })).error?.code).toBe('HOOK_FAILED');
    const asked = await ask(1);
    await asked.decide('approve');
    expect((await asked.result).status).toBe('success');
  });
});
