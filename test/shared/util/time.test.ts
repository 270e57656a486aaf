import { expect, test } from 'vitest';
import { type Clock, SyncedClock, uuidv7 } from '../../../src/shared/util/time.ts';

const VALID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
/** A time later than any real call of this process, so that the wall clock of other tests is behind. */
const FAR_MS = Date.UTC(2100, 0, 1);

function stoppedAt(nowMs: number): Clock & { set(nextMs: number): void } {
  let present = nowMs;
  return {
    now: () => present,
    monotonic: () => present,
    set: (nextMs) => {
      present = nextMs;
    },
  };
}

test('R1: request IDs are UUIDv7 with the time of their creation', () => {
  const before = Date.now();
  const id = uuidv7();
  const atMs = Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
  expect(id).toMatch(VALID);
  expect(atMs).toBeGreaterThanOrEqual(before);
  expect(atMs).toBeLessThanOrEqual(Date.now());
});

test('R1: 20,000 IDs of one millisecond are valid, unique and in order', () => {
  const clock = stoppedAt(FAR_MS);
  const ids = Array.from({ length: 20_000 }, () => uuidv7(clock));
  expect(ids.every((id) => VALID.test(id))).toBe(true);
  expect(new Set(ids).size).toBe(ids.length);
  expect([...ids].sort()).toEqual(ids);
});

test('a clock that is set back does not break the order', () => {
  const clock = stoppedAt(FAR_MS + 60_000);
  const first = uuidv7(clock);
  clock.set(FAR_MS);
  const second = uuidv7(clock);
  clock.set(FAR_MS + 120_000);
  const third = uuidv7(clock);
  expect([third, first, second].sort()).toEqual([first, second, third]);
});

test('a followed clock shows another machine’s time, whatever this machine’s clock shows', () => {
  let monotonicMs = 1_000;
  const followed = new SyncedClock({ now: () => 42, monotonic: () => monotonicMs });
  expect(followed.now()).toBe(42);
  followed.learn(FAR_MS, 10);
  expect(followed.now()).toBe(FAR_MS + 5);
  monotonicMs += 500;
  expect(followed.now()).toBe(FAR_MS + 505);
  expect(followed.ownAheadMs).toBe(42 - FAR_MS - 505);
});

test('a slower reading replaces a quicker one only after a minute, or when the clock may be a different one', () => {
  let monotonicMs = 0;
  const followed = new SyncedClock({ now: () => 0, monotonic: () => monotonicMs });
  followed.learn(1_000, 2);
  followed.learn(9_000, 400);
  expect(followed.now()).toBe(1_001);
  followed.learn(5_000, 400, true);
  expect(followed.now()).toBe(5_200);
  monotonicMs = 60_000;
  followed.learn(70_000, 800);
  expect(followed.now()).toBe(70_400);
});
