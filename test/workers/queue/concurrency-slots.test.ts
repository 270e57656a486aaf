import { expect, test } from 'vitest';
import { ConcurrencyLimiter } from '../../../src/workers/queue/concurrency-slots.ts';

const [ONE, OTHER] = [{}, {}];

test('slots go to the waiting queues in the order in which they asked, and to no other queue meanwhile', async () => {
  const slots = new ConcurrencyLimiter(2);
  expect(slots.acquire(ONE)).toBeUndefined();
  expect(slots.acquireFree(5)).toBe(1);
  const got: string[] = [];
  const waiting = ['first', 'second'].map((name) => slots.acquire(ONE)?.then(() => got.push(name)));
  slots.release(1);
  await waiting[0];
  expect(got).toEqual(['first']);
  expect(slots.acquireFree(1)).toBe(0);
  slots.release(2);
  await waiting[1];
  expect(got).toEqual(['first', 'second']);
  expect(slots.free).toBe(1);
  expect(slots.acquireFree(5)).toBe(1);
});

test('jobs that came unasked use slots that are not there, and others wait until these are given back', async () => {
  const slots = new ConcurrencyLimiter(1);
  slots.occupy(2);
  expect(slots.free).toBe(-1);
  let got = false;
  const waiting = slots.acquire(ONE)?.then(() => {
    got = true;
  });
  slots.release(1);
  await Promise.resolve();
  expect(got).toBe(false);
  slots.release(1);
  await waiting;
  expect(got).toBe(true);
});

test('a job may leave its slot to the next one of its queue while no other queue waits for one', async () => {
  const slots = new ConcurrencyLimiter(1);
  expect(slots.acquireFree(1)).toBe(1);
  expect(slots.mayKeep(ONE)).toBe(true);
  const own = slots.acquire(ONE);
  expect(slots.mayKeep(ONE)).toBe(true);
  expect(slots.mayKeep(OTHER)).toBe(false);
  slots.release(1);
  await own;
  slots.occupy(1);
  expect(slots.mayKeep(ONE)).toBe(false);
});
