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

/** Options: a misspelt one must not silently have no effect. */
const OPTIONS: Readonly<Record<string, Untyped>> = {
  'approvals.list': (pawl, options) => pawl.approvals.list(options),
  'batches.read': (pawl, options) => pawl.batches.read('b', options),
  'callbacks.list': (pawl, options) => pawl.callbacks.list(options),
  'callbacks.replay': (pawl, options) => pawl.callbacks.replay('c', options),
  'deadLetters.list': (pawl, options) => pawl.deadLetters.list(options),
  'deadLetters.progress': (pawl, options) => pawl.deadLetters.progress('r', options),
  'deadLetters.redrives': (pawl, options) => pawl.deadLetters.redrives(options),
  'deadLetters.stop': (pawl, options) => pawl.deadLetters.stop('r', options),
  'plans.list': (pawl, options) => pawl.plans.list(options),
  'plans.read': (pawl, options) => pawl.plans.read('p', options),
  'plans.show': (pawl, options) => pawl.plans.show('p', options),
  'registry.patch': (pawl, switches) => pawl.registry.patch('served', switches),
  'registry.patch, options': (pawl, options) => pawl.registry.patch('served', {}, options),
  'registry.put': (pawl, options) => pawl.registry.put('served', {} as never, options),
  'registry.remove': (pawl, options) => pawl.registry.remove('served', options),
  'schedules.get': (pawl, options) => pawl.schedules.get('s', options),
  'schedules.list': (pawl, options) => pawl.schedules.list(options),
  'schedules.pause': (pawl, options) => pawl.schedules.pause('s', options),
  'schedules.remove': (pawl, options) => pawl.schedules.remove('s', options),
  'sessions.findOrOpen': (pawl, request) => pawl.sessions.findOrOpen(request),
  'skills.named': (pawl, names) =>
    pawl.skills.named(typeof names === 'object' && names !== null ? (7 as never) : names),
};

const WRONG = [undefined, null, 7.5, []];

describe('an argument of a wrong type is refused with a code', () => {
  test.each([
    ...Object.entries(LOOKUPS).map(([name, call]) => ({ name, call, wrong: [...WRONG, {}] })),
    ...Object.entries(OPTIONS).map(([name, call]) => ({ name, call, wrong: [null, 7.5, [], { odd: true }] })),
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

test.each([
  ['callWithReask', [], 'options'],
  ['callWithReask', ['read', {}, null], 'options'],
  ['decode', [], 'exported.names'],
  ['decode', [{}, {}], 'exported.names'],
  ['decode', [{ names: {} }, 'read'], 'call'],
  ['reply', [null, { state: 'completed' }], 'event'],
  ['reply', [{ agentId: 'a' }, null], 'reply'],
] as const)('session.%s(...%j) names %s', async (method, values, path) => {
  const { pawl } = await startFleet({ tools: [] });
  const session = await pawl.openSession({ actorId: 'ada' });
  const untyped = session[method] as (...given: readonly unknown[]) => Promise<unknown>;
  await expect(untyped.apply(session, [...values])).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path }],
  });
});

const LOOKED_UP = {
  kind: 'http',
  description: 'Looks something up.',
  version: '1.0.0',
  inputSchema: { type: 'object' },
  routing: { method: 'GET', url: 'https://example.com/' },
};

test('a switch of a tool that is neither true nor false is refused, and not stored', async () => {
  const { pawl } = await startFleet({ tools: [] });
  await pawl.registry.put('looked-up', LOOKED_UP as never);
  await expect(pawl.registry.patch('looked-up', { enabled: 'no' as never })).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'switches.enabled' }],
  });
  expect(await pawl.registry.read('looked-up')).toMatchObject({ enabled: true });
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

/** Methods that only other parts of Pawl call, with values of their own. */
const INTERNAL = new Set([
  'sessions.workspaceRoot',
  'approvals.routeOf',
  'approvals.isGranted',
  'approvals.requestFor',
  'approvals.requestForPlan',
  'approvals.requestAgain',
  'approvals.requested',
  'approvals.similarTo',
  'agents.listen',
  'agents.unlisten',
  'agents.onOrder',
  'agents.checked',
  'toolClients.notifyWaiting',
]);
const SERVICES = [
  ...['agents', 'approvals', 'batches', 'callbacks', 'calls', 'circuits', 'deadLetters', 'plans', 'questions'],
  ...['registry', 'reliability', 'schedules', 'sessions', 'shards', 'skills', 'toolClients', 'workers'],
];

const { proxy: unreadable, revoke } = Proxy.revocable({}, {});
revoke();
const ODD = [null, Number.NaN, -1, 7n, Symbol('odd'), () => 1, [null], Object.create(null), unreadable, 'x'];

/** The number of parameters in the source of a method, those with defaults and patterns included. */
function parametersOf(method: object): number {
  let depth = 0;
  let count = 0;
  const source = String(method);
  const start = source.indexOf('(');
  for (const [index, character] of [...source.slice(start)].entries()) {
    if ('([{'.includes(character)) depth += 1;
    if (')]}'.includes(character)) depth -= 1;
    if (depth === 0) return index === 1 ? 0 : count + 1;
    if (character === ',' && depth === 1 && !/^\s*\)/.test(source.slice(start + index + 1))) count += 1;
  }
  throw new Error(`no parameters in ${source}`);
}

function methodsOf(service: object): string[] {
  const prototype: object = Object.getPrototypeOf(service);
  return Object.entries(Object.getOwnPropertyDescriptors(prototype))
    .filter(([name, { value }]) => name !== 'constructor' && typeof value === 'function')
    .map(([name]) => name);
}

test('every method of every service refuses values that no argument can have, each by its name', async () => {
  const { pawl } = await startFleet({ tools: [], workers: 0 });
  const publicServices = Object.entries(pawl).filter(([, value]) => typeof value === 'object' && value !== null);
  const notServices = ['metrics', 'fleetMetrics', 'settings', 'backend'];
  expect(publicServices.map(([name]) => name).sort()).toEqual([...SERVICES, ...notServices].sort());
  for (const service of SERVICES) {
    const methods = pawl[service as 'calls'];
    for (const name of methodsOf(methods)) {
      const parameters = parametersOf(Object.getPrototypeOf(methods)[name]);
      if (parameters === 0 || INTERNAL.has(`${service}.${name}`)) continue;
      const ask = methods[name as 'read'] as (...values: readonly unknown[]) => Promise<unknown>;
      const refusal = await ask(...Array.from({ length: parameters }, () => Symbol('odd'))).catch(
        (error: unknown) => error,
      );
      const { issues = [] } = refusal as { readonly issues?: readonly { readonly path: string }[] };
      expect(new Set(issues.map(({ path }) => path)).size, `pawl.${service}.${name}`).toBe(parameters);
      expect(refusal, `pawl.${service}.${name}`).toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining(`pawl.${service}.${name}`),
      });
      for (let position = 0; position < parameters; position += 1)
        for (const odd of ODD) {
          const answer = await ask(...Array(position).fill('x'), odd).catch((error: unknown) => error);
          if (answer instanceof Error) expect(answer, `pawl.${service}.${name}`).toBeInstanceOf(PawlError);
        }
    }
  }
});

test.each([
  ['audit', 1],
  ['catalogue', 1],
  ['complete', 2],
  ['follow', 2],
  ['onCatalogueChange', 1],
  ['published', 2],
  ['publishedFor', 1],
  ['serveTools', 2],
] as const)('pawl.%s refuses values of other types', async (method, parameters) => {
  const { pawl } = await startFleet({ tools: [], workers: 0 });
  const ask = pawl[method].bind(pawl) as (...values: readonly unknown[]) => unknown;
  for (const odd of [null, 7n, Symbol('odd'), unreadable]) {
    const values = Array(parameters).fill(odd);
    await expect((async () => ask(...values))(), String(typeof odd)).rejects.toBeInstanceOf(PawlError);
  }
});

test('a member that is undefined counts as absent, and changes nothing', async () => {
  const { pawl } = await startFleet({ tools: [] });
  const untyped = pawl as unknown as Record<string, Record<string, (...values: unknown[]) => Promise<object>>>;
  const absent = { enabled: undefined, mutable: undefined };
  await pawl.registry.put('looked-up', LOOKED_UP as never);
  await untyped['registry']?.['patch']?.('looked-up', { ...absent, enabled: false });
  expect(await pawl.registry.read('looked-up')).toMatchObject({ enabled: false, mutable: true });
  await untyped['registry']?.['put']?.('looked-up', { ...LOOKED_UP, ...absent, tier: undefined });
  expect(await pawl.registry.read('looked-up')).toMatchObject({ enabled: false, mutable: true });
  const resolution = { as: 'failed', output: undefined };
  await expect(pawl.calls.resolve('r0.none', resolution as never)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  const completion = { status: 'success', output: 1, error: undefined, progress: undefined, extendMs: undefined };
  await expect(pawl.complete('pawlc_none', completion as never)).rejects.toMatchObject({ code: 'UNKNOWN_COMPLETION' });
});

test.each(['', '\ud800', 'x'.repeat(257), 5, null])('there are no secrets of the tenant %j', async (tenantId) => {
  const { pawl } = await startFleet({ tools: [], workers: 0 });
  await expect(pawl.callbacks.secrets(tenantId as never)).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'tenantId' }],
  });
});
