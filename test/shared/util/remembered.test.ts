import { expect, test } from 'vitest';
import { Remembered } from '../../../src/shared/util/remembered.ts';

function remembered(answers: Promise<number>[]) {
  let nowMs = 0;
  let readings = 0;
  const read = () => answers[readings++] ?? Promise.reject(new Error('no further answer'));
  const value = new Remembered(read, 100, { monotonic: () => nowMs });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { value, pass, readings: () => readings };
}

test('callers share one reading until it is too old', async () => {
  const { value, pass, readings } = remembered([Promise.resolve(1), Promise.resolve(2)]);
  expect(await Promise.all([value.get(), value.get()])).toEqual([1, 1]);
  pass(100);
  expect(await value.get()).toBe(1);
  expect(readings()).toBe(1);
  pass(1);
  expect(await value.get()).toBe(2);
});

test('a failed reading fails for those who wait for it, and the next caller reads again', async () => {
  const { value, readings } = remembered([Promise.reject(new Error('Redis is away')), Promise.resolve(2)]);
  const waiting = [value.get(), value.get()];
  for (const each of waiting) await expect(each).rejects.toThrow('Redis is away');
  expect(await value.get()).toBe(2);
  expect(readings()).toBe(2);
});

test('a late failure of an earlier reading does not forget the newer value', async () => {
  const { promise, reject } = Promise.withResolvers<number>();
  const { value, pass, readings } = remembered([promise, Promise.resolve(2)]);
  const earlier = value.get();
  pass(101);
  const later = value.get();
  reject(new Error('Redis was away'));
  await expect(earlier).rejects.toThrow('Redis was away');
  expect(await later).toBe(2);
  expect(await value.get()).toBe(2);
  expect(readings()).toBe(2);
});

test('what may have changed is read again', async () => {
  const { value } = remembered([Promise.resolve(1), Promise.resolve(2)]);
  expect(await value.get()).toBe(1);
  value.forget();
  expect(await value.get()).toBe(2);
});
