import { expect, test } from 'vitest';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

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
