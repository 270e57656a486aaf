/** Circuits where many calls run at a time: what fails on one machine alone, and what fails now and then (DESIGN, decision 8; R22). */
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/index.ts';
import { circuitPolicy } from '../../../src/shared/circuits/circuit-policy.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

test('a node on which a tool fails alone does not open the fleet’s circuit, and the calls go to another one', async () => {
  const [good, bad] = [
    scripted('fetch', () => ({ output: 'fetched' })),
    scripted('fetch', () => {
      throw httpError(503);
    }),
  ];
  const fleet = await startFleet({ tools: [good.tool], concurrency: 8 });
  const callAll = (calls: number) =>
    Promise.all(
      Array.from({ length: calls }, (_, index) =>
        fleet.session.call('fetch', { index }, { idempotencyKey: randomUUID() }),
      ),
    );
  await fleet.startWorker({ tools: [bad.tool], concurrency: 8 });
  for (const result of await callAll(64)) expect(result).toMatchObject({ status: 'success' });
  const [failed, succeeded] = [bad.contexts.length, good.contexts.length];
  expect(failed).toBeGreaterThan(0);
  for (const result of await callAll(200)) expect(result).toMatchObject({ status: 'success', attempts: 1 });
  expect(bad.contexts.length).toBe(failed);
  expect(good.contexts.length).toBe(succeeded + 200);
  expect(fleet.events.filter(({ type }) => type === 'tool_call_circuit_state')).toEqual([]);
});

test.each([
  { what: 'a tool', schema: {} },
  { what: 'a tool with an output schema', schema: { output: z.literal('done') } },
])('$what that fails now and then does not open its circuit, however many calls end at once', async ({ schema }) => {
  let runs = 0;
  const { tool: plain } = scripted('flaky', () => {
    runs += 1;
    if (runs % 12 === 0) throw httpError(503);
    return { output: 'done' };
  });
  const tool = defineTool({ ...plain, input: z.looseObject({}), ...schema } as Parameters<typeof defineTool>[0]);
  const fleet = await startFleet({ tools: [tool], concurrency: 64 });
  for (let round = 0; round < 8; round += 1) {
    const calls = Array.from({ length: 64 }, (_, index) => fleet.session.call('flaky', { round, index }));
    for (const result of await Promise.all(calls)) expect(result).toMatchObject({ status: 'success' });
  }
  expect(fleet.events.filter(({ type }) => type === 'tool_call_circuit_state')).toEqual([]);
});

test('a service that goes down opens the circuit after as few failures in a busy fleet as in an idle one', async () => {
  const [workers, concurrency] = [3, 2];
  let isDown = false;
  let failed = 0;
  const { tool } = scripted('outage', () => {
    if (!isDown) return { output: 'up' };
    failed += 1;
    throw httpError(503);
  });
  const fleet = await startFleet({ tools: [tool], concurrency, workers });
  const callAll = (calls: number) =>
    Promise.all(
      Array.from({ length: calls }, () => fleet.session.call('outage', {}, { idempotencyKey: randomUUID() })),
    );
  for (const result of await callAll(60)) expect(result).toMatchObject({ status: 'success' });
  isDown = true;
  for (const { status, attempts } of await callAll(60))
    expect(status).toMatch(attempts === 0 ? /^circuit_open$/ : /^(retriable_error|circuit_open)$/);
  const { consecutiveFailures } = circuitPolicy(false);
  expect(failed).toBeGreaterThanOrEqual(consecutiveFailures);
  expect(failed).toBeLessThan(consecutiveFailures + workers * concurrency);
});
