import { expect, test } from 'vitest';
import { onAbort, unlessAborted, withinMs } from '../../../src/shared/util/wait.ts';

const forever = new Promise<never>(() => {});

test('a wait within a time limit gives the value, the failure, or nothing, and stops its timer', async () => {
  const timers: { run: () => void; afterMs: number; stopped: boolean }[] = [];
  const schedule = (run: () => void, afterMs: number) => {
    const timer = { run, afterMs, stopped: false };
    timers.push(timer);
    return () => {
      timer.stopped = true;
    };
  };
  expect(await withinMs(Promise.resolve('value'), 10, schedule)).toBe('value');
  await expect(withinMs(Promise.reject(new Error('failed')), 20, schedule)).rejects.toThrow('failed');
  const late = withinMs(forever, 30, schedule);
  timers[2]?.run();
  expect(await late).toBeUndefined();
  expect(await withinMs(Promise.resolve('value'), undefined, schedule)).toBe('value');
  expect(timers.map(({ afterMs, stopped }) => [afterMs, stopped])).toEqual([10, 20, 30].map((ms) => [ms, true]));
});

test('an abort is heard once, before and after it, and no more once the listener is removed', async () => {
  const controller = new AbortController();
  const heard: string[] = [];
  onAbort(controller.signal, () => heard.push('removed'))();
  onAbort(controller.signal, () => heard.push('before'));
  const waiting = unlessAborted(forever, controller.signal);
  expect(await unlessAborted(Promise.resolve('value'), controller.signal)).toBe('value');
  controller.abort(new Error('enough'));
  onAbort(controller.signal, () => heard.push('after'));
  await expect(waiting).rejects.toThrow('enough');
  await expect(unlessAborted(forever, controller.signal)).rejects.toThrow('enough');
  expect(heard).toEqual(['before', 'after']);
  expect(await unlessAborted(Promise.resolve('value'), undefined)).toBe('value');
});
