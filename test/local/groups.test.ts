import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { fakeClock } from '../../src/local/fake-clock.ts';
import { createLocalRunner } from '../../src/local/run-tool.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import { bookTool } from '../helpers/book-tool.ts';
import { contentOf } from '../helpers/fleet.ts';

function journey() {
  const log: string[] = [];
  const cities = defineTool({
    name: 'cities',
    version: '1.0.0',
    description: 'Cities.',
    tier: 'read-only',
    input: z.object({}),
    output: z.object({ list: z.array(z.string()) }),
    run: () => ({ output: { list: ['Paris', 'Oslo', 'Bern'] } }),
  });
  const book = bookTool(log);
  return { tools: [cities, book], book, log };
}

function open() {
  const { tools, book, log } = journey();
  const clock = fakeClock();
  const runner = createLocalRunner({ tools, clock, random: () => 0.5 });
  onTestFinished(() => runner.close(0));
  return { runner, clock, book, log };
}

test('a batch runs without a fleet, and what waits in it costs a fake clock no time', async () => {
  const { runner, clock, book, log } = open();
  const session = await runner.openSession();
  const batch = session.batch(
    [
      { tool: book, params: { city: 'Paris' }, startAfterMs: 60_000 },
      { tool: 'book', params: { city: 7 } },
      { tool: book, params: { city: 'Oslo' } },
    ],
    { idempotencyKey: 'trip' },
  );
  const [later, wrong, now] = await clock.until(batch);
  expect([later, now].map(contentOf)).toEqual([{ reservation: 'Paris-1' }, { reservation: 'Oslo-1' }]);
  expect(wrong.error?.issues).toMatchObject([{ path: 'calls.1.params.city' }]);
  expect(log).toEqual(['book Oslo', 'book Paris']);
  await expect(
    session.batch([{ tool: book, params: { city: 'Bern' } }], { idempotencyKey: 'trip' }),
  ).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
});

test('a plan runs without a fleet, and is undone in reverse', async () => {
  const { runner, clock, log } = open();
  const session = await runner.openSession();
  const plan = {
    idempotencyKey: 'trip',
    nodes: {
      cities: { tool: 'cities' },
      book: { tool: 'book', forEach: { $from: 'cities.list' }, params: { city: { $from: 'item' } } },
      last: { tool: 'book', after: ['book'], params: { city: 'Nowhere' }, onFailure: 'undo' as const },
    },
    concurrency: 1,
  };
  const { state, because, planId } = await clock.until(session.plan(plan));
  expect([state, because]).toEqual(['undone', 'last']);
  expect(log).toEqual(['book Paris', 'book Oslo', 'book Bern', 'undo Bern', 'undo Oslo', 'undo Paris']);
  expect((await clock.until(session.plan(plan))).planId).toBe(planId);
  await expect(session.plan({ nodes: { a: { tool: 'cities', after: ['b'] } } })).rejects.toMatchObject({
    code: 'PLAN_INVALID',
  });
});

test('cancelling a plan and closing the runner end what waits for them', async () => {
  const { runner, clock } = open();
  const session = await runner.openSession();
  const wait = (key: string) =>
    session.batch([{ tool: 'book', params: { city: 'Paris' }, startAfterMs: 1_000, idempotencyKey: key }]);
  const cancelled = wait('cancelled');
  await cancelled.accepted;
  await cancelled.cancel();
  expect((await clock.until(cancelled))[0]?.error?.code).toBe('CANCELLED');
  const waiting = wait('open');
  await waiting.accepted;
  await Promise.all([expect(waiting).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' }), runner.close(0)]);
});
