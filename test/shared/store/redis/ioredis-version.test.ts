import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { AbstractConnector, Command, Redis } from 'ioredis';
import { expect, test } from 'vitest';

/** The version whose private parts were read. See `src/shared/store/redis/ioredis/README.md`. */
const VERSION = '6.0.0';
const README = new URL('../../../../src/shared/store/redis/ioredis/README.md', import.meta.url);

test('the installed ioredis is the version for which the patches were written', () => {
  const require = createRequire(import.meta.url);
  const { version } = JSON.parse(readFileSync(require.resolve('ioredis/package.json'), 'utf8')) as { version: string };
  expect(version).toBe(VERSION);
  expect(readFileSync(README, 'utf8')).toContain(`ioredis ${VERSION}`);
});

test('ioredis has the private parts that the patches use', () => {
  const redis = new Redis({ lazyConnect: true }) as unknown as Record<string, unknown>;
  for (const queue of ['commandQueue', 'offlineQueue'])
    expect(redis[queue], queue).toMatchObject({ length: 0, peekAt: expect.any(Function) });
  for (const method of ['flushQueue', 'sendCommand']) expect(redis[method], method).toBeTypeOf('function');

  const prototype = Command.prototype as unknown as Record<string, unknown>;
  for (const method of ['initPromise', 'stringifyArguments', '_convertValue', '_clearTimers', 'setTimeout', 'getSlot'])
    expect(prototype[method], method).toBeTypeOf('function');
  expect(Command).toHaveProperty('_transformer.argument');

  const connector = new (class extends AbstractConnector {
    connect(): never {
      throw new Error('a connector of this test does not connect');
    }
  })(1);
  expect(connector).toMatchObject({ connecting: false, disconnect: expect.any(Function) });
});
