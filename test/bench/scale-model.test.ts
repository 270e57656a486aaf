import { expect, test } from 'vitest';
import { type ScaleCosts, type ScaleSize, simulate } from '../../bench/scale-model.ts';

const FREE = { perGroup: 0, perCall: 0 };
const COSTS: ScaleCosts = { producer: FREE, worker: FREE, redis: { perGroup: 0, perCall: 50 }, audit: FREE };
const SIZE: ScaleSize = {
  shards: 1,
  workers: 4,
  slots: 64,
  producers: 200,
  inFlight: 1,
  toolUs: 0,
  networkUs: 100,
};

const figures = (costs: Partial<ScaleCosts>, size: Partial<ScaleSize>) =>
  simulate({ ...COSTS, ...costs }, { ...SIZE, ...size }, 200, 1_000);

test.each([
  { what: 'Redis, of which each call takes two scripts', costs: {}, size: {}, perSecond: 10_000 },
  { what: 'four shards', costs: {}, size: { shards: 4 }, perSecond: 40_000 },
  { what: 'the slots', costs: {}, size: { toolUs: 100_000, workers: 2, slots: 10 }, perSecond: 20 / 0.1003 },
  { what: 'a worker', costs: { worker: { perGroup: 0, perCall: 1_000 } }, size: { workers: 3 }, perSecond: 3_000 },
  {
    what: 'the machine’s cores',
    costs: { producer: { perGroup: 0, perCall: 400 } },
    size: { cores: 2 },
    perSecond: 4_000,
  },
])('a simulated fleet does what its narrowest part can do: $what', ({ costs, size, perSecond }) => {
  const { callsPerSecond } = figures(costs, size);
  expect(callsPerSecond / perSecond).toBeGreaterThan(0.9);
  expect(callsPerSecond / perSecond).toBeLessThan(1.07);
});

test('calls that come together share what a group costs', () => {
  const redis = { perGroup: 50, perCall: 1 };
  const alone = figures({ redis }, { producers: 200 });
  const together = figures({ redis }, { producers: 2, inFlight: 100 });
  expect(together.callsPerSecond).toBeGreaterThan(5 * alone.callsPerSecond);
});

test('the list of audit records burdens its own node alone', () => {
  const size = { shards: 8, producers: 800, workers: 16 };
  const loaded = figures({ audit: { perGroup: 100, perCall: 10 } }, size);
  expect(loaded.busy.audit).toBeGreaterThan(0.99);
  expect(loaded.callsPerSecond).toBeGreaterThan(60_000);
});
