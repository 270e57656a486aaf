import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { approvalView } from '../../../src/producer/http/core/views.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { bookTool } from '../../helpers/book-tool.ts';
import { type FleetOptions, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

function approvedTools() {
  const log: string[] = [];
  const cities = defineTool({
    name: 'cities',
    version: '1.0.0',
    description: 'Cities.',
    tier: 'read-only',
    input: z.object({}),
    output: z.object({ list: z.array(z.string()), home: z.string() }),
    run: () => {
      log.push('cities');
      return { output: { list: ['Paris', 'Oslo'], home: 'Bern' } };
    },
  });
  const book = bookTool(log, 'elevated');
  return { tools: [cities, book], log };
}

const nodes = {
  cities: { tool: 'cities' },
  home: { tool: 'book', params: { city: { $from: 'cities.home' }, seat: 7 } },
  each: { tool: 'book', forEach: { $from: 'cities.list' }, params: { city: { $from: 'item' } }, after: ['home'] },
};

async function approvedFleet(options: Partial<FleetOptions> = {}) {
  const { tools, log } = approvedTools();
  const fleet = await startFleet({ tools, ...options });
  const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const pending = () => fleet.pawl.approvals.list({ state: 'pending' });
  const onlyPending = async () => {
    const [listing, ...more] = await pending();
    expect(more).toEqual([]);
    if (listing === undefined) throw new Error('nothing waits for a decision');
    return listing;
  };
  return { ...fleet, session, log, pending, onlyPending };
}

test('one approval shows a whole plan, and covers each of its nodes', async () => {
  const { session, pawl, log, onlyPending, pending, audited } = await approvedFleet();
  const running = session.plan({ nodes, idempotencyKey: 'trip' });
  const { planId, approvalId } = await running.accepted;
  expect(await session.plan({ nodes, idempotencyKey: 'trip' }).accepted).toMatchObject({ planId, approvalId });
  const listing = await onlyPending();
  const view = approvalView(listing);
  expect(view).toMatchObject({
    id: approvalId,
    tool: 'plan',
    namespace: 'pawl',
    tier: 'elevated',
    session: session.key,
  });
  expect(view.preview.summary).toBe('Run a plan of 3 nodes, of which 2 need this approval: home, each');
  expect(view.preview.details).toContain('with {"city":{"$from":"cities.home"},"seat":7}');
  expect(view.preview.details).toContain('for each of cities.list\n   after home');
  expect((await pawl.plans.read(planId)).state).toBe('awaiting-approval');
  expect(log).toEqual([]);
  await pawl.approvals.decide(view.id, { decision: 'approve', digest: view.digest, by: 'grace' });
  const plan = await running;
  expect(plan).toMatchObject({ state: 'done', approval: { approvalId, state: 'approved' } });
  expect(log.slice(0, 2)).toEqual(['cities', 'book Bern']);
  expect(log.slice(2).toSorted()).toEqual(['book Oslo', 'book Paris']);
  expect(await pending()).toEqual([]);
  const used = audited.filter(({ type }) => type === 'approval-used');
  expect(used).toHaveLength(3);
  expect(used.every((event) => 'approvalId' in event && event.approvalId === approvalId)).toBe(true);
});

test('a plan that is denied ends, and says who denied it', async () => {
  const { session, pawl, log, onlyPending } = await approvedFleet();
  const running = session.plan({ nodes });
  await running.accepted;
  const { record, digest } = await onlyPending();
  await pawl.approvals.decide(record.request.id, { decision: 'deny', digest, by: 'grace', reason: 'not today' });
  const plan = await running;
  expect(plan).toMatchObject({
    state: 'failed',
    approval: {
      state: 'refused',
      error: { code: 'PERMISSION_DENIED', message: 'grace denied the plan: not today' },
    },
  });
  expect(plan.because).toBeUndefined();
  expect(Object.values(plan.nodes).map(({ state }) => state)).toEqual(['cancelled', 'cancelled', 'cancelled']);
  expect(log).toEqual([]);
});

test('a plan that is not decided on in time ends', async () => {
  const { session, log } = await approvedFleet({ settings: { policy: { approvalLimitMs: 200 } } });
  const plan = await session.plan({ nodes });
  expect(plan.approval?.error?.message).toBe('The plan was not approved within 0.2 s.');
  expect(plan.state).toBe('failed');
  expect(log).toEqual([]);
});

test('a plan that is cancelled while it waits takes its approval along', async () => {
  const { session, pawl, pending, onlyPending } = await approvedFleet();
  const running = session.plan({ nodes });
  await running.accepted;
  const { record } = await onlyPending();
  await running.cancel();
  expect((await running).state).toBe('cancelled');
  expect(await pending()).toEqual([]);
  expect((await pawl.approvals.show(record.request.id)).record.state).toBe('cancelled');
});

test('a plan is approved as it was shown: without edits, under its digest, and not by its requester', async () => {
  const { session, pawl, onlyPending } = await approvedFleet();
  const running = session.plan({ nodes });
  await running.accepted;
  const { record, digest } = await onlyPending();
  const decide = (more: object) =>
    pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace', ...more });
  await expect(decide({ params: {} })).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  await expect(decide({ digest: 'another' })).rejects.toMatchObject({ code: 'APPROVAL_STALE' });
  await expect(decide({ by: 'ada' })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  await decide({ remember: true });
  expect((await running).state).toBe('done');
  expect(await pawl.approvals.remembered(session.key)).toEqual([]);
});

test('a session that reaches no person cannot open a plan that needs an approval', async () => {
  const { pawl, world } = await approvedFleet();
  const alone = await pawl.openSession({ actorId: 'ada' });
  await expect(alone.plan({ nodes })).rejects.toMatchObject({
    code: 'PLAN_INVALID',
    issues: [{ path: 'nodes.home.tool' }, { path: 'nodes.each.tool' }],
  });
  expect((await world.keys()).filter((key) => key.includes('{groups}'))).toEqual([]);
});

test('undoing an approved plan needs no further approval', async () => {
  const { session, pawl, log, onlyPending } = await approvedFleet();
  const running = session.plan({
    nodes: {
      a: { tool: 'book', params: { city: 'A' } },
      b: { tool: 'book', params: { city: 'Nowhere' }, after: ['a'], onFailure: 'undo' },
    },
  });
  await running.accepted;
  const { record, digest } = await onlyPending();
  await pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace' });
  expect((await running).state).toBe('undone');
  expect(log).toEqual(['book A', 'undo A']);
});

test('another process goes on with a plan that waits for its approval', async () => {
  const { session, openProducer, log, onlyPending } = await approvedFleet();
  const frontDoor = await openProducer();
  const leaving = await openProducer();
  frontDoor.takeOverGroups();
  const own = await leaving.session(session.key);
  const running = own.plan({ nodes });
  running.catch(() => {});
  const { planId } = await running.accepted;
  await leaving.close();
  await eventually(async () => (await frontDoor.plans.read(planId)).state === 'awaiting-approval', {
    what: 'the plan',
  });
  const { record, digest } = await onlyPending();
  await frontDoor.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace' });
  expect((await frontDoor.plans.ended(planId)).state).toBe('done');
  expect(log.length).toBe(4);
});

test('a call that its plan did not show is refused by the worker', async () => {
  const { session, pawl, log, onlyPending, settings } = await approvedFleet();
  const running = session.plan({ nodes: { only: { tool: 'book', params: { city: 'A' } } } });
  const { planId, approvalId = '' } = await running.accepted;
  const { record, digest } = await onlyPending();
  await pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'grace' });
  await running;
  // The worker notes the end of an approval's use after the outcome.
  const uses = join(settings.dataDir, 'used-approvals');
  await eventually(() => readdirSync(uses).some((name) => readFileSync(join(uses, name), 'utf8').includes('"ended"')));
  const forged = async (key: string, city: string) => {
    const envelope = session.envelope('book', { city }, { idempotencyKey: `${planId}:${key}` });
    const { result } = await pawl.submit(envelope, { planned: { approvalId, key } });
    return (await result).error;
  };
  expect(await forged('another', 'A')).toMatchObject({ code: 'APPROVAL_INVALID' });
  await pawl.calls.flush({ sessionKey: session.key });
  expect((await forged('only', 'B'))?.message).toContain('parameters of its node only are not those that were shown');
  await pawl.calls.flush({ sessionKey: session.key });
  expect((await forged('only', 'A'))?.message).toContain('it was used already');
  expect(log).toEqual(['book A']);
});

test('a node that is in doubt is asked about by itself before it runs again', async () => {
  let runs = 0;
  const vague = defineTool({
    name: 'vague',
    version: '1.0.0',
    description: 'Ends in doubt at first.',
    tier: 'elevated',
    effects: 'once',
    input: z.object({ n: z.number() }),
    run: ({ n }) => {
      runs += 1;
      if (runs === 1) throw new PawlError('OUTCOME_UNKNOWN');
      return { output: n };
    },
  });
  const { session, pawl, onlyPending } = await approvedFleet({ tools: [vague] });
  const running = session.plan({ nodes: { only: { tool: 'vague', params: { n: 1 } } } });
  await running.accepted;
  const first = await onlyPending();
  await pawl.approvals.decide(first.record.request.id, { decision: 'approve', digest: first.digest, by: 'grace' });
  const plan = await running;
  expect(plan.state).toBe('failed');
  const callId = plan.nodes['only']?.calls[0]?.callId ?? '';
  await pawl.resolve(callId, { as: 'retry' }, 'grace');
  const second = await onlyPending();
  expect(second.record.request).toMatchObject({ callId, params: { n: 1 }, tool: { name: 'vague' } });
  expect(second.record.request.plan).toBeUndefined();
  await pawl.approvals.decide(second.record.request.id, { decision: 'approve', digest: second.digest, by: 'grace' });
  expect((await pawl.calls.result(callId))?.status).toBe('success');
  expect(runs).toBe(2);
});
