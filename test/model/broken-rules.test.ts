/** A model that finds nothing proves nothing: each rule is broken once, on purpose, and found. */
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import type * as call from '../../src/shared/calls/call-state.ts';
import type * as retry from '../../src/shared/retries/retry.ts';
import type { DedupeStore } from '../../src/testing.ts';
import { nothingBreaks } from './commands.ts';
import type { BrokenStore } from './fleet.ts';

const SCHEDULES = 5_000;
const SEED = 1;

const { broken } = vi.hoisted(() => ({ broken: { recovery: false, retry: false } }));

vi.mock('../../src/shared/calls/call-state.ts', async (original) => {
  const real = await original<typeof call>();
  return {
    ...real,
    decideRecovery: (...args: Parameters<typeof real.decideRecovery>) =>
      broken.recovery ? { kind: 'run-again' } : real.decideRecovery(...args),
  };
});

vi.mock('../../src/shared/retries/retry.ts', async (original) => {
  const real = await original<typeof retry>();
  return {
    ...real,
    decideRetry: (failed: retry.FailedAttempt, ...rest: [retry.RetryPolicy, () => number]) =>
      real.decideRetry(broken.retry ? { ...failed, expectedRetrySafe: true } : failed, ...rest),
  };
});

beforeAll(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterAll(() => void vi.useRealTimers());
afterEach(() => Object.assign(broken, { recovery: false, retry: false }));

async function found(store?: BrokenStore): Promise<string> {
  const result = await fc.check(nothingBreaks(store), { numRuns: SCHEDULES, seed: SEED, endOnFailure: true });
  return String(result.errorInstance ?? 'nothing');
}

test('a settle without the check of its fence is found', async () => {
  const unfenced = (store: DedupeStore): Partial<DedupeStore> => ({
    compareAndSet: async (key, version, next) => {
      const newest = next.state === 'inflight' ? version : (await store.get(key))?.version;
      return store.compareAndSet(key, newest ?? version, next);
    },
  });
  expect(await found(unfenced)).toMatch(/I3: .: told .*, and another/);
});

test('a claim that is given twice is found', async () => {
  const generous = (store: DedupeStore): Partial<DedupeStore> => ({
    setIfNotExists: async (record) => {
      await store.delete(record.key);
      return store.setIfNotExists(record);
    },
  });
  expect(await found(generous)).toMatch(/I2: . had \d effects|I3: .: told .*, and another/);
});

test('a second run of a `once` tool after a crash is found', async () => {
  broken.recovery = true;
  expect(await found()).toMatch(/I2: . had \d effects/);
});

test('a retry of a `once` tool that may have had its effect is found', async () => {
  broken.retry = true;
  expect(await found()).toMatch(/I2: . had \d effects/);
});
