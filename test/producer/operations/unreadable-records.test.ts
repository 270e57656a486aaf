import { expect, test } from 'vitest';
import { homePartition } from '../../../src/shared/store/redis/keys.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';

test.each(['{"broken', 'null', '[]', '7', ''])(
  'a text in Redis that is no record hides no other one: %j',
  async (garbage) => {
    const pay = scripted('pay', () => Promise.reject(httpError(422)), { effects: 'once' });
    const { session, pawl, audited } = await startFleet({ tools: [pay.tool] });
    const fail = async () => {
      const { callId, result } = pending(await session.submit('pay', {}));
      await result;
      return callId;
    };
    const [broken, odd, whole] = [await fail(), await fail(), await fail()];
    const { ledger, redis, sessions: _, ...backend } = pawl.backend;
    const keys = ledger.access.callKeys(broken);
    await redis.hset(keys.record(broken), 'request', garbage);
    await redis.hset(keys.record(odd), 'attempts', '{"broken\n');
    await redis.lpush(keys.circuitHistory, garbage);
    await redis.lpush(ledger.access.fleet.messages(session.key), garbage);

    expect((await pawl.calls.list()).map(({ callId }) => callId)).toEqual([whole]);
    for (const callId of [broken, odd]) expect(await pawl.read(callId)).toBeUndefined();
    expect((await pawl.deadLetters.list()).deadLetters.map(({ record }) => record.callId)).toEqual([whole]);
    expect(await backend.breakers.history(keys.partition, 10)).toEqual([]);
    expect(await backend.messages.list(session.key)).toEqual([]);
    expect(audited.flatMap((event) => (event.type === 'refused' ? [event.callId] : [])).toSorted()).toEqual(
      [broken, odd].toSorted(),
    );
  },
);

test.each(['{"toString":1}', '7', 'null'])(
  'a schedule, a plan and a batch that are %s hide no other one, and are named',
  async (garbage) => {
    const { session, pawl, audited } = await startFleet({ tools: [echo] });
    const nodes = { a: { tool: 'echo', params: { text: 'a' } } };
    const plans = [await session.plan({ nodes }), await session.plan({ nodes })].map(({ planId }) => planId);
    const { batchId } = await pawl.batches.create({
      entries: [{ envelope: session.envelope(echo, { text: 'a' }, {}) }],
    });
    for (const id of ['a', 'b', 'c'])
      await pawl.schedules.put({ id, session, tool: 'echo', params: { text: 'a' }, cron: '0 2 * * *' });
    const { redis, prefix } = pawl.backend;
    for (const id of [plans[0], batchId]) await redis.hset(`${prefix}:{groups}:group:${id}`, 'definition', garbage);
    await redis.hset(`${prefix}:{schedules}:records`, 'a', garbage);
    await redis.hset(`${prefix}:{schedules}:progress`, 'b', garbage);

    expect((await pawl.plans.list()).map(({ planId }) => planId)).toEqual([plans[1]]);
    expect((await pawl.schedules.list()).map(({ id }) => id)).toEqual(['c']);
    await expect(pawl.batches.read(batchId)).rejects.toMatchObject({ name: 'PawlError' });
    const reasons = JSON.stringify(audited.filter(({ type }) => type === 'refused'));
    for (const name of [plans[0], batchId, 'schedule a', 'schedule-progress b']) expect(reasons).toContain(name);
  },
);

test.each([
  ['request', '{"broken'],
  ['request', 'null'],
  ['attempts', '{"broken\n'],
  ['fence', 'x'],
  ['notBeforeMs', 'x'],
  ['generation', 'x'],
])('a call whose %s is %j holds up no call that is fetched with it', async (field, garbage) => {
  const { session, pawl, startWorker } = await startFleet({ tools: [echo], workers: 0 });
  const submitted = await Promise.all(
    ['a', 'b', 'c'].map(async (text) => pending(await session.submit(echo, { text }, { idempotencyKey: text }))),
  );
  const [first, broken, last] = submitted;
  const { ledger, redis } = pawl.backend;
  const callId = broken?.callId ?? '';
  await redis.hset(ledger.access.callKeys(callId).record(callId), field, garbage);
  await startWorker();
  for (const whole of [first, last]) expect(await whole?.result).toMatchObject({ status: 'success', attempts: 1 });
});

test.each([
  '1|OPEN|{"broken',
  '1|OPEN|{}',
  '1|OPEN|{"state":"OPEN","epoch":1}',
  '2|OPEN|{"state":"OPEN","epoch":1,"openedAtMs":1,"cooldownMs":1,"failures":1}',
  '1|BOGUS|{"state":"BOGUS","epoch":1}',
  '01|OPEN|{}',
  '99999999999999999999|OPEN|{}',
])('a circuit that is %j counts as closed, and an operator can open it', async (garbage) => {
  const { session, pawl } = await startFleet({ tools: [echo] });
  const { ledger, redis } = pawl.backend;
  const { circuits } = ledger.access.keys(homePartition('read-only'));
  await redis.hset(circuits, 'tool:tools.echo', garbage);
  expect(await session.call(echo, { text: 'a' })).toMatchObject({ status: 'success', attempts: 1 });
  expect(await pawl.circuits.list()).toMatchObject([{ key: 'tool:tools.echo', circuit: { state: 'CLOSED' } }]);
  await pawl.circuits.set('force_open', { tool: 'echo' }, 'a test');
  expect(await session.call(echo, { text: 'b' })).toMatchObject({ status: 'circuit_open' });
});

test.each(['7', '{"toString":1}'])(
  'a circuit that was forced open for the reason %s is open without one',
  async (reason) => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const { ledger, redis } = pawl.backend;
    const { circuits } = ledger.access.keys(homePartition('read-only'));
    await redis.hset(circuits, 'tool:tools.echo', `1|FORCED_OPEN|{"state":"FORCED_OPEN","epoch":1,"reason":${reason}}`);
    const [first] = await pawl.circuits.list();
    expect(first?.circuit).toEqual({ state: 'FORCED_OPEN', epoch: 1, reason: expect.any(String) });
    expect(await session.call(echo, { text: 'a' })).toMatchObject({ status: 'circuit_open' });
  },
);
