/** Calls of mutating tools that failed: run again, discarded and resolved by operators. */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Resolution } from '../../../src/producer/calls/resolution.ts';
import type { AuditEvent } from '../../../src/shared/audit/audit-event.ts';
import { queueNameOf } from '../../../src/shared/queues/priority.ts';
import { redriveCall } from '../../../src/shared/store/redrives/redrive-call.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { gated, httpError } from '../../helpers/tools.ts';
import { failed, NO_CIRCUIT, ONE_TRY, payments } from './payments.ts';

function overrides(events: readonly AuditEvent[], action: string) {
  return events.filter((event) => event.type === 'override' && event.action === action);
}

describe('a redrive', () => {
  test('runs each call again under its own ID and key, with all its attempts, and its first failure stays', async () => {
    const { tool, mend, paid } = payments({}, () => httpError(503));
    const settings = { ...NO_CIRCUIT, defaults: { retry: { maxAttempts: 2 } } };
    const fleet = await startFleet({ tools: [tool], settings });
    const failedCall = () => fleet.session.call('pay', {}, { idempotencyKey: 'k' });
    const { callId = '', attempts } = await failedCall();
    expect(attempts).toBe(2);
    const answer = await fleet.pawl.deadLetters.redrive({ ids: [callId], by: 'grace', reason: 'the bank is back' });
    expect(answer).toMatchObject({ matched: 1, started: 1, skipped: [], state: 'done' });
    // Still broken: a round of its own.
    await eventually(async () => (await fleet.pawl.read(callId))?.state === 'failed');
    const record = await fleet.pawl.read(callId);
    expect(record?.attempts.map(({ round }) => round)).toEqual([1, 1, undefined, undefined]);
    expect(record?.redrives).toMatchObject([{ id: answer.redriveId, by: 'grace', code: 'HTTP_503', attempts: 2 }]);
    mend();
    await fleet.pawl.deadLetters.redrive({ filter: { code: 'HTTP_503' } });
    expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success' });
    expect(paid).toEqual(['k']);
    expect(await failedCall()).toMatchObject({ status: 'success', fromCache: true, callId });
    expect((await fleet.pawl.deadLetters.list()).counts?.total).toBe(0);
    const ended = await fleet.pawl.read(callId);
    expect(ended?.attempts.map(({ round, status }) => [round, status])).toEqual([
      [1, 'error'],
      [1, 'error'],
      [2, 'error'],
      [2, 'error'],
      [undefined, 'success'],
    ]);
    expect(overrides(fleet.audited, 'redrive')).toMatchObject([
      { what: 'dead-letters', by: 'grace', reason: 'the bank is back', counts: { matched: 1, perSecond: 50 } },
      { what: 'dead-letters', by: 'grace', reason: 'the bank is back', callIds: [callId] },
      { filter: { code: 'HTTP_503' }, counts: { matched: 1 } },
      { callIds: [callId] },
    ]);
  });

  test('that reads a call in the same millisecond as another one does not start it, too', async () => {
    const { tool } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const [callId = ''] = await failed(fleet, 1);
    const { access } = fleet.pawl.backend.ledger;
    const record = await fleet.pawl.read(callId);
    if (record === undefined) throw new Error('the record is gone');
    const terms = {
      by: 'grace',
      generation: String(record.readAtMs),
      room: 10,
      line: queueNameOf('normal', undefined, 1),
    };
    expect(await redriveCall(access, record, { ...terms, redriveId: 'one' })).toBe('queued');
    expect(await redriveCall(access, record, { ...terms, redriveId: 'other' })).toBe('changed');
  });

  test('is shown in the call’s events', async () => {
    const { tool, mend } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const [callId = ''] = await failed(fleet, 1);
    mend();
    await fleet.pawl.deadLetters.redrive({ ids: [callId], by: 'grace' });
    await fleet.pawl.result(callId);
    const types: string[] = [];
    await new Promise<void>((resolve) => {
      fleet.pawl.follow(callId, {
        onEvents: (events) => void types.push(...events.map(({ type }) => type)),
        onEnd: resolve,
      });
    });
    expect(types).toEqual(['queued', 'attempt', 'redriven', 'attempt', 'settled']);
  });

  test('that is only tried changes nothing, and says what would be skipped', async () => {
    const { tool, contexts } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const ids = await failed(fleet, 3);
    const kept = async () => (await fleet.world.keys()).filter((key) => /dead-letter|redrive|:call:/.test(key));
    const before = await kept();
    expect(await fleet.pawl.deadLetters.redrive({ filter: {}, dryRun: true })).toEqual({
      matched: 3,
      started: 0,
      skipped: [],
    });
    expect(await fleet.pawl.deadLetters.redrive({ ids: [...ids, 'nonsense'], dryRun: true })).toEqual({
      matched: 4,
      started: 0,
      skipped: [{ callId: 'nonsense', code: 'UNKNOWN_CALL' }],
    });
    expect(await fleet.pawl.deadLetters.discard({ filter: {}, dryRun: true })).toMatchObject({
      matched: 3,
      started: 0,
    });
    expect(await kept()).toEqual(before);
    expect(contexts).toHaveLength(3);
    expect(overrides(fleet.audited, 'redrive')).toEqual([]);
  });

  test('skips a call in doubt until it is resolved, and then leaves no doubt of the earlier round', async () => {
    const gate = gated('pay', { effects: 'once' });
    const fleet = await startFleet({ tools: [gate.tool], settings: NO_CIRCUIT });
    const { callId = '' } = await fleet.session.call('pay', {}, { idempotencyKey: 'k', timeoutMs: 3_000 });
    expect(gate.contexts).toHaveLength(1);
    gate.open();
    const { deadLetters } = fleet.pawl;
    const code = (await fleet.pawl.read(callId))?.outcome?.error?.code ?? '';
    const skipped = [{ callId, code }];
    expect(await deadLetters.redrive({ ids: [callId], dryRun: true })).toMatchObject({ started: 0, skipped });
    expect(await deadLetters.redrive({ filter: {} })).toMatchObject({ matched: 1, started: 0, skipped });
    expect(await deadLetters.discard({ filter: {} })).toMatchObject({ matched: 1, started: 0, skipped });
    const resolved = await fleet.pawl.calls.resolveMany({ filter: {}, as: 'failed', reason: 'no money moved' });
    expect(resolved).toEqual({ matched: 1, started: 1, skipped: [] });
    expect(await deadLetters.redrive({ filter: {} })).toMatchObject({ matched: 1, started: 1 });
    expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success' });
    expect(gate.contexts).toHaveLength(2);
  });

  test.each(['succeeded', 'failed', 'retry'] as const)('calls in doubt are resolved together as %s', async (as) => {
    const gate = gated('pay', { effects: 'once' });
    const fleet = await startFleet({ tools: [gate.tool], settings: NO_CIRCUIT });
    const submitted = await Promise.all(
      [1, 2, 3].map(async (key) => pending(await fleet.session.submit('pay', {}, { idempotencyKey: `${key}` }))),
    );
    await gate.arrived(3);
    await Promise.all(submitted.map(({ callId }) => fleet.session.cancel(callId)));
    gate.open();
    const ids = submitted.map(({ callId }) => callId);
    const resolution = { as, reason: 'asked the bank' } as { readonly as: 'retry'; readonly reason: string };
    expect(await fleet.pawl.calls.resolveMany({ filter: {}, ...resolution, dryRun: true })).toEqual({
      matched: 3,
      started: 0,
      skipped: [],
    });
    expect(await fleet.pawl.calls.resolveMany({ filter: { tool: 'other' }, ...resolution })).toMatchObject({
      matched: 0,
    });
    const [first = ''] = ids;
    expect(await fleet.pawl.calls.resolveMany({ ids: [first, 'nonsense'], ...resolution })).toEqual({
      matched: 2,
      started: 1,
      skipped: [{ callId: 'nonsense', code: 'UNKNOWN_CALL' }],
    });
    expect(await fleet.pawl.calls.resolveMany({ filter: {}, ...resolution })).toMatchObject({ matched: 2, started: 2 });
    const state = { succeeded: 'done', failed: 'failed', retry: 'done' }[as];
    await eventually(async () =>
      (await Promise.all(ids.map((id) => fleet.pawl.read(id)))).every((record) => record?.state === state),
    );
    expect((await fleet.pawl.deadLetters.list()).counts?.total).toBe(as === 'failed' ? 3 : 0);
    const told = overrides(fleet.audited, as);
    expect(told).toHaveLength(3);
    for (const event of told) expect(event).toMatchObject({ what: 'resolution', reason: 'asked the bank' });
  });

  test('a call in doubt is resolved with an output that its tool accepts, and no other word or output changes it', async () => {
    let begun = 0;
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Pays until it is cancelled.',
      tier: 'workspace',
      effects: 'once',
      input: z.object({}),
      output: z.object({ receipt: z.string(), note: z.string().optional() }),
      run: (_, { signal }) => {
        begun += 1;
        return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
      },
    });
    const { pawl, session } = await startFleet({ tools: [pay], settings: NO_CIRCUIT });
    const submitted = await Promise.all(
      ['a', 'b', 'c', 'd'].map(async (key) => pending(await session.submit('pay', {}, { idempotencyKey: key }))),
    );
    await eventually(() => begun === 4);
    await Promise.all(submitted.map(({ callId }) => session.cancel(callId)));
    await Promise.all(submitted.map(({ result }) => result));
    const ids = submitted.map(({ callId }) => callId);
    const [first = '', second = '', third = '', last = ''] = ids;
    const loop: Record<string, unknown> = {};
    loop['receipt'] = loop;
    const wrong: [unknown, string, string | undefined][] = [
      [{ as: 'succeeded', output: { receipt: 1 } }, 'COMPLETION_INVALID', 'output.receipt'],
      [{ as: 'succeeded', output: {} }, 'COMPLETION_INVALID', 'output.receipt'],
      [{ as: 'succeeded', output: null }, 'COMPLETION_INVALID', 'output'],
      [{ as: 'succeeded', output: 1n }, 'COMPLETION_INVALID', undefined],
      [{ as: 'succeeded', output: loop }, 'COMPLETION_INVALID', undefined],
      [{ as: 'succeeded', output: { receipt: 'x'.repeat(17_000_000) } }, 'COMPLETION_INVALID', undefined],
      [{ as: 'failed', output: {} }, 'CONTRACT_INVALID', ''],
      [{ as: 'success' }, 'CONTRACT_INVALID', 'as'],
      [undefined, 'CONTRACT_INVALID', 'resolution'],
    ];
    for (const [resolution, code, path] of wrong)
      await expect(pawl.calls.resolve(first, resolution as Resolution), String(path)).rejects.toMatchObject({
        code,
        ...(path !== undefined && { issues: [{ path }] }),
      });
    const many = { ids, reason: 'asked the bank', as: 'succeeded', output: { receipt: 1 } } as const;
    const skipped = expect.arrayContaining(ids.map((callId) => ({ callId, code: 'COMPLETION_INVALID' })));
    for (const dryRun of [true, false])
      expect(await pawl.calls.resolveMany({ ...many, dryRun })).toEqual({ matched: 4, started: 0, skipped });
    for (const [change, path] of [
      [{ as: 'success' }, 'as'],
      [{ reason: undefined }, 'reason'],
      [{ dryrun: true }, 'resolution'],
    ] as const)
      await expect(pawl.calls.resolveMany({ ...many, ...change } as never), path).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        issues: [{ path }],
      });
    expect(await pawl.calls.list({ state: 'unresolved' })).toHaveLength(4);

    const content = async (callId: string) => (await pawl.read(callId))?.outcome?.output?.content;
    await pawl.calls.resolve(first, { as: 'succeeded', output: { receipt: 'R-1', note: null } });
    expect(await content(first)).toEqual({ receipt: 'R-1' });
    await pawl.calls.resolve(second, { as: 'succeeded' });
    expect(await content(second)).toBeNull();
    expect(await pawl.calls.resolveMany({ ...many, ids: [third, last], output: { receipt: 'R-2' } })).toMatchObject({
      started: 2,
    });
    expect(await content(last)).toEqual({ receipt: 'R-2' });
  });

  test('is stopped by a discard: the call leaves the view, and its record stays', async () => {
    const { tool } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const [callId = '', other = ''] = await failed(fleet, 2);
    const answer = await fleet.pawl.deadLetters.discard({ ids: [callId], by: 'grace', reason: 'a test' });
    expect(answer).toEqual({ matched: 1, started: 1, skipped: [] });
    expect(await fleet.pawl.read(callId)).toMatchObject({ state: 'failed' });
    expect(await fleet.pawl.deadLetters.redrive({ ids: [callId, other] })).toMatchObject({
      matched: 2,
      started: 1,
      skipped: [{ callId, code: 'CALL_NOT_REDRIVABLE' }],
    });
    expect(await fleet.pawl.deadLetters.discard({ ids: [callId] })).toMatchObject({
      skipped: [{ callId, code: 'CALL_NOT_REDRIVABLE' }],
    });
    expect(overrides(fleet.audited, 'discard').slice(0, 2)).toMatchObject([
      { callIds: [callId], by: 'grace', reason: 'a test' },
      { counts: { matched: 1, started: 1, skipped: 0 }, by: 'grace' },
    ]);
    await expect(fleet.pawl.audit({ callId, type: 'override' })).resolves.toHaveLength(1);
  });
});

describe('a redrive skips a call', () => {
  /** Redrives the one dead letter; returns the code for which it was skipped. */
  async function skippedFor(fleet: Fleet, callId: string): Promise<string | undefined> {
    const dry = await fleet.pawl.deadLetters.redrive({ ids: [callId], dryRun: true });
    const { skipped, started } = await fleet.pawl.deadLetters.redrive({ ids: [callId] });
    expect(started).toBe(skipped.length === 0 ? 1 : 0);
    expect(dry.skipped).toEqual(skipped);
    return skipped[0]?.code;
  }

  test('whose session is closed', async () => {
    const { tool } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const [callId = ''] = await failed(fleet, 1);
    await fleet.session.close();
    expect(await skippedFor(fleet, callId)).toBe('SESSION_CLOSED');
  });

  test('whose circuit is open', async () => {
    const { tool, mend } = payments();
    const fleet = await startFleet({ tools: [tool] });
    const [callId = ''] = await failed(fleet, 1);
    await fleet.pawl.circuits.set('force_open', { key: 'tool:tools.pay' }, 'closed for repairs');
    expect(await skippedFor(fleet, callId)).toBe('CIRCUIT_OPEN');
    await fleet.pawl.circuits.set('reset', { key: 'tool:tools.pay' });
    mend();
    expect(await skippedFor(fleet, callId)).toBeUndefined();
  });

  test('whose budget is spent', async () => {
    const { tool } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const session = await fleet.pawl.openSession({ actorId: 'ada', budget: { calls: 2 } });
    const { callId = '' } = await session.call('pay', {}, { idempotencyKey: 'k', ...ONE_TRY });
    expect((await fleet.pawl.deadLetters.redrive({ ids: [callId] })).started).toBe(1);
    await eventually(async () => (await fleet.pawl.read(callId))?.state === 'failed');
    const { skipped } = await fleet.pawl.deadLetters.redrive({ ids: [callId] });
    expect(skipped).toEqual([{ callId, code: 'BUDGET_EXHAUSTED' }]);
  });

  test.each([
    ['has another major version', { version: '2.0.0' }, 'DEFINITION_CHANGED'],
    ['has other effects', { effects: 'once' }, 'DEFINITION_CHANGED'],
    ['refuses its parameters', { input: z.object({ number: z.string() }) }, 'DEFINITION_CHANGED'],
    ['does the same, but better', { version: '1.0.1' }, undefined],
  ] as const)('whose tool %s', async (_what, change, code) => {
    const { tool } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT, workers: 0 });
    const worker = await fleet.startWorker();
    const [callId = ''] = await failed(fleet, 1);
    await worker.close(0);
    const base = {
      name: 'pay',
      version: '1.0.0',
      description: 'Pays.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.looseObject({}),
      run: () => ({ output: 'paid' }),
    } as const;
    const other = await fleet.openProducer();
    await other.backend.redis.del(...(await fleet.world.keys()).filter((key) => key.endsWith('{fleet}:tools')));
    await fleet.startWorker({ tools: [defineTool({ ...base, ...change } as typeof base)] });
    const fresh = await fleet.openProducer();
    expect(await skippedFor({ ...fleet, pawl: fresh }, callId)).toBe(code);
    if (code === undefined) expect(await fresh.result(callId)).toMatchObject({ status: 'success' });
  });

  test('that is in flight', async () => {
    const gate = gated('pay');
    const fleet = await startFleet({ tools: [gate.tool] });
    const { callId } = pending(await fleet.session.submit('pay', {}, { idempotencyKey: 'k' }));
    await gate.arrived();
    expect(await skippedFor(fleet, callId)).toBe('IN_FLIGHT');
    gate.open();
    await fleet.pawl.result(callId);
    expect(await skippedFor(fleet, callId)).toBe('CALL_NOT_REDRIVABLE');
  });
});

test('an elevated call is approved again, and a denial makes it no dead letter', async () => {
  const { tool, mend, paid } = payments({ tier: 'elevated' });
  const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
  const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const decide = async (decision: 'approve' | 'deny') => {
    const waiting = await eventually(async () => (await fleet.pawl.approvals.list({ state: 'pending' }))[0]);
    const { record, digest } = waiting;
    await fleet.pawl.approvals.decide(record.request.id, { decision, digest, by: 'grace' });
    return record.request;
  };
  const { callId, result } = pending(await session.submit('pay', {}, { idempotencyKey: 'k', ...ONE_TRY }));
  await decide('approve');
  await result;
  mend();
  const { deadLetters } = fleet.pawl;
  expect(await deadLetters.redrive({ ids: [callId] })).toMatchObject({ started: 1 });
  expect(await fleet.pawl.read(callId)).toMatchObject({ state: 'inflight', phase: 'awaiting-approval' });
  expect((await decide('deny')).reason).toMatch(/^it failed, and an operator runs it again: /);
  expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'error', error: { code: 'PERMISSION_DENIED' } });
  expect((await deadLetters.list()).counts?.total).toBe(0);
  expect(paid).toEqual([]);
});

test('an approved redrive of an elevated call runs', async () => {
  const { tool, mend, paid } = payments({ tier: 'elevated' });
  const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
  const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const approve = async () => {
    const { record, digest } = await eventually(async () => (await fleet.pawl.approvals.list({ state: 'pending' }))[0]);
    await fleet.pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace' });
  };
  const { callId, result } = pending(await session.submit('pay', {}, { idempotencyKey: 'k', ...ONE_TRY }));
  await approve();
  await result;
  mend();
  await fleet.pawl.deadLetters.redrive({ ids: [callId] });
  await approve();
  expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success' });
  expect(paid).toEqual(['k']);
});
