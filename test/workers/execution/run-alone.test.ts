import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { type Clock, systemClock } from '../../../src/shared/util/time.ts';
import { RunningAttempts } from '../../../src/workers/attempt/running-attempts.ts';
import { Solitude, Suspects } from '../../../src/workers/execution/run-alone.ts';
import { ConcurrencyLimiter } from '../../../src/workers/queue/concurrency-slots.ts';

const clock: Clock = systemClock;

function setUp() {
  const running = new RunningAttempts(clock, 60_000, 'worker');
  const slots = new ConcurrencyLimiter(4);
  const timers: (() => void)[] = [];
  const waits: number[] = [];
  const solitude = new Solitude((fire, ms) => {
    timers.push(fire);
    waits.push(ms);
    return () => {};
  });
  solitude.join({ running, pause: () => slots.pause(), resume: () => slots.resume() });
  return { running, slots, solitude, timers, waits, attempt: (name: string) => running.add(name, name) };
}

test('a suspect waits until nothing else runs, and no job is taken meanwhile', async () => {
  const { running, slots, solitude, attempt } = setUp();
  const [other, suspect] = [attempt('other'), attempt('suspect')];
  const entered = solitude.enter(suspect);
  expect([solitude.isReserved, solitude.isHeldBy(suspect), slots.free, slots.acquireFree(1)]).toEqual([
    true,
    false,
    0,
    0,
  ]);
  const next = slots.acquire({});
  running.remove(other);
  expect(await entered).toBe(true);
  expect(solitude.isHeldBy(suspect)).toBe(true);
  solitude.leave(suspect);
  await next;
  expect([solitude.isReserved, slots.free]).toEqual([false, 3]);
  running.close();
});

test('a suspect waits for the other workers of its process too, and those that start meanwhile take no jobs', async () => {
  const { running, slots, solitude, attempt } = setUp();
  const neighbour = setUp();
  const join = ({ running, slots }: typeof neighbour) =>
    solitude.join({ running, pause: () => slots.pause(), resume: () => slots.resume() });
  const leave = join(neighbour);
  const other = neighbour.attempt('other');
  const suspect = attempt('suspect');
  const entered = solitude.enter(suspect);
  expect([solitude.isHeldBy(suspect), slots.free, neighbour.slots.free]).toEqual([false, 0, 0]);
  neighbour.running.remove(other);
  expect(await entered).toBe(true);
  const late = setUp();
  join(late);
  expect([late.slots.free, neighbour.slots.free]).toEqual([0, 0]);
  leave();
  solitude.leave(suspect);
  expect([slots.free, late.slots.free]).toEqual([4, 4]);
  for (const worker of [running, neighbour.running, late.running]) worker.close();
});

test('a suspect whose neighbours do not end, or that is ended itself, gives way', async () => {
  const { running, slots, solitude, timers, attempt } = setUp();
  attempt('other');
  const suspect = attempt('suspect');
  const late = solitude.enter(suspect);
  for (const fire of timers) fire();
  expect(await late).toBe(false);
  const aborted = solitude.enter(suspect);
  expect(await solitude.enter(attempt('second'))).toBe(false);
  suspect.abort(new PawlError('DRAINED'));
  expect(await aborted).toBe(false);
  expect([solitude.isReserved, slots.free]).toEqual([false, 4]);
  running.close();
});

test('a suspect waits longer each time in vain, so that it runs at last where all calls are long', async () => {
  const { running, solitude, timers, waits, attempt } = setUp();
  const [other, suspect] = [attempt('other'), attempt('suspect')];
  for (let tries = 0; tries < 7; tries += 1) {
    const entered = solitude.enter(suspect);
    timers.at(-1)?.();
    expect(await entered).toBe(false);
  }
  const entered = solitude.enter(suspect);
  running.remove(other);
  expect(await entered).toBe(true);
  solitude.leave(suspect);
  expect(await solitude.enter(suspect)).toBe(true);
  expect(waits).toEqual([10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 320_000, 320_000, 10_000]);
  running.close();
});

test('a process that has just started runs no suspect alone yet, as many die at their first calls where workers are killed', async () => {
  const running = new RunningAttempts(clock, 60_000, 'worker');
  let nowMs = 1_000;
  const solitude = new Solitude(undefined, () => nowMs);
  solitude.join({ running, pause: () => {}, resume: () => {} });
  const suspects = new Suspects(solitude);
  const suspect = running.add('suspect', 'suspect');
  expect(await suspects.admit(suspect, true)).toBe(3_000);
  expect([suspects.isSuspect(suspect), solitude.isReserved]).toEqual([false, false]);
  nowMs += 1_000;
  expect(await suspects.admit(suspect, true)).toBe(2_000);
  // Beside other calls it proves nothing, and need not wait.
  const other = running.add('other', 'other');
  expect(await suspects.admit(other, false)).toBeUndefined();
  suspects.leave(other);
  running.remove(other);
  nowMs += 2_000;
  expect(await suspects.admit(suspect, true)).toBeUndefined();
  expect(suspects.isAlone(suspect)).toBe(true);
  running.close();
});
