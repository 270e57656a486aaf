import { expect, test } from 'vitest';
import { startFleet } from '../../helpers/fleet.ts';
import { journeyTools } from './journey-tools.ts';

test('all faults of a plan are found before anything runs, each with its path, and nothing is stored', async () => {
  const { tools, log } = journeyTools();
  const { pawl, session, world } = await startFleet({ tools });
  const paths = (nodes: object) =>
    session.plan({ nodes } as never).then(
      () => [],
      (error: { code: string; issues: readonly { path: string }[] }) => {
        expect(error.code).toBe('PLAN_INVALID');
        return error.issues.map(({ path }) => path);
      },
    );
  const city = { city: 'Rome' };
  expect(await paths({ a: { tool: 'cities', params: null } })).toEqual(['nodes.a.params']);
  const twice = { $literal: 1, also: 2 };
  expect((await paths({ a: { tool: 'book', params: { city: twice } } }))[0]).toBe('nodes.a.params.city');
  const faults = await paths({
    a: { tool: 'bok', params: city },
    b: { tool: 'book', params: { city: 5 } },
    c: { tool: 'book', params: { city: { $from: 'list.hom' } }, after: ['nobody', 'c'] },
    d: { tool: 'book', params: { city: { $from: 'list.list' } } },
    e: { tool: 'book', params: { city: { $from: 'item.name' } } },
    f: { tool: 'book', params: { town: { $from: 'list.home' } }, forEach: { $from: 'list.home' } },
    list: { tool: 'cities' },
  });
  expect(faults.toSorted()).toEqual([
    'nodes.a.tool',
    'nodes.b.params.city',
    'nodes.c.after.0',
    'nodes.c.after.1',
    'nodes.c.params.city',
    'nodes.d.params.city',
    'nodes.e.params.city',
    'nodes.f.forEach',
    'nodes.f.params.city',
    'nodes.f.params.town',
  ]);
  const [cycle] = await paths({
    a: { tool: 'book', params: city, after: ['b'] },
    b: { tool: 'book', params: city, after: ['a'] },
  });
  expect(cycle).toBe('nodes.a');
  expect(await paths({})).toEqual(['nodes']);
  expect(await paths(JSON.parse('{"__proto__":{"tool":"cities"},"a":{"tool":"cities"}}'))).toEqual(['nodes.__proto__']);
  expect(await paths({ a: { tool: 'cities' }, b: { tool: 'book', params: { $from: 'a' } } })).toEqual([
    'nodes.b.params',
  ]);
  await expect(session.plan({ nodes: { 'a b': { tool: 'cities' } } })).rejects.toThrow(
    'nodes.a b: must begin with a letter or "_"',
  );
  const misspelt = { list: { tool: 'cities' }, a: { tool: 'book', params: { city: { $from: 'list.hom' } } } };
  await expect(session.plan({ nodes: misspelt })).rejects.toThrow('list.hom cannot exist. Allowed: list, home');
  // Fields that would have no effect beside others are named, and those that go together are not.
  const ofList = { city: { $from: 'list.home' } };
  const pairs: Record<string, [object, ...string[]]> = {
    both: [
      {
        when: [
          { node: 'list', is: 'success' },
          { node: 'list', is: 'error' },
        ],
      },
      'when',
    ],
    never: [
      {
        when: [
          { node: 'list', is: 'unknown' },
          { node: 'list', is: 'skipped' },
        ],
      },
      'when',
    ],
    after: [{ after: ['list'], when: { node: 'list', is: 'ended' } }, 'after.0'],
    failed: [{ params: ofList, when: { node: 'list', is: 'error' } }, 'params.city'],
    list: [{ forEach: { $from: 'list.list' }, when: { node: 'list', is: 'skipped' } }, 'forEach'],
    doubt: [
      {
        when: [
          { node: 'list', is: 'error' },
          { node: 'list', is: 'unknown' },
        ],
      },
    ],
    succeeded: [{ params: ofList, after: ['list'], when: { node: 'list', is: 'success' } }],
    ended: [{ params: ofList, when: { node: 'list', is: 'ended' } }],
    each: [{ params: { city: { $from: 'items.0.reservation' } }, when: { node: 'items', is: 'error' } }],
  };
  const items = { tool: 'book', forEach: { $from: 'list.list' }, params: { city: { $from: 'item.name' } } };
  for (const [name, [node, ...paths_]] of Object.entries(pairs)) {
    const nodes = { list: { tool: 'cities' }, items, x: { tool: 'book', params: city, ...node } };
    const checked = await pawl.plans.check({ session: session.record, plan: { nodes } }).catch((error) => error);
    const found = ((checked.issues ?? []) as { path: string }[]).map(({ path }) => path);
    expect(found, name).toEqual(paths_.map((path) => `nodes.x.${path}`));
  }
  for (const options of [{ sgnal: 1 }, { signal: 'no' }])
    await expect(session.plan({ nodes: { list: { tool: 'cities' } } }, options as never)).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
    });
  const cyclic: Record<string, unknown> = {};
  cyclic['self'] = cyclic;
  for (const wrong of [Number.NaN, 1n, () => 1, new Map(), cyclic])
    expect(await paths({ a: { tool: 'book', params: { ...city, wrong } } })).toEqual(['nodes.a.params']);
  expect(log).toEqual([]);
  expect((await world.keys()).filter((key) => key.includes('{groups}'))).toEqual([]);
});

test('a plan is checked against the session: what it may not do, and what its budget lacks', async () => {
  const { tools } = journeyTools();
  const { session, pawl } = await startFleet({ tools });
  const reader = await session.worker();
  const nodes = { a: { tool: 'book', params: { city: 'A' } }, b: { tool: 'book', params: { city: 'B' } } };
  await expect(reader.plan({ nodes })).rejects.toMatchObject({
    code: 'PLAN_INVALID',
    issues: [{ path: 'nodes.a.tool' }, { path: 'nodes.b.tool' }],
  });
  const poor = await pawl.openSession({ actorId: 'ada', budget: { calls: 1 } });
  await expect(poor.plan({ nodes })).rejects.toMatchObject({ issues: [{ path: 'budget.calls' }] });
});

test('a plan in a closed session is refused as a call is, without blame for its nodes', async () => {
  const { tools } = journeyTools();
  const { session, pawl } = await startFleet({ tools });
  await pawl.sessions.close(session.key);
  const plan = { nodes: { cities: { tool: 'cities' } } };
  await expect(session.plan(plan)).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
});
