/** DESIGN, decision 8: a machine on which a tool fails alone costs the fleet neither its circuit nor its pace. */
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { startFleet } from '../producer/fleet.ts';
import { httpError, scripted } from '../producer/tools.ts';

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
