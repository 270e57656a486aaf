import { expect, test } from 'vitest';
import { Slots } from '../../src/workers/slots.ts';

test('slots go to those who wait in the order in which they asked, and to nobody else meanwhile', async () => {
  const slots = new Slots(2);
  expect(slots.take()).toBeUndefined();
  expect(slots.takeNow(5)).toBe(1);
  const got: string[] = [];
  const waiting = ['first', 'second'].map((name) => slots.take()?.then(() => got.push(name)));
  slots.give(1);
  await waiting[0];
  expect(got).toEqual(['first']);
  expect(slots.takeNow(1)).toBe(0);
  slots.give(2);
  await waiting[1];
  expect(got).toEqual(['first', 'second']);
  expect(slots.free).toBe(1);
  expect(slots.takeNow(5)).toBe(1);
});

test('jobs that came unasked use slots that are not there, and others wait until these are given back', async () => {
  const slots = new Slots(1);
  slots.use(2);
  expect(slots.free).toBe(-1);
  let got = false;
  const waiting = slots.take()?.then(() => {
    got = true;
  });
  slots.give(1);
  await Promise.resolve();
  expect(got).toBe(false);
  slots.give(1);
  await waiting;
  expect(got).toBe(true);
});
