import { expect, test } from 'vitest';
import { startWire } from '../helpers/proxy.ts';
import { eventually } from '../helpers/signal.ts';
import { connectTo, startFleet, tallyOf } from './fixtures/fleet.ts';
import type { Batch } from './fixtures/producer.ts';

test('a producer killed after it enqueued, before it heard the result, loses nothing', async () => {
  const fleet = await startFleet();
  const gate = fleet.gate('go');
  const params = { label: 'kept', gate: gate.path };
  const batch: Batch = { session: fleet.session.key, count: 1, tool: 'record_once', params, key: 'k' };
  const doomed = await fleet.addProducer();
  doomed.say(JSON.stringify(batch));
  const accepted = await doomed.line(/^accepted /);
  const callId = accepted.slice('accepted '.length);
  await eventually(() => fleet.effects(callId).length === 1);
  await doomed.kill();

  // While it runs: the same key, from a new process, joins the same call.
  const second = await fleet.addProducer();
  const joining = tallyOf(second, batch);
  expect(await second.line(/^accepted /)).toBe(accepted);
  gate.open();
  const joined = await joining;
  expect(joined).toMatchObject({ errors: {}, callIds: [callId] });
  // Later: by its ID, and by its key.
  const later = await (await connectTo(fleet.world)).result(callId);
  expect(joined.outputs).toEqual({ [JSON.stringify(later?.output?.content)]: 1 });
  expect(await fleet.session.call('record_once', params, { idempotencyKey: 'k' })).toMatchObject({
    ...{ callId, fromCache: true, output: later?.output },
  });
  expect(fleet.effects().map(({ phase }) => phase)).toEqual(['begin', 'effect']);
});

test('a producer killed before it hears of its own claim leaves a whole call or none', async () => {
  const fleet = await startFleet();
  const wire = await startWire(fleet.world.redisUrl);
  const batch: Batch = { session: fleet.session.key, count: 1, tool: 'record_once', params: {}, key: 'unheard' };
  const doomed = await fleet.addProducer({ REDIS_URL: wire.url });
  wire.deafenWhenSaid('unheard');
  doomed.say(JSON.stringify(batch));
  const record = await eventually(async () => (await fleet.pawl.calls.list({ sessionKey: fleet.session.key }))[0]);
  await doomed.kill();
  expect(doomed.stdout()).not.toContain('accepted');

  const result = await fleet.session.call('record_once', {}, { idempotencyKey: 'unheard' });
  expect(result).toMatchObject({ status: 'success', callId: record.callId, attempts: 1 });
  expect(await fleet.pawl.result(record.callId)).toMatchObject({ output: result.output });
  expect(fleet.effects(record.callId).map(({ phase }) => phase)).toEqual(['begin', 'effect']);
});

test('a producer killed between the end of its call and reading the result loses nothing', async () => {
  const fleet = await startFleet();
  const gate = fleet.gate('go');
  const params = { gate: gate.path };
  const batch: Batch = { session: fleet.session.key, count: 1, tool: 'record_once', params, key: 'k' };
  const doomed = await fleet.addProducer();
  doomed.say(JSON.stringify(batch));
  const callId = (await doomed.line(/^accepted /)).slice('accepted '.length);
  doomed.pause();
  gate.open();
  await eventually(async () => (await fleet.pawl.read(callId))?.state === 'done');
  await doomed.kill();
  expect(doomed.stdout()).not.toContain('tally');
  const byId = await fleet.pawl.result(callId);
  expect(byId).toMatchObject({ status: 'success', callId, attempts: 1 });
  expect(await fleet.session.call('record_once', params, { idempotencyKey: 'k' })).toMatchObject({
    ...{ callId, fromCache: true, output: byId?.output },
  });
  expect(fleet.effects()).toHaveLength(2);
});
