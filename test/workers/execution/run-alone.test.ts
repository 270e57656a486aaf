import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { type Clock, systemClock } from '../../../src/shared/util/time.ts';
import { RunningAttempts } from '../../../src/workers/attempt/running-attempts.ts';
import { Solitude } from '../../../src/workers/execution/run-alone.ts';
import { ConcurrencyLimiter } from '../../../src/workers/queue/concurrency-slots.ts';

const clock: Clock = systemClock;

function setUp() {
  const running = new RunningAttempts(clock, 60_000, 'worker');
  const slots = new ConcurrencyLimiter(4);
  const timers: (() => void)[] = [];
  const solitude = new Solitude({
    running,
    pause: () => slots.pause(),
    resume: () => slots.resume(),
    schedule: (fire) => {
      timers.push(fire);
      return () => {};
    },
  });
  return { running, slots, solitude, timers, attempt: (name: string) => running.add(name, name) };
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
