import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { ClockFollower } from '../../../src/shared/store/clock-follower.ts';

const HOUR_MS = 3_600_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A server that is as far ahead of this machine as the test says, and answers as slowly. */
async function followServer() {
  const server = { aheadMs: 0, answersAfterMs: 2, asked: 0 };
  const follower = new ClockFollower({
    status: 'ready',
    on: (() => {}) as never,
    async time() {
      server.asked += 1;
      const nowMs = Date.now() + server.aheadMs;
      await new Promise((done) => setTimeout(done, server.answersAfterMs));
      return [Math.floor(nowMs / 1_000), (nowMs % 1_000) * 1_000];
    },
  });
  onTestFinished(() => follower.close());
  void follower.read();
  await vi.advanceTimersByTimeAsync(10);
  return { server, errorMs: () => Math.abs(follower.clock.now() - Date.now() - server.aheadMs) };
}

test.each([
  ['is set back', -HOUR_MS],
  ['is set forward, as it seems when this machine has slept', HOUR_MS],
])('a clock of Redis that %s is followed within seconds, however slowly it answers by then', async (_, byMs) => {
  const { server, errorMs } = await followServer();
  expect(errorMs()).toBeLessThan(5);
  server.aheadMs = byMs;
  server.answersAfterMs = 80;
  await vi.advanceTimersByTimeAsync(2_500);
  expect(errorMs()).toBeLessThan(50);
});

test('a slow answer alone changes no clock, and the clock is not read again before it has come', async () => {
  const { server, errorMs } = await followServer();
  server.answersAfterMs = 9_000;
  const { asked } = server;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(server.asked).toBe(asked + 1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(errorMs()).toBeLessThan(5);
});
