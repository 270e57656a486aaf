import { expect, test } from 'vitest';
import { eventually, within } from '../helpers/signal.ts';
import { type Fleet, SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';

interface Span {
  readonly callId: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/** When the tool's code worked on the account, by call; what a killed worker left has no end and is left out. */
function spansOf(fleet: Fleet, callIds: readonly string[]): readonly Span[] {
  return callIds.map((callId) => {
    const lines = fleet.effects(callId);
    const end = lines.find(({ phase }) => phase === 'effect');
    const begin = lines.find(({ phase, fence }) => phase === 'begin' && fence === end?.fence);
    return { callId, fromMs: begin?.mono ?? Number.NaN, toMs: end?.mono ?? Number.NaN };
  });
}

const overlap = (a: Span, b: Span) => a.callId !== b.callId && a.fromMs < b.toMs && b.fromMs < a.toMs;

async function handIn(fleet: Fleet, tool: string, key: string, params: object = {}) {
  const submission = await fleet.session.submit(tool, { account: '7', label: key, ...params }, { idempotencyKey: key });
  return { callId: submission.callId ?? '', result: Promise.resolve(submission.result) };
}

test('C3: calls that change one account take turns over three workers and two tiers, looks share theirs', async () => {
  const fleet = await startFleet({ workers: 3, concurrency: 6 });
  const gate = fleet.gate('first');
  const first = await handIn(fleet, 'change_account', 'first', { gate: gate.path });
  await eventually(() => fleet.effects(first.callId).length > 0, { what: 'the first change' });
  const calls = [first];
  for (let number = 0; number < 24; number += 1)
    calls.push(
      await handIn(fleet, number % 4 < 2 ? 'look_at_account' : 'change_account', `call-${number}`, { beforeMs: 20 }),
    );
  const elsewhere = await fleet.session.call('change_account', { account: '8' });
  expect(elsewhere.status, 'another account waits for nobody').toBe('success');
  expect(fleet.effects().filter(({ callId }) => calls.slice(1).some((call) => call.callId === callId))).toEqual([]);
  gate.open();
  const results = await within(Promise.all(calls.map(({ result }) => result)), 30_000, 'the end of all calls');
  for (const result of results) expect(result).toMatchObject({ status: 'success', attempts: 1 });
  const changes = calls.filter((_, index) => index === 0 || (index - 1) % 4 >= 2).map(({ callId }) => callId);
  const looks = calls.filter((_, index) => index > 0 && (index - 1) % 4 < 2).map(({ callId }) => callId);
  const [changed, looked] = [spansOf(fleet, changes), spansOf(fleet, looks)];
  for (const change of changed) {
    expect([...changed, ...looked].filter((other) => overlap(change, other))).toEqual([]);
  }
  expect(
    looked.some((look) => looked.some((other) => overlap(look, other))),
    'looks share their turn',
  ).toBe(true);
  expect(new Set(fleet.effects().map(({ pid }) => pid)).size).toBeGreaterThan(1);
});

test('C3: what a killed worker held is free after its lease, and waiting consumes no attempt', async () => {
  const fleet = await startFleet({ workers: 2, concurrency: 6, lockDurationMs: SHORT_LOCK_MS });
  const gate = fleet.gate('held');
  const held = await handIn(fleet, 'change_account', 'held', { gate: gate.path });
  await eventually(() => fleet.effects(held.callId).length > 0, { what: 'the change that is killed' });
  const waiting = await Promise.all([1, 2, 3].map((number) => handIn(fleet, 'change_account', `waiting-${number}`)));
  const cancelled = await handIn(fleet, 'change_account', 'cancelled');
  const parked = async (callId: string) => {
    const record = await fleet.pawl.read(callId);
    return record?.fence === 1 && record.phase === 'queued';
  };
  await eventually(async () =>
    (await Promise.all([...waiting, cancelled].map(({ callId }) => parked(callId)))).every(Boolean),
  );
  expect(await fleet.pawl.cancel(cancelled.callId)).toMatchObject({ settlement: 'cancelled' });
  const holder = fleet.effects(held.callId)[0]?.pid ?? 0;
  await fleet.workerOf(holder).kill();
  gate.open();
  for (const { result } of waiting)
    expect(await within(result, 30_000, 'a call that waited')).toMatchObject({ status: 'success', attempts: 1 });
  expect(await within(held.result, 30_000, 'the killed call')).toMatchObject({ status: 'success', attempts: 2 });
  expect(fleet.effects(cancelled.callId)).toEqual([]);
  const spans = spansOf(
    fleet,
    [held, ...waiting].map(({ callId }) => callId),
  );
  for (const span of spans) expect(spans.filter((other) => overlap(span, other))).toEqual([]);
});
