import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { startScript } from './process.ts';
import { eventually, isGone, signal, within } from './signal.ts';
import { createWorld } from './world.ts';

const ECHO = new URL('./fixtures/echo.ts', import.meta.url);

test('two worlds share a server and no key, and leave none', async () => {
  const [one, other] = await Promise.all([createWorld(), createWorld()]);
  expect(one.prefix).not.toBe(other.prefix);
  const redis = new Redis(one.redisUrl, { connectionName: `${one.prefix}-client` });
  await redis.set(`{${one.prefix}:tier}:a`, '1');
  await redis.set(`${other.prefix}:b`, '1');
  expect(await one.keys()).toEqual([`{${one.prefix}:tier}:a`]);
  expect(await one.connections()).toEqual([`${one.prefix}-client`]);
  await one.dispose();
  await one.dispose();
  expect(await other.keys()).toEqual([`${other.prefix}:b`]);
  expect(await redis.exists(`{${one.prefix}:tier}:a`)).toBe(0);
  await redis.quit();
});

test('a process gives its lines, past and to come, and its ending', async () => {
  const echo = startScript(ECHO, ['first']);
  expect(await echo.line('first')).toBe('first');
  const coming = echo.line(/^sec/);
  echo.say('second');
  expect(await coming).toBe('second');
  echo.endInput();
  expect(await echo.ended).toEqual({ code: 3, signal: null });
  await expect(echo.line('never')).rejects.toThrow(/ended with code 3 without the line[\s\S]*second/);
});

test('a paused process stands still until it is resumed, and kill -9 ends it', async () => {
  const echo = startScript(ECHO, ['first']);
  await echo.line('first');
  echo.pause();
  echo.say('while paused');
  await expect(echo.line('while paused', { deadlineMs: 100 })).rejects.toThrow('within 100 ms no sign of a line');
  echo.resume();
  await echo.line('while paused');
  expect(await echo.kill()).toEqual({ code: null, signal: 'SIGKILL' });
  expect(isGone(echo.pid)).toBe(true);
});

test('waiting ends with the sign, or with a message that says what was missing', async () => {
  let looks = 0;
  const look = () => {
    looks += 1;
    return looks > 2 && 'seen';
  };
  expect(await eventually(look)).toBe('seen');
  const refuse = () => {
    throw new Error('not yet');
  };
  await expect(eventually(refuse, { deadlineMs: 20, what: 'peace' })).rejects.toThrow(
    'no sign of peace within 20 ms: not yet',
  );
  const { promise, fire } = signal<number>();
  fire(1);
  expect(await within(promise, 1_000, 'one')).toBe(1);
  await expect(within(signal().promise, 10, 'none')).rejects.toThrow('within 10 ms no sign of none');
});
