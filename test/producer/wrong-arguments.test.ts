/** Programs without types may pass anything: each mistake is a typed error, and nothing was stored. */
import { describe, expect, test } from 'vitest';
import { type Pawl, PawlError } from '../../src/index.ts';
import { startFleet } from '../helpers/fleet.ts';

type Untyped = (pawl: Pawl, argument: never) => unknown;

const LOOKUPS: Readonly<Record<string, Untyped>> = {
  'approvals.show': (pawl, id) => pawl.approvals.show(id),
  'approvals.decide': (pawl, id) => pawl.approvals.decide(id, { decision: 'approve', digest: '', by: 'ada' }),
  complete: (pawl, token) => pawl.complete(token, { status: 'success' }),
  'callbacks.replay': (pawl, id) => pawl.callbacks.replay(id),
  'batches.read': (pawl, id) => pawl.batches.read(id),
  'batches.cancel': (pawl, id) => pawl.batches.cancel(id),
  'plans.read': (pawl, id) => pawl.plans.read(id),
  'plans.cancel': (pawl, id) => pawl.plans.cancel(id),
  'deadLetters.progress': (pawl, id) => pawl.deadLetters.progress(id),
  'deadLetters.stop': (pawl, id) => pawl.deadLetters.stop(id),
  'registry.read': (pawl, name) => pawl.registry.read(name),
  'registry.remove': (pawl, name) => pawl.registry.remove(name),
  'schedules.get': (pawl, id) => pawl.schedules.get(id),
  'schedules.pause': (pawl, id) => pawl.schedules.pause(id),
  'schedules.run': (pawl, id) => pawl.schedules.run(id),
  'skills.show': (pawl, name) => pawl.skills.show(name),
  'workers.drain': (pawl, id) => pawl.workers.drain(id),
};
const LIMITS: Readonly<Record<string, Untyped>> = {
  'circuits.history': (pawl, limit) => pawl.circuits.history(limit),
  'plans.list': (pawl, limit) => pawl.plans.list({ limit }),
};
const served = { name: 'served', inputSchema: { type: 'object' }, run: () => ({ output: 1 }) } as never;
const SELECTIONS: Readonly<Record<string, Untyped>> = {
  'calls.resolveMany': (pawl, resolution) => pawl.calls.resolveMany(resolution),
  'circuits.set': (pawl, selection) => pawl.circuits.set('reset', selection, 'test'),
  'deadLetters.redrive': (pawl, selection) => pawl.deadLetters.redrive(selection),
  'deadLetters.discard': (pawl, selection) => pawl.deadLetters.discard(selection),
  'a tool of serveTools': (pawl, tool) => pawl.serveTools([served, tool]),
  'schedules.put': (pawl, schedule) => pawl.schedules.put(schedule),
  'batches.create': (pawl, batch) => pawl.batches.create(batch),
  'plans.check': (pawl, plan) => pawl.plans.check(plan),
  'plans.create': (pawl, plan) => pawl.plans.create(plan),
  'reliability.set': (pawl, enabled) => pawl.reliability.set(enabled),
  'shards.set': (pawl, shards) => pawl.shards.set('read-only', shards),
};

const WRONG = [undefined, null, 7.5, []];

describe('an argument of a wrong type is refused with a code', () => {
  test.each([
    ...Object.entries(LOOKUPS).map(([name, call]) => ({ name, call, wrong: [...WRONG, {}] })),
    ...Object.entries(LIMITS).map(([name, call]) => ({ name, call, wrong: [null, 7.5, -1, 'x', []] })),
    // An empty selection means something of its own.
    ...Object.entries(SELECTIONS).map(([name, call]) => ({ name, call, wrong: WRONG })),
  ])('$name', async ({ name, call, wrong }) => {
    const { pawl } = await startFleet({ tools: [] });
    for (const argument of wrong) {
      const refusal = await (async () => call(pawl, argument as never))().then(
        () => 'accepted',
        (error: unknown) => error,
      );
      expect(refusal, `${name}(${JSON.stringify(argument)})`).toBeInstanceOf(PawlError);
    }
  });
});

test('a call whose options are no object is refused with the path', async () => {
  const { pawl } = await startFleet({ tools: [] });
  const session = await pawl.openSession({ actorId: 'ada' });
  for (const options of [null, 7.5, [], 'later']) {
    const result = await session.call('read', {}, options as never);
    expect(result.status === 'success' || result.error, `call(${JSON.stringify(options)})`).toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'options' }],
    });
    expect(() => session.envelope('read', {}, options as never)).toThrow('options: must be an object');
  }
});
