import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Command } from 'ioredis';
import { expect, test } from 'vitest';
import { digest } from '../../../../src/shared/schema/canonical-json.ts';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { startScript } from '../../../helpers/process.ts';
import { createWorld } from '../../../helpers/world.ts';

const require = createRequire(import.meta.url);
const ANSWERS = 100;
const ANSWER_BYTES = 50_000;

test('ioredis’ own method is the one that is stood in for', () => {
  const source = readFileSync(require.resolve('ioredis/built/Command.js'), 'utf8');
  const [, method = ''] = /\n {4}(initPromise\(\) \{\n.*?\n {4}\})\n/s.exec(source) ?? [];
  expect(method).toContain('this.reject = (err) => {');
  expect(digest(method)).toBe('lA5C6PdAz0h4WSPGjAZZSQKGOQQSxTtV13_qfyB2Q-Q');
});

test('an answer lives no longer than its caller', async () => {
  const { redisUrl, prefix } = await createWorld();
  const redis = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
  await redis.set(`${prefix}:answer`, 'x'.repeat(ANSWER_BYTES));
  await redis.quit();
  const script = new URL('../../../helpers/fixtures/large-answers.ts', import.meta.url);
  const asking = startScript(script, [redisUrl, `${prefix}:answer`, String(ANSWERS)]);
  expect(await asking.ended).toEqual({ code: 0, signal: null });
  expect(Number(asking.stdout())).toBeLessThan(0.2 * ANSWERS * ANSWER_BYTES);
});

test('a command answers, fails and is called back as ioredis says', async () => {
  const { redisUrl, prefix } = await createWorld();
  const redis = openConnection({ url: redisUrl, name: prefix, mode: 'fail-fast' });
  const key = `${prefix}:hash`;
  await redis.hset(key, { a: 1, b: 2 });
  await redis.hset(key, new Map([['c', 3]]));
  expect(await redis.hgetall(key)).toEqual({ a: '1', b: '2', c: '3' });
  await expect(redis.incr(key)).rejects.toThrow('WRONGTYPE');
  const called = Promise.withResolvers<unknown>();
  redis.hget(key, 'a', (error, answer) => called.resolve([error, answer]));
  expect(await called.promise).toEqual([null, '1']);
  await redis.quit();
});

test('a program that wants to see where its commands come from does', () => {
  const errorStack = new Error('here');
  const command = new Command('get', ['key'], { errorStack });
  command.promise.catch(() => {});
  command.reject(new Error('there'));
  return expect(command.promise).rejects.toMatchObject({ message: 'there', stack: expect.stringContaining('here') });
});
