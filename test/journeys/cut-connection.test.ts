/** @module-tag slow */
import { expect, test } from 'vitest';
import { startWire, type Wire } from '../helpers/proxy.ts';
import { eventually, within } from '../helpers/signal.ts';
import { connectTo, type Fleet, startFleet } from './fixtures/fleet.ts';

/** A producer of this process behind a wire, and one of its calls in the middle of its run. */
async function callBehindWire(fleet: Fleet, wire: Wire, key: string) {
  const pawl = await connectTo(fleet.world, wire.url);
  const session = await pawl.session(fleet.session.key);
  const gate = fleet.gate(key);
  const params = { label: key, gate: gate.path };
  const submission = await session.submit('record_once', params, { idempotencyKey: key });
  const callId = submission.callId ?? '';
  await eventually(() => fleet.effects(callId).length === 1);
  const settle = async () => {
    gate.open();
    await eventually(async () => (await fleet.pawl.read(callId))?.state === 'done');
  };
  return { session, pawl, callId, result: Promise.resolve(submission.result), settle };
}

test('a call that ends while its producer is cut off is heard of when the wire is whole again', async () => {
  const fleet = await startFleet();
  const wire = await startWire(fleet.world.redisUrl);
  const call = await callBehindWire(fleet, wire, 'cut');
  wire.cut();
  await call.settle();
  // Meanwhile: a new call fails, soon and with a type, and nothing ran.
  const cutAtMs = performance.now();
  await expect(call.session.call('record_once', {}, { idempotencyKey: 'meanwhile' })).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
  });
  expect(performance.now() - cutAtMs).toBeLessThan(8_000);
  wire.heal();
  const result = await within(call.result, 30_000, 'the result after the wire is whole again');
  expect(result).toMatchObject({ status: 'success', callId: call.callId, attempts: 1 });
  expect(fleet.effects()).toHaveLength(2);
  const after = await eventually(() => call.session.call('record_once', {}, { idempotencyKey: 'after' }));
  expect(after).toMatchObject({ status: 'success' });
});

test('a call whose answer gets lost with the wire is the same call when it is asked again', async () => {
  const fleet = await startFleet();
  const wire = await startWire(fleet.world.redisUrl);
  const pawl = await connectTo(fleet.world, wire.url);
  const session = await pawl.session(fleet.session.key);
  wire.deafenWhenSaid('unheard');
  const unheard = session.call('record_once', {}, { idempotencyKey: 'unheard' });
  unheard.catch(() => {});
  await eventually(() => fleet.effects().some(({ phase }) => phase === 'effect'));
  wire.cut();
  wire.heal();
  // Whether the first question is answered or fails, the second one gets the one answer there is.
  const again = await eventually(() => session.call('record_once', {}, { idempotencyKey: 'unheard' }));
  expect(again).toMatchObject({ status: 'success', attempts: 1 });
  const first = await within(
    unheard.catch(({ code }: { code: string }) => ({ code })),
    30_000,
    'the first answer',
  );
  if ('code' in first) expect(first.code).toBe('BACKEND_UNAVAILABLE');
  else expect(first.output).toEqual(again.output);
  expect(fleet.effects()).toHaveLength(2);
});

test('half-open connections, on which nothing comes, without an error, are noticed and replaced', async () => {
  const fleet = await startFleet();
  const [deafInbox, deaf] = await Promise.all([startWire(fleet.world.redisUrl), startWire(fleet.world.redisUrl)]);
  const [one, other] = await Promise.all([
    callBehindWire(fleet, deafInbox, 'deaf-inbox'),
    callBehindWire(fleet, deaf, 'deaf'),
  ]);
  expect(deafInbox.silence({ only: `${fleet.world.prefix}:inbox:` })).toBe(1);
  expect(deaf.silence()).toBe(3);
  await Promise.all([one.settle(), other.settle()]);
  // A producer asks every 5 s whether somebody is there, and takes 5 s without an answer for life.
  const [first, second] = await Promise.all(
    [one, other].map(({ result }) => within(result, 30_000, 'the result over a new connection')),
  );
  expect(first).toMatchObject({ status: 'success', callId: one.callId });
  expect(second).toMatchObject({ status: 'success', callId: other.callId });
  for (const { session } of [one, other]) {
    const after = await eventually(() => session.call('who_runs', {}));
    expect(after).toMatchObject({ status: 'success' });
  }
});
