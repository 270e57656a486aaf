import { expect, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';
import { WAYS_TO_THROW } from './fixtures/tools.ts';

test('whatever a tool throws, and wherever, becomes a failed call; the worker lives and tells no stack (D12)', async () => {
  const { session, workers } = await startFleet();
  const results = await Promise.all(
    WAYS_TO_THROW.map(async (way) => ({
      way,
      result: await session.call('thrower', { way }, { idempotencyKey: way, retryBudget: { maxAttempts: 1 } }),
    })),
  );
  expect(results.map(({ way, result }) => `${way}: ${result.status} ${result.error?.code}`)).toEqual(
    WAYS_TO_THROW.map((way) => `${way}: error TOOL_FAILED`),
  );
  for (const { way, result } of results) {
    expect(JSON.stringify(result), way).not.toMatch(/stack|\.ts:|\bat .*:\d+/);
    expect(result.error?.message, way).toMatch(/\w/);
  }
  expect(await session.call('who_runs', {})).toMatchObject({ status: 'success', output: { content: workers[0]?.pid } });
  // The stack is for those who run the worker.
  await eventually(() => /thrown by the next tick[\s\S]*tools\.ts/.test(workers[0]?.stderr() ?? ''));
});
