import { expect, test } from 'vitest';
import { ChannelBackoff } from '../../../src/workers/approvals/channel-backoff.ts';

test('a webhook that is down is left alone for longer and longer, and then asked by one at a time', () => {
  let nowMs = 0;
  const pauses = new ChannelBackoff({ monotonic: () => nowMs });
  const mayAsk = (url = 'down') => pauses.mayTry(url, 5_000);
  expect([mayAsk(), mayAsk()]).toEqual([true, true]);
  for (const pauseMs of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
    pauses.failed('down');
    // Another one asked at the same time.
    pauses.failed('down');
    nowMs += pauseMs - 1;
    expect([mayAsk(), mayAsk('other')]).toEqual([false, true]);
    nowMs += 1;
    expect([mayAsk(), mayAsk()]).toEqual([true, false]);
  }
  // Whoever asked did not come back.
  nowMs += 5_000;
  expect(mayAsk()).toBe(true);
  pauses.succeeded('down');
  expect([mayAsk(), mayAsk()]).toEqual([true, true]);
});
