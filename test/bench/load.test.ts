import { expect, test } from 'vitest';
import { fill, runLoad } from '../../bench/load.ts';
import type { Load } from '../../bench/protocol.ts';
import { replyText } from '../../bench/reply-text.ts';
import { noteRun, runAtMs, runCount, runsBetween } from '../../bench/runs.ts';

const load = { resultBytes: 3, keys: 'fresh', sharedKey: 'shared', startAtMs: 0 } as const satisfies Omit<Load, 'pace'>;

test('at a fixed rate, calls that a standstill held up count from when they should have started', async () => {
  const BLOCKED_MS = 200;
  let made = 0;
  const report = await runLoad(
    async () => {
      made += 1;
      // The first call stops the whole process; the other nineteen are due within the next 20 ms.
      for (const startedMs = performance.now(); made === 1 && performance.now() - startedMs < BLOCKED_MS; );
      return 'yes';
    },
    { ...load, pace: { perSecond: 1_000, durationMs: 20 } },
  );
  expect(report.calls).toBe(20);
  expect(report.p50Ms).toBeGreaterThanOrEqual(BLOCKED_MS - 20);
});

test('calls in lanes have so many in flight, and each its own key', async () => {
  const keys = new Set<string>();
  let [inFlight, most] = [0, 0];
  const report = await runLoad(
    async (key) => {
      keys.add(key);
      inFlight += 1;
      most = Math.max(most, inFlight);
      await new Promise(setImmediate);
      inFlight -= 1;
      return 'yes';
    },
    { ...load, pace: { inFlight: 4, until: { calls: 40 } } },
  );
  expect({ calls: report.calls, keys: keys.size, most }).toEqual({ calls: 40, keys: 40, most: 4 });
});

test('calls of one key share the key of the round', async () => {
  const keys = new Set<string>();
  const call = async (key: string) => {
    keys.add(key);
    return 'yes';
  };
  await runLoad(call, { ...load, keys: 'same', pace: { inFlight: 4, until: { calls: 8 } } });
  expect([...keys]).toEqual(['shared']);
});

test('a result of another length than asked for ends the benchmark', async () => {
  const call = async () => 'no';
  await expect(runLoad(call, { ...load, pace: { inFlight: 1, until: { calls: 1 } } })).rejects.toThrow(
    'a result of 3 B came back with 2 B',
  );
});

test.each([0, 1, 200, 32_768])(
  'the text of a result of %i B has that length, and is the same in every process',
  (bytes) => {
    expect(replyText(bytes)).toHaveLength(bytes);
    expect('uwaww roiaaoffit').toContain(replyText(bytes).slice(0, 16));
  },
);

test('filling a queue submits so many calls', async () => {
  let handedIn = 0;
  await fill(1_000, async () => {
    handedIn += 1;
  });
  expect(handedIn).toBe(1_000);
});

test('runs are counted within a span, without its ends', () => {
  const before = runCount();
  for (let number = 0; number < 3; number += 1) {
    // So that no two begin at the same moment.
    for (const startedMs = performance.now(); performance.now() - startedMs < 0.1; );
    noteRun();
  }
  const [first, second, third] = [1, 2, 3].map((number) => runAtMs(before + number) ?? Number.NaN);
  expect(runCount() - before).toBe(3);
  expect(runAtMs(before + 4)).toBeUndefined();
  expect(runsBetween((first ?? 0) - 1, (third ?? 0) + 1)).toBe(3);
  expect(runsBetween(first ?? 0, third ?? 0)).toBe(1);
  expect(runsBetween(second ?? 0, second ?? 0)).toBe(0);
});
