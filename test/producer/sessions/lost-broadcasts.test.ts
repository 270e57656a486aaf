/** Broadcasts keep the copies of sessions up to date; a copy is not used while they are lost. */
import { expect, test } from 'vitest';
import { awaitReady, closeConnection, openConnection } from '../../../src/shared/store/redis/connection.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';

test('a session that another process closed while broadcasts could not arrive takes no call', async () => {
  const { world, session, openProducer } = await startFleet({ tools: [echo] });
  const wire = await startWire(world.redisUrl);
  const other = await openProducer({ redisUrl: wire.url });
  const held = await other.session(session.key);
  expect(await held?.call(echo, { text: 'open' })).toMatchObject({ status: 'success' });
  const redis = openConnection({ url: world.redisUrl, name: 'killer', mode: 'fail-fast' });
  await awaitReady(redis, 10_000);
  const subscribers = async () =>
    String(await redis.client('LIST'))
      .split('\n')
      .filter((line) => line.includes(`name=${world.prefix}:news:producer `));
  const before = await subscribers();
  // Its other connections stay open, and the subscription cannot be made again.
  wire.refuse();
  for (const line of before) await redis.client('KILL', 'ID', Number(/^id=(\d+)/.exec(line)?.[1]));
  await eventually(async () => (await subscribers()).length === 1, {
    what: 'the subscription of the other producer alone',
  });
  closeConnection(redis);
  await session.close();
  expect(await held?.call(echo, { text: 'late' })).toMatchObject({
    status: 'error',
    error: { code: 'SESSION_CLOSED' },
  });
  wire.heal();
});
