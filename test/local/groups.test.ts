import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { Approve, LocalApprovalRequest, LocalDecision } from '../../src/local/approvals.ts';
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

describe('a plan that needs an approval without a fleet', () => {
  function gatedJourney(approve?: Approve) {
    const { tools, log } = journey();
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Pays.',
      tier: 'elevated',
      effects: 'once',
      input: z.object({ amount: z.number(), reference: z.string().optional() }),
      run: ({ amount }) => {
        log.push(`pay ${amount}`);
        if (amount === 13) throw new Error('refused');
        return { output: { receipt: `R-${amount}` } };
      },
      compensate: async ({ amount }) => {
        log.push(`refund ${amount}`);
      },
    });
    const clock = fakeClock();
    const runner = createLocalRunner({ tools: [...tools, pay], clock, ...(approve !== undefined && { approve }) });
    onTestFinished(() => runner.close(0));
    return { runner, clock, log, openSession: () => runner.openSession({ channel: { kind: 'console' } }) };
  }
  const nodes = {
    first: { tool: 'pay', params: { amount: 1 } },
    second: { tool: 'pay', params: { amount: 2, reference: { $from: 'first.receipt' } } },
    cities: { tool: 'cities' },
  };

  test('is approved once, as it was shown, and its compensations with it', async () => {
    const asked: LocalApprovalRequest[] = [];
    const { clock, log, openSession } = gatedJourney((request) => {
      asked.push(request);
      return { decision: 'approve' };
    });
    const session = await openSession();
    const last = { tool: 'pay', params: { amount: 13 }, after: ['second'], onFailure: 'undo' as const };
    const plan = await clock.until(session.plan({ nodes: { ...nodes, last } }));
    expect(asked).toMatchObject([
      {
        tool: { namespace: 'pawl', name: 'plan' },
        params: { planId: plan.planId, nodes: { second: { params: { reference: { $from: 'first.receipt' } } } } },
        preview: { summary: expect.stringContaining('of which 3 need this approval: first, second, last') },
        sessionKey: session.key,
      },
    ]);
    expect(plan).toMatchObject({ approval: { state: 'approved' }, because: 'last' });
    expect(log).toEqual(['pay 1', 'pay 2', 'pay 13', 'refund 2', 'refund 1']);

    // A call beside the plan is asked about by itself.
    await clock.until(session.call('pay', { amount: 3 }, { idempotencyKey: 'third' }));
    expect(asked.map(({ tool }) => tool.name)).toEqual(['plan', 'pay']);
  });

  test('runs no node when it is denied, when the program fails to decide, or cannot decide', async () => {
    for (const [approve, message] of [
      [() => ({ decision: 'deny', reason: 'not today' }), 'not today'],
      [() => Promise.reject(new Error('no')), '`approve` failed: no'],
    ] as readonly (readonly [Approve, string])[]) {
      const { clock, log, openSession } = gatedJourney(approve);
      const plan = await clock.until((await openSession()).plan({ nodes }));
      expect(plan).toMatchObject({
        state: 'failed',
        approval: { state: 'refused', error: { code: 'PERMISSION_DENIED', message: expect.stringContaining(message) } },
      });
      expect(log).toEqual([]);
    }
    const { log, openSession } = gatedJourney();
    await expect((await openSession()).plan({ nodes })).rejects.toMatchObject({
      code: 'PLAN_INVALID',
      issues: [
        { path: 'nodes.first.tool', message: expect.stringContaining('this runner has no `approve`') },
        { path: 'nodes.second.tool' },
      ],
    });
    expect(log).toEqual([]);
  });

  test('is cancelled while the program decides', async () => {
    const decision = Promise.withResolvers<LocalDecision>();
    const asked = Promise.withResolvers<void>();
    const { log, openSession } = gatedJourney(() => {
      asked.resolve();
      return decision.promise;
    });
    const running = (await openSession()).plan({ nodes });
    await asked.promise;
    await running.cancel();
    expect(await running).toMatchObject({ state: 'cancelled', approval: { error: { code: 'CANCELLED' } } });
    decision.resolve({ decision: 'approve' });
    await decision.promise;
    expect(log).toEqual([]);
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
