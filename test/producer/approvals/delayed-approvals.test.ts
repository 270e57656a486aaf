import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

const KEYS = { signingKeys: [{ kid: 'k1', key: 'a key that no other fleet has' }] };
const DAY_MS = 24 * 3_600_000;

async function open() {
  const ran: number[] = [];
  const tool = defineTool({
    name: 'transfer',
    version: '1.0.0',
    description: 'Sends money.',
    tier: 'elevated',
    input: z.object({ amount: z.number() }),
    run: async ({ amount }) => {
      ran.push(Date.now());
      return { output: amount };
    },
  });
  const fleet = await startFleet({ tools: [tool], settings: KEYS });
  const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const submit = async (startAfterMs: number) => {
    const submission = pending(await session.submit('transfer', { amount: startAfterMs }, { startAfterMs }));
    const listed = await eventually(() => fleet.pawl.approvals.list({ state: 'pending' }).then(([one]) => one), {
      what: 'the approval',
    });
    return { ...submission, ...listed };
  };
  const approve = (id: string, digest: string) =>
    fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'bob' });
  return { ...fleet, session, ran, submit, approve };
}

test('a delayed call is approved at once, and still starts in its time', async () => {
  const { pawl, ran, submit, approve } = await open();
  const { callId, result, record, digest } = await submit(1_500);
  expect((await pawl.read(callId))?.phase).toBe('awaiting-approval');
  const { startAtMs = 0, expiresAtMs } = record.request;
  expect(expiresAtMs - startAtMs).toBe(pawl.settings.policy.approvalLimitMs);
  await approve(record.request.id, digest);
  expect((await pawl.read(callId))?.phase).toBe('delayed');
  expect(contentOf(await result)).toBe(1_500);
  expect(ran[0]).toBeGreaterThanOrEqual(startAtMs);
});

test('a decision holds from the start of the call on, however early it came', async () => {
  const { pawl, submit, approve, session } = await open();
  const { callId, record, digest } = await submit(200 * DAY_MS);
  await approve(record.request.id, digest);
  const decided = await pawl.approvals.show(callId);
  const { startAtMs = 0 } = record.request;
  expect(decided.record.decision?.validUntilMs).toBeGreaterThan(startAtMs);
  const { redis, ledger } = pawl.backend;
  const approvalKey = `${ledger.keys({ tier: 'elevated', shard: 0 }).approvals}:${record.request.id}`;
  expect(await redis.pttl(approvalKey)).toBeGreaterThan(200 * DAY_MS);
  expect(await session.cancel(callId)).toMatchObject({ settlement: 'cancelled-before-start' });
});

test('a call that is approved after its start begins at once', async () => {
  const { pawl, submit, approve } = await open();
  const { result, record, digest } = await submit(1);
  await eventually(async () => (await pawl.backend.ledger.now()) > (record.request.startAtMs ?? 0), {
    what: 'the start',
  });
  await approve(record.request.id, digest);
  expect(contentOf(await result)).toBe(1);
});
