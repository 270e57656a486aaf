import { expect, test } from 'vitest';
import { type Fleet, startFleet, tallyOf } from './fixtures/fleet.ts';
import type { Batch, Tally } from './fixtures/producer.ts';

const PRODUCERS = 4;
const CALLS_EACH = 250;

async function callFromAll(
  fleet: Fleet,
  batch: (producer: number) => Omit<Batch, 'session' | 'count'>,
): Promise<Tally> {
  const producers = await Promise.all(Array.from({ length: PRODUCERS }, () => fleet.addProducer()));
  const tallies = await Promise.all(
    producers.map((producer, number) =>
      tallyOf(producer, { session: fleet.session.key, count: CALLS_EACH, ...batch(number) }),
    ),
  );
  const add = (sum: Record<string, number>, more: Record<string, number>) => {
    for (const [name, count] of Object.entries(more)) sum[name] = (sum[name] ?? 0) + count;
    return sum;
  };
  return {
    outputs: tallies.reduce((sum, tally) => add(sum, tally.outputs), {}),
    errors: tallies.reduce((sum, tally) => add(sum, tally.errors), {}),
    callIds: [...new Set(tallies.flatMap((tally) => tally.callIds))],
  };
}

test('1,000 concurrent calls with one key from 4 processes have one effect and 1,000 equal outputs (TR-2, TR-3)', async () => {
  const fleet = await startFleet({ workers: 2 });
  const tally = await callFromAll(fleet, () => ({
    tool: 'record_once',
    params: { label: 'same', beforeMs: 100 },
    key: 'the-one-key',
  }));
  expect(tally.errors).toEqual({});
  expect(Object.values(tally.outputs)).toEqual([PRODUCERS * CALLS_EACH]);
  expect(tally.callIds).toHaveLength(1);
  expect(fleet.effects().map((line) => line.phase)).toEqual(['begin', 'effect']);
});

test('one key with 1,000 different parameters has one effect and 999 conflicts (TR-4)', async () => {
  const fleet = await startFleet({ workers: 2 });
  const tally = await callFromAll(fleet, (producer) => ({
    tool: 'record_once',
    params: {},
    key: 'the-one-key',
    labels: `from-${producer}`,
  }));
  expect(tally.errors).toEqual({ IDEMPOTENCY_CONFLICT: PRODUCERS * CALLS_EACH - 1 });
  expect(Object.values(tally.outputs)).toEqual([1]);
  expect(tally.callIds).toHaveLength(1);
  expect(fleet.effects().map((line) => line.phase)).toEqual(['begin', 'effect']);
});
