/** Redis does what it is told, and its answer gets lost with the wire: whoever told it hears what became of their own word. */
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { Pawl } from '../../../src/producer/client.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually } from '../../helpers/signal.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

const { tool: note } = scripted('note', () => ({ output: null }), { effects: 'once' });
const { tool: refused } = scripted('refused', () => {
  throw httpError(400);
});
const tokens: string[] = [];
const wait = defineTool({
  name: 'wait',
  version: '1.0.0',
  description: 'Leaves its call to an outside system.',
  tier: 'workspace',
  effects: 'idempotent',
  input: z.object({}),
  run: (_params, ctx) => {
    const left = ctx.pending({ expiresInMs: 600_000 });
    tokens.push(left.token);
    return left;
  },
});
const lift = defineTool({
  name: 'lift',
  version: '1.0.0',
  description: 'Needs a person.',
  tier: 'elevated',
  input: z.object({}),
  run: () => ({ output: null }),
});

/** A fleet without workers, and a producer that hears no answer to what has `said` in it before Redis has done it. */
async function withLoss() {
  const fleet = await startFleet({ tools: [note, lift, refused, wait], workers: 0 });
  const wire = await startWire(fleet.world.redisUrl);
  const pawl = await fleet.openProducer({ redisUrl: wire.url });
  const unheard = async <Answer>(
    said: string,
    tell: (pawl: Pawl) => Promise<Answer>,
    isDone: () => Promise<boolean>,
  ) => {
    wire.deafenWhenSaid(said);
    const answer = tell(pawl);
    answer.catch(() => {});
    await eventually(isDone);
    wire.heal();
    wire.cut();
    wire.heal();
    return answer;
  };
  return { fleet, unheard };
}

/** A call whose attempt began and left no record. */
async function inDoubt({ pawl, session, startWorker }: Fleet): Promise<string> {
  const submission = pending(await session.submit(note, {}));
  const { callId } = submission;
  const record = await pawl.read(callId);
  const job = { callId, generation: record?.generation ?? '', session: session.key };
  await pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
  const worker = await startWorker();
  expect((await submission.result).error?.code).toBe('OUTCOME_UNKNOWN');
  await worker.close();
  return callId;
}

test('a cancellation', async () => {
  const { fleet, unheard } = await withLoss();
  const { callId } = pending(await fleet.session.submit(note, {}));
  const isDone = async () => (await fleet.pawl.read(callId))?.state === 'cancelled';
  const answer = await unheard('cancelled-before-start', (pawl) => pawl.cancel(callId), isDone);
  expect(answer.settlement).toBe('cancelled-before-start');
  expect((await fleet.pawl.cancel(callId)).settlement).toBe('too-late');
});

test('a decision, which stands in the audit trail then', async () => {
  const { fleet, unheard } = await withLoss();
  const session = await fleet.pawl.openSession({ channel: { kind: 'operator' } });
  pending(await session.submit(lift, {}));
  const [listed] = await eventually(async () => {
    const found = await fleet.pawl.approvals.list({ state: 'pending' });
    return found.length > 0 && found;
  });
  const id = listed?.record.request.id ?? '';
  const decide = (pawl: Pawl) =>
    pawl.approvals.decide(id, { decision: 'approve', digest: listed?.digest ?? '', by: 'grace' });
  const isDone = async () => (await fleet.pawl.approvals.show(id)).record.state === 'approved';
  expect(await unheard('"decision":"approve"', decide, isDone)).toMatchObject({ record: { state: 'approved' } });
  expect(fleet.audited).toContainEqual(
    expect.objectContaining({ type: 'approval-decided', approvalId: id, state: 'approved', by: 'grace' }),
  );
  await expect(decide(fleet.pawl)).rejects.toMatchObject({ code: 'APPROVAL_STALE' });
});

test('a session that is opened', async () => {
  const { fleet, unheard } = await withLoss();
  const open = (pawl: Pawl) => pawl.openSession({ sessionKey: 'mine', actorId: 'ada' });
  const { redis, prefix } = fleet.pawl.backend;
  const isDone = async () => (await redis.exists(new FleetKeys(prefix).session('mine'))) === 1;
  expect((await unheard('"sessionKey":"mine"', open, isDone)).record).toMatchObject({ actorId: 'ada' });
  await expect(open(fleet.pawl)).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
});

test('a session that is opened, and closed by another process before its opener hears of it', async () => {
  const { fleet, unheard } = await withLoss();
  const { redis, prefix } = fleet.pawl.backend;
  const isDone = async () => {
    if ((await redis.exists(new FleetKeys(prefix).session('mine'))) === 0) return false;
    await fleet.pawl.sessions.close('mine');
    return true;
  };
  const open = (pawl: Pawl) => pawl.openSession({ sessionKey: 'mine', actorId: 'ada' });
  expect((await unheard('"sessionKey":"mine"', open, isDone)).key).toBe('mine');
});

test('a tool that is declared', async () => {
  const { fleet, unheard } = await withLoss();
  const spec = { kind: 'dynamic', version: '1.0.0', description: 'Says it.', inputSchema: { type: 'object' } };
  const isDone = async () => (await fleet.pawl.registry.read('declared')) !== undefined;
  const put = (pawl: Pawl) => pawl.registry.put('declared', spec as never);
  expect(await unheard('Says it.', put, isDone)).toMatchObject({ record: { revision: 1 } });
});

test('an answer to a question', async () => {
  const { fleet, unheard } = await withLoss();
  const { questions } = fleet.pawl.backend;
  const request = { callId: 'call', session: fleet.session.key, tool: 'ask', text: 'Go on?', freeText: true } as never;
  await questions.ask('q', request, 60_000);
  const reply = (pawl: Pawl) => pawl.questions.reply('q', { answer: 'quite so' }, 'grace');
  await unheard('quite so', reply, async () => (await questions.read('q')) === undefined);
  expect(fleet.audited).toContainEqual(
    expect.objectContaining({ type: 'question-ended', questionId: 'q', by: 'grace' }),
  );
});

/** A call that failed, and is a dead letter. */
async function failedCall({ startWorker, session }: Fleet): Promise<string> {
  const worker = await startWorker();
  const { callId = '' } = await session.call(refused, {}, { idempotencyKey: 'k', retryBudget: { maxAttempts: 1 } });
  await worker.close();
  return callId;
}

test('a redrive that begins', async () => {
  const { fleet, unheard } = await withLoss();
  const callId = await failedCall(fleet);
  const { redis, prefix } = fleet.pawl.backend;
  const isDone = async () => (await redis.keys(`${prefix}:{redrives}:redrive:*:calls`)).length === 1;
  const redrive = (pawl: Pawl) => pawl.deadLetters.redrive({ ids: [callId] });
  expect(await unheard(`{"batch":[{"callId":"${callId}"`, redrive, isDone)).toMatchObject({ matched: 1, started: 1 });
});

test('a call that fails before its claim is answered, whose large parameters stay for a redrive', async () => {
  const { fleet, unheard } = await withLoss();
  await fleet.startWorker();
  const { deadLetters } = fleet.pawl;
  const call = async (pawl: Pawl) => {
    const session = await pawl.session(fleet.session.key);
    return session.call(refused, { text: 'x'.repeat(300_000) }, { idempotencyKey: 'k' });
  };
  const isDone = async () => (await deadLetters.list()).deadLetters.length === 1;
  const { callId = '' } = await unheard('"job":"refused"', call, isDone);
  expect(await deadLetters.redrive({ ids: [callId] })).toMatchObject({ started: 1, skipped: [] });
});

test('a redriven call, which its budgets count', async () => {
  const { fleet, unheard } = await withLoss();
  const session = await fleet.pawl.openSession({ actorId: 'ada', budget: { calls: 2 } });
  const callId = await failedCall({ ...fleet, session });
  const isDone = async () => (await fleet.pawl.read(callId))?.state === 'inflight';
  const redrive = (pawl: Pawl) => pawl.deadLetters.redrive({ ids: [callId] });
  const said = `{"callId":"${callId}","generation"`;
  expect(await unheard(said, redrive, isDone)).toMatchObject({ started: 1, skipped: [] });
  expect(await session.call(refused, {}, { idempotencyKey: 'other' })).toMatchObject({
    error: { code: 'BUDGET_EXHAUSTED' },
  });
});

test('a resolution as succeeded', async () => {
  const { fleet, unheard } = await withLoss();
  const callId = await inDoubt(fleet);
  const isDone = async () => (await fleet.pawl.read(callId))?.state === 'done';
  const resolve = (pawl: Pawl) => pawl.resolve(callId, { as: 'succeeded' });
  expect(await unheard('"resolved":true', resolve, isDone)).toMatchObject({ state: 'done' });
  await expect(resolve(fleet.pawl)).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
});

test('a resolution as retry', async () => {
  const { fleet, unheard } = await withLoss();
  const callId = await inDoubt(fleet);
  const isDone = async () => (await fleet.pawl.read(callId))?.state === 'inflight';
  const resolve = (pawl: Pawl) => pawl.resolve(callId, { as: 'retry' });
  expect(await unheard(`{"callId":"${callId}","generation"`, resolve, isDone)).toMatchObject({ phase: 'queued' });
  await expect(resolve(fleet.pawl)).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
});

test('more time for a pending call, which is given once', async () => {
  const { fleet, unheard } = await withLoss();
  await fleet.startWorker();
  const { callId } = pending(await fleet.session.submit(wait, {}));
  const until = async () => (await fleet.pawl.read(callId))?.pendingUntilMs;
  const beforeMs = await eventually(until);
  const isDone = async () => (await until()) !== beforeMs;
  const answer = await unheard('extend\r', (pawl) => pawl.complete(tokens[0] ?? '', { extendMs: 60_000 }), isDone);
  expect(answer).toEqual({ state: 'pending', expiresAtMs: beforeMs + 60_000 });
  expect(await until()).toBe(beforeMs + 60_000);
});

test('a dead letter that is discarded, and the record of a call that is flushed', async () => {
  const { fleet, unheard } = await withLoss();
  const callId = await failedCall(fleet);
  const { deadLetters } = fleet.pawl;
  const isDiscarded = async () => (await deadLetters.list()).deadLetters.length === 0;
  const discard = (pawl: Pawl) => pawl.deadLetters.discard({ ids: [callId] });
  expect(await unheard(':answer:', discard, isDiscarded)).toMatchObject({ started: 1, skipped: [] });
  const isFlushed = async () => (await fleet.pawl.read(callId)) === undefined;
  const flush = (pawl: Pawl) => pawl.calls.flush({ callId });
  expect(await unheard(':answer:', flush, isFlushed)).toMatchObject({ flushed: 1 });
});
