import { expect, test } from 'vitest';
import { Seals } from '../../../../src/shared/signing/signatures.ts';
import { Handovers } from '../../../../src/shared/store/connectors/client-calls.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { openBooks } from '../calls.ts';

const HOUR_MS = 3_600_000;

async function offered() {
  const { redis, world } = await openBooks();
  const handovers = new Handovers(redis, world.prefix, new Seals());
  await handovers.join('client', ['tools.scan'], HOUR_MS);
  await handovers.next('client', []);
  const call = { callId: 'r0.call', fence: 1, tool: 'tools.scan', arguments: {} };
  expect(await handovers.offer(call as never, false)).toBe('offered');
  const waiting = `${new FleetKeys(world.prefix).clients}waiting:tools.scan`;
  const take = async () => {
    const renewed = await handovers.next('client', [], { id: 'poll', first: true });
    return renewed.kind === 'renewed' ? renewed.call?.callId : renewed.kind;
  };
  return { redis, handovers, call, waiting, take };
}

test('a call that waits for a client keeps its place for as long as somebody waits for it', async () => {
  const { redis, handovers, call, waiting, take } = await offered();
  await redis.pexpire(waiting, 60_000);
  expect(await handovers.look(call)).toEqual({ state: 'waiting' });
  expect(await redis.pttl(waiting)).toBeGreaterThan(HOUR_MS / 2);
  expect(await redis.lrange(waiting, 0, -1)).toEqual([call.callId]);
  expect(await take()).toBe(call.callId);
});

test('one whose place was lost gets another, and a client takes it once', async () => {
  const { redis, handovers, call, waiting, take } = await offered();
  await redis.del(waiting);
  expect(await handovers.look(call)).toEqual({ state: 'waiting' });
  expect(await handovers.look(call)).toEqual({ state: 'waiting' });
  expect(await redis.pttl(waiting)).toBeGreaterThan(HOUR_MS / 2);
  expect(await redis.lrange(waiting, 0, -1)).toEqual([call.callId]);
  expect(await take()).toBe(call.callId);
  expect(await handovers.look(call)).toMatchObject({ state: 'taken' });
  expect(await redis.exists(waiting)).toBe(0);
});
