import { expect, test } from 'vitest';
import type { TestProcess } from '../helpers/process.ts';
import { type Fleet, startFleet, tallyOf } from './fixtures/fleet.ts';
import type { Batch, Tally } from './fixtures/producer.ts';

const PRODUCERS = 4;
const CALLS_EACH = 250;

type BatchOfOne = Omit<Batch, 'session' | 'count'>;

async function callFromAll(
  { session }: Fleet,
  producers: readonly TestProcess[],
  batch: (producer: number) => BatchOfOne,
): Promise<Tally> {
  const tallies = await Promise.all(
    producers.map((producer, number) =>
      tallyOf(producer, { session: session.key, count: CALLS_EACH, ...batch(number) }),
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

test('1,000 concurrent calls with one key from 4 processes have one effect: 1,000 equal outputs, or 999 conflicts where their parameters differ (TR-2, TR-3, TR-4)', async () => {
  const fleet = await startFleet({ workers: 2 });
  const producers = await Promise.all(Array.from({ length: PRODUCERS }, () => fleet.addProducer()));
  const same = await callFromAll(fleet, producers, () => ({
    tool: 'record_once',
    params: { label: 'same', beforeMs: 100 },
    key: 'the-one-key',
  }));
  expect(same.errors).toEqual({});
  expect(Object.values(same.outputs)).toEqual([PRODUCERS * CALLS_EACH]);
  expect(same.callIds).toHaveLength(1);
  expect(fleet.effects().map((line) => line.phase)).toEqual(['begin', 'effect']);

  const different = await callFromAll(fleet, producers, (producer) => ({
    tool: 'record_once',
    params: {},
    key: 'the-key-of-many',
    labels: `from-${producer}`,
  }));
  expect(different.errors).toEqual({ IDEMPOTENCY_CONFLICT: PRODUCERS * CALLS_EACH - 1 });
  expect(Object.values(different.outputs)).toEqual([1]);
  expect(different.callIds).toHaveLength(1);
  expect(fleet.effects(different.callIds[0]).map((line) => line.phase)).toEqual(['begin', 'effect']);
  expect(fleet.effects()).toHaveLength(4);
});
