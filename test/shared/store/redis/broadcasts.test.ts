import { describe, expect, onTestFinished, test } from 'vitest';
import { isCluster } from '../../../../src/shared/store/redis/address.ts';
import { type Broadcast, publishBroadcast, receiveBroadcasts } from '../../../../src/shared/store/redis/broadcasts.ts';
import { awaitReady, openConnection, type Redis } from '../../../../src/shared/store/redis/connection.ts';
import { startWire } from '../../../helpers/proxy.ts';
import { eventually, signal, within } from '../../../helpers/signal.ts';
import { openBooks } from '../calls.ts';

async function listen(prefix: string, url: string, redis: Redis) {
  const heard: Broadcast[] = [];
  const first = signal();
  let subscriptions = 0;
  const listener = receiveBroadcasts({
    url,
    redis,
    prefix,
    name: 'test',
    onBroadcast: (broadcast) => heard.push(broadcast),
    onSubscribed: () => {
      subscriptions += 1;
      first.fire();
    },
    onError: () => {},
  });
  onTestFinished(() => listener.close());
  await within(first.promise, 30_000, 'the subscription');
  return { heard, listener, subscriptions: () => subscriptions };
}

describe('news that all processes hear', () => {
  test('arrives in order, and only in the world of its prefix', async () => {
    const { redis, world } = await openBooks();
    const [own, other] = [
      await listen(world.prefix, world.redisUrl, redis),
      await listen(`${world.prefix}-b`, world.redisUrl, redis),
    ];
    await publishBroadcast(redis, world.prefix, { type: 'catalogue' });
    await publishBroadcast(redis, world.prefix, { type: 'session', sessionKey: 's' });
    await publishBroadcast(redis, `${world.prefix}-b`, { type: 'catalogue' });
    await eventually(() => own.heard.length === 2 && other.heard.length === 1);
    expect(own.heard).toEqual([{ type: 'catalogue' }, { type: 'session', sessionKey: 's' }]);
  });

  test('arrives in no other database: fleets that share a server hear nothing of each other', async ({ skip }) => {
    const { redis, world } = await openBooks();
    skip(isCluster(world.redisUrl), 'a cluster has one database');
    const url = `${(await startWire(world.redisUrl)).url}/1`;
    const elsewhere = openConnection({ url, name: `${world.prefix}:test`, mode: 'fail-fast' });
    onTestFinished(() => elsewhere.disconnect());
    await awaitReady(elsewhere, 10_000);
    const [own, other] = [
      await listen(world.prefix, world.redisUrl, redis),
      await listen(world.prefix, url, elsewhere),
    ];
    await publishBroadcast(redis, world.prefix, { type: 'switches' });
    await publishBroadcast(elsewhere, world.prefix, { type: 'catalogue' });
    await publishBroadcast(redis, world.prefix, { type: 'specs' });
    await eventually(() => own.heard.length >= 2 && other.heard.length >= 1);
    expect(own.heard).toEqual([{ type: 'switches' }, { type: 'specs' }]);
    expect(other.heard).toEqual([{ type: 'catalogue' }]);
  });

  test('after a cut connection it is subscribed again, and says so: what was published meanwhile must be read', async () => {
    const { redis, world } = await openBooks();
    const { heard, subscriptions } = await listen(world.prefix, world.redisUrl, redis);
    const list = String(await redis.client('LIST'));
    const clientId = list
      .split('\n')
      .find((line) => line.includes(`name=${world.prefix}:news:test`))
      ?.match(/^id=(\d+)/)?.[1];
    await redis.client('KILL', 'ID', clientId ?? '');
    await eventually(() => subscriptions() === 2);
    await publishBroadcast(redis, world.prefix, { type: 'catalogue' });
    await eventually(() => heard.length === 1);
  });

  test('closing leaves no connection', async () => {
    const { redis, world } = await openBooks();
    const { listener } = await listen(world.prefix, world.redisUrl, redis);
    listener.close();
    await eventually(async () => !(await world.connections()).some((name) => name.includes(':news:')));
  });
});
