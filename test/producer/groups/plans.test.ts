import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { scripted } from '../../helpers/tools.ts';
import { journeyTools } from './journey-tools.ts';

const stateOf = (plan: { nodes: Readonly<Record<string, { state: string }>> }) =>
  Object.fromEntries(Object.entries(plan.nodes).map(([name, { state }]) => [name, state]));

test('a plan runs its nodes in order, and references bring values from one to the other', async () => {
  const { tools, book, log } = journeyTools();
  const { session, pawl } = await startFleet({ tools });
  const plan = await session.plan({
    nodes: {
      home: { tool: book, params: { city: { $from: 'cities.home' } } },
      each: { tool: 'book', forEach: { $from: 'cities.list' }, params: { city: { $from: 'item.name' } } },
      all: {
        tool: 'book',
        params: { city: 'Rome', note: { first: { $from: 'each.0.reservation' }, raw: { $literal: { $from: 'x' } } } },
        after: ['home'],
      },
      cities: { tool: 'cities' },
    },
  });
  expect(plan.state).toBe('done');
  expect(stateOf(plan)).toEqual({ cities: 'success', home: 'success', each: 'success', all: 'success' });
  expect(log.slice(0, 3).toSorted()).toEqual(['book Bern', 'book Oslo', 'book Paris']);
  expect(log[3]).toBe('book Rome {"first":"Paris-1","raw":{"$from":"x"}}');
  const record = await pawl.read(plan.nodes['each']?.calls[1]?.callId ?? '');
  expect(record?.request.envelope.payload.idempotencyKey).toBe(`${plan.planId}:each:1`);
});

test('a node that fails stops the plan, and what needs it does not run', async () => {
  const { tools, log } = journeyTools();
  const { session } = await startFleet({ tools });
  const plan = await session.plan({
    nodes: {
      first: { tool: 'book', params: { city: 'Nowhere' } },
      next: { tool: 'book', params: { city: 'Rome' }, after: ['first'] },
    },
  });
  expect(plan).toMatchObject({ state: 'failed', because: 'first' });
  expect(stateOf(plan)).toEqual({ first: 'error', next: 'cancelled' });
  expect(log).toEqual([]);
});

test('a plan continues past a failure that a node asks for, and skips what needs a success', async () => {
  const { tools, log } = journeyTools();
  const { session } = await startFleet({ tools });
  const plan = await session.plan({
    nodes: {
      first: { tool: 'book', params: { city: 'Nowhere' } },
      mend: { tool: 'book', params: { city: 'Rome' }, when: { node: 'first', is: 'error' } },
      never: { tool: 'book', params: { city: 'Bonn' }, when: { node: 'first', is: 'success' } },
      needs: { tool: 'book', params: { city: 'Graz' }, after: ['first'] },
      last: { tool: 'book', params: { city: 'Linz' }, when: [{ node: 'needs', is: 'skipped' }] },
    },
  });
  expect(plan.state).toBe('done');
  expect(stateOf(plan)).toEqual({
    first: 'error',
    mend: 'success',
    never: 'skipped',
    needs: 'skipped',
    last: 'success',
  });
  expect(log.toSorted()).toEqual(['book Linz', 'book Rome']);
});

test.each([
  ['a parameter', { tool: 'book', params: { city: { $from: 'open.city' } } }],
  ['a list', { tool: 'book', params: { city: 'Rome' }, forEach: { $from: 'open.cities' } }],
])('a node without %s ends at once, and those that wait for it go on', async (_title, node) => {
  const { tools, log } = journeyTools();
  const open = defineTool({
    name: 'open',
    version: '1.0.0',
    description: 'An output of any form.',
    tier: 'read-only',
    input: z.object({}),
    run: () => ({ output: {} }),
  });
  const { session } = await startFleet({ tools: [...tools, open] });
  const plan = await session.plan({
    nodes: {
      open: { tool: open },
      first: { ...node, onFailure: 'continue' },
      needs: { tool: 'book', params: { city: 'Graz' }, after: ['first'] },
      mend: { tool: 'book', params: { city: 'Linz' }, when: { node: 'first', is: 'error' } },
    },
  });
  expect(plan).toMatchObject({ state: 'done', nodes: { first: { error: { code: 'INVALID_PARAMS' } } } });
  expect(stateOf(plan)).toEqual({ open: 'success', first: 'error', needs: 'skipped', mend: 'success' });
  expect(log.splice(0)).toEqual(['book Linz']);

  const book = { tool: 'book', params: { city: 'Ulm' } };
  const first = { ...node, after: ['book'], onFailure: 'undo' as const };
  expect(await session.plan({ nodes: { open: { tool: open }, book, first } })).toMatchObject({ state: 'undone' });
  expect(log).toEqual(['book Ulm', 'undo Ulm']);
});

test('a plan that is undone compensates what succeeded, the last one first, and names what cannot be undone', async () => {
  const { tools, log } = journeyTools();
  const { tool: note } = scripted('note', () => ({ output: 'noted' }));
  const { session } = await startFleet({ tools: [...tools, note] });
  const nodes = {
    a: { tool: 'book', params: { city: 'A' } },
    b: { tool: 'book', params: { city: 'B' }, after: ['a'] },
    c: { tool: 'book', params: { city: 'C' }, after: ['b'] },
    d: { tool: 'book', params: { city: 'Nowhere' }, after: ['c'], onFailure: 'undo' as const },
  };
  const running = session.plan({ nodes });
  expect(await running.accepted).not.toHaveProperty('irreversible');
  expect(await running).toMatchObject({ state: 'undone', because: 'd' });
  expect(log.splice(0)).toEqual(['book A', 'book B', 'book C', 'undo C', 'undo B', 'undo A']);

  const notes = session.plan({ nodes: { ...nodes, c: { tool: 'note', after: ['b'] } } });
  expect((await notes.accepted).irreversible).toEqual(['c']);
  const noted = await notes;
  expect(noted).toMatchObject({ state: 'failed', because: 'd' });
  expect(noted.nodes['c']?.calls[0]).toMatchObject({ status: 'success', undo: { errorCode: 'CALL_NOT_COMPENSABLE' } });
  expect(log).toEqual(['book A', 'book B', 'undo B', 'undo A']);
});

test('a plan is cancelled: what runs is cancelled, and nothing else begins', async () => {
  const { tools, log } = journeyTools();
  const { session } = await startFleet({ tools });
  const running = session.plan({
    nodes: { a: { tool: 'wait' }, b: { tool: 'book', params: { city: 'B' }, after: ['a'] } },
  });
  await eventually(() => log.length === 1, { what: 'the first node' });
  await running.cancel();
  const plan = await running;
  expect(plan.state).toBe('cancelled');
  expect(stateOf(plan)).toEqual({ a: 'error', b: 'cancelled' });
  expect(log).toEqual(['wait']);
});

test('another process goes on with a plan whose process has left', async () => {
  const { tools, log, gate } = journeyTools();
  const { session, openProducer } = await startFleet({ tools });
  const frontDoor = await openProducer();
  const leaving = await openProducer();
  frontDoor.takeOverGroups();
  const own = await leaving.session(session.key);
  const running = own.plan({
    nodes: {
      list: { tool: 'cities' },
      hold: { tool: 'wait', after: ['list'] },
      each: {
        tool: 'book',
        forEach: { $from: 'list.list' },
        params: { city: { $from: 'item.name' } },
        after: ['hold'],
      },
    },
  });
  running.catch(() => {});
  const { planId } = await running.accepted;
  await eventually(() => log.length === 1, { what: 'the node that waits' });
  await leaving.close();
  gate.fire();
  const plan = await frontDoor.plans.ended(planId);
  expect(plan.state).toBe('done');
  expect(log.toSorted()).toEqual(['book Oslo', 'book Paris', 'wait']);
});

test('the same key in a session is the same plan, however many processes ask, and other nodes are a conflict', async () => {
  const { tools, log } = journeyTools();
  const { session, pawl, openProducer } = await startFleet({ tools });
  const other = await (await openProducer()).session(session.key);
  const bookAll = (city: string) => ({
    idempotencyKey: 'trip',
    nodes: { book: { tool: 'book', params: { city } }, last: { tool: 'cities', after: ['book'] } },
  });
  const plans = await Promise.all([session, other, session, other].map((one) => one.plan(bookAll('Paris'))));
  expect(new Set(plans.map(({ planId }) => planId)).size).toBe(1);
  expect(plans.map(({ state }) => state)).toEqual(Array(4).fill('done'));
  const again = session.plan({ ...bookAll('Paris'), concurrency: 1 });
  expect(await again.accepted).toEqual({ planId: plans[0]?.planId, order: ['book', 'last'] });
  expect((await again).state).toBe('done');
  await expect(session.plan(bookAll('Oslo'))).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
  const { planId } = await session.plan({ ...bookAll('Oslo'), idempotencyKey: 'other' }).accepted;
  const elsewhere = await pawl.openSession({ actorId: 'bob' });
  await elsewhere.plan(bookAll('Bern'));
  await pawl.plans.ended(planId);
  expect(log).toEqual(expect.arrayContaining(['book Paris', 'book Oslo', 'book Bern']));
  expect(log).toHaveLength(3);
  await expect(session.plan({ ...bookAll('Paris'), idempotencyKey: '' })).rejects.toMatchObject({
    code: 'PLAN_INVALID',
    issues: [{ path: 'idempotencyKey' }],
  });
});

test('a plan ends although records that it needs were flushed, and a process went on with it', async () => {
  const { tools, log, gate } = journeyTools();
  const { session, pawl, openProducer } = await startFleet({ tools });
  const [leaving, frontDoor] = [await openProducer(), await openProducer()];
  frontDoor.takeOverGroups();
  const own = await leaving.session(session.key);
  const running = own.plan({
    nodes: {
      list: { tool: 'cities' },
      hold: { tool: 'wait', after: ['list'] },
      book: { tool: 'book', params: { city: { $from: 'list.home' } }, after: ['hold'], onFailure: 'continue' },
      each: {
        tool: 'book',
        params: { city: 'Ulm' },
        forEach: { $from: 'list.list' },
        after: ['hold'],
        onFailure: 'continue',
      },
    },
  });
  running.catch(() => {});
  const { planId } = await running.accepted;
  await eventually(() => log.length === 1, { what: 'the node that waits' });
  await pawl.calls.flush({ tool: 'cities' });
  await leaving.close();
  gate.fire();
  const plan = await frontDoor.plans.ended(planId);
  expect(stateOf(plan)).toEqual({ list: 'success', hold: 'success', book: 'error', each: 'error' });
  for (const name of ['book', 'each'])
    expect(plan.nodes[name]?.error).toMatchObject({
      code: 'INVALID_PARAMS',
      message: expect.stringContaining('expired'),
    });
  expect(log).toEqual(['wait']);
});

test('a plan is shown with the beginning of each output, without secrets', async () => {
  const outputs: unknown[] = ['token=ghp_0123456789abcdefghijklmnopqrstuvwxyz01 is all', { long: 'é'.repeat(5_000) }];
  const say = defineTool({
    name: 'say',
    version: '1.0.0',
    description: 'Says something.',
    tier: 'read-only',
    input: z.object({ at: z.number() }),
    run: ({ at }) => ({ output: outputs[at] ?? at }),
  });
  const { session, pawl } = await startFleet({ tools: [say] });
  const items = Array.from({ length: 8 }, (_, at) => at);
  const { planId } = await session.plan({
    nodes: {
      list: { tool: 'say', params: { at: 2 } },
      secret: { tool: 'say', params: { at: 0 } },
      long: { tool: 'say', params: { at: 1 } },
      none: { tool: 'say', params: { at: 3 }, when: { node: 'list', is: 'error' } },
    },
  });
  const { nodes } = await pawl.plans.show(planId);
  const summaries = Object.fromEntries(
    Object.entries(nodes).map(([name, { calls }]) => [name, calls.map(({ summary }) => summary)]),
  );
  expect(summaries).toMatchObject({ list: ['2'], none: [] });
  expect(summaries['secret']?.[0]).not.toContain('ghp_');
  expect(summaries['long']?.[0]).toMatch(/^\{"long":"é{191}…$/);
  outputs[2] = items;
  const other = await session.plan({
    nodes: {
      list: { tool: 'say', params: { at: 2 } },
      each: { tool: 'say', forEach: { $from: 'list' }, params: { at: { $from: 'index' } } },
    },
  });
  const each = (await pawl.plans.show(other.planId)).nodes['each'];
  const { nodes: _, ...summary } = await pawl.plans.read(planId);
  expect((await pawl.plans.list()).find((listed) => listed.planId === planId)).toEqual(summary);
  expect(each?.calls.filter(({ summary }) => summary !== undefined)).toHaveLength(5);
});

test('a call of a plan that ended in doubt is shown as it was resolved; the plan stays what it was', async () => {
  const pay = scripted('pay', () => Promise.reject(Object.assign(new Error('reset'), { code: 'ECONNRESET' })), {
    effects: 'once',
  });
  const { session, pawl } = await startFleet({ tools: [pay.tool] });
  const { planId, nodes } = await session.plan({
    nodes: Object.fromEntries(
      ['succeeded', 'failed', 'open'].map((name) => [name, { tool: 'pay', params: { name }, onFailure: 'continue' }]),
    ),
  });
  const callOf = (name: string) => nodes[name]?.calls[0]?.callId ?? '';
  await pawl.resolve(callOf('succeeded'), { as: 'succeeded' });
  await pawl.resolve(callOf('failed'), { as: 'failed' });
  const shown = await pawl.plans.show(planId);
  expect(stateOf(shown)).toEqual({ succeeded: 'error', failed: 'error', open: 'error' });
  expect(Object.values(shown.nodes).map(({ calls: [call] }) => call)).toEqual([
    { callId: callOf('succeeded'), state: 'done', phase: 'done', status: 'success' },
    expect.objectContaining({ state: 'failed', message: 'Resolved by an operator: the effect did not happen.' }),
    expect.objectContaining({ state: 'failed', unresolved: true, message: expect.stringContaining('reset') }),
  ]);
  expect(shown.nodes['failed']?.calls[0]).not.toHaveProperty('unresolved');
});
