import { expect, test } from 'vitest';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { ClientCalls } from '../../../../src/shared/store/connectors/client-calls.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { openBooks } from '../calls.ts';

const HOUR_MS = 3_600_000;

async function published() {
  const { redis, world } = await openBooks();
  const clientCalls = new ClientCalls(redis, world.prefix, new Signatures());
  await clientCalls.join('client', ['tools.scan'], HOUR_MS);
  await clientCalls.next('client', []);
  const call = { callId: 'r0.call', fence: 1, tool: 'tools.scan', arguments: {} };
  expect(await clientCalls.published(call as never, false)).toBe('offered');
  const waiting = `${new FleetKeys(world.prefix).clients}waiting:tools.scan`;
  const take = async () => {
    const renewed = await clientCalls.next('client', [], { id: 'poll', first: true });
    return renewed.kind === 'renewed' ? renewed.call?.callId : renewed.kind;
  };
  return { redis, clientCalls, call, waiting, take };
}

test('a call that waits for a client keeps its place for as long as a worker waits for it', async () => {
  const { redis, clientCalls, call, waiting, take } = await published();
  await redis.pexpire(waiting, 60_000);
  expect(await clientCalls.read(call)).toEqual({ state: 'waiting' });
  expect(await redis.pttl(waiting)).toBeGreaterThan(HOUR_MS / 2);
  expect(await redis.lrange(waiting, 0, -1)).toEqual([call.callId]);
  expect(await take()).toBe(call.callId);
});

test('one whose place was lost gets another, and a client takes it once', async () => {
  const { redis, clientCalls, call, waiting, take } = await published();
  await redis.del(waiting);
  expect(await clientCalls.read(call)).toEqual({ state: 'waiting' });
  expect(await clientCalls.read(call)).toEqual({ state: 'waiting' });
  expect(await redis.pttl(waiting)).toBeGreaterThan(HOUR_MS / 2);
  expect(await redis.lrange(waiting, 0, -1)).toEqual([call.callId]);
  expect(await take()).toBe(call.callId);
  expect(await clientCalls.read(call)).toMatchObject({ state: 'taken' });
  expect(await redis.exists(waiting)).toBe(0);
});
