import { expect, onTestFinished, test } from 'vitest';
import { awaitReady, openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { Subscription } from '../../../../src/shared/store/redis/subscription.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { eventually, within } from '../../../helpers/signal.ts';
import { createWorld } from '../../../helpers/world.ts';

test('a message that cannot be read is reported, and costs none that comes with it', async () => {
  const { redisUrl: url, prefix } = await createWorld();
  const redis = openConnection({ url, name: `${prefix}:test`, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  await awaitReady(redis, 3_000);
  const subscribed = Promise.withResolvers<void>();
  const heard = Promise.withResolvers<unknown>();
  const errors: Error[] = [];
  const subscription = Subscription.open({
    url,
    name: `${prefix}:subscription`,
    channels: () => [`${prefix}:channel`],
    onMessage: (text) => heard.resolve(JSON.parse(text)),
    onSubscribed: subscribed.resolve,
    onError: (error) => errors.push(error),
  });
  onTestFinished(() => subscription.close());
  await within(subscribed.promise, 30_000, 'the subscription');
  await redis.multi().publish(`${prefix}:channel`, 'no JSON').publish(`${prefix}:channel`, '7').exec();
  expect(await within(heard.promise, 30_000, 'the second message')).toBe(7);
  expect(errors).toMatchObject([{ name: 'SyntaxError' }]);
});

test('a subscriber that was refused a channel receives it as soon as it may', async () => {
  const { redisUrl, prefix } = await createWorld();
  const user = await createUser(redisUrl, prefix, ['~*', '+@all', 'resetchannels']);
  const subscribed = Promise.withResolvers<void>();
  const errors: Error[] = [];
  const subscription = Subscription.open({
    url: user.url,
    name: `${prefix}:subscription`,
    channels: () => [`${prefix}:channel`],
    onMessage: () => {},
    onSubscribed: subscribed.resolve,
    onError: (error) => errors.push(error),
  });
  onTestFinished(() => subscription.close());
  await eventually(() => errors.length > 0);
  expect(errors[0]).toMatchObject({ code: 'BACKEND_UNAVAILABLE', message: expect.stringContaining('NOPERM') });
  await user.give(`&${prefix}:*`);
  await within(subscribed.promise, 30_000, 'the subscription');
});
