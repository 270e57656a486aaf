import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { DirectConnector } from '../../../../src/shared/store/redis/ioredis/direct-connector.ts';
import { createWorld } from '../../../helpers/world.ts';

test('answers that come in many pieces arrive whole, one behind the other', async () => {
  const { redisUrl, prefix } = await createWorld();
  const redis = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
  onTestFinished(() => void redis.disconnect());
  const values = [1, 100, 4_096, 65_536, 65_537, 3_000_000, 20, 1_000_000].map((bytes) => randomBytes(bytes));
  await Promise.all(values.map((value, number) => redis.set(`${prefix}:${number}`, value)));
  const answers = await Promise.all(values.map((_value, number) => redis.getBuffer(`${prefix}:${number}`)));
  // What came first is still what it was.
  expect(answers.map((answer, number) => answer?.equals(values[number] as Buffer))).toEqual(values.map(() => true));
});

test('data goes past the stream, and ends as any stream does', async () => {
  const { redisUrl, prefix } = await createWorld();
  const redis = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
  onTestFinished(() => void redis.disconnect());
  await redis.ping();
  const { stream } = redis as unknown as { readonly stream: Socket };
  expect(stream.bytesRead).toBeGreaterThan(0);
  expect(stream.readableLength).toBe(0);
  const closed = new Promise((resolve) => stream.once('close', resolve));
  await redis.call('CLIENT', 'KILL', 'ID', String(await redis.client('ID')), 'SKIPME', 'no').catch(() => {});
  await closed;
  // It has connected anew.
  expect(await redis.ping()).toBe('PONG');
});

test('a connector that is disconnected before it connects does not connect', async () => {
  const connector = new DirectConnector({ path: '/nowhere', disconnectTimeout: 1 });
  const connecting = connector.connect();
  connector.disconnect();
  await expect(connecting).rejects.toThrow('Connection is closed.');
});

test('the reason is kept when no server listens', async () => {
  const connector = new DirectConnector({ path: '/nowhere/at/all.sock', disconnectTimeout: 1 });
  const stream = await connector.connect();
  await new Promise((resolve) => stream.once('close', resolve));
  expect(connector.firstError).toMatchObject({ code: 'ENOENT' });
});
