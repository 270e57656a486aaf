import { describe, expect, test } from 'vitest';
import type { DeclaredTool } from '../../../src/shared/connectors/declared-tool.ts';
import type { ToolMakers } from '../../../src/workers/connectors/declared-tools.ts';
import { contentOf, type FleetOptions, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, gated } from '../../helpers/tools.ts';

const weather = (change: Partial<DeclaredTool> = {}): DeclaredTool =>
  ({
    kind: 'http',
    version: '1.0.0',
    description: 'Current weather.',
    inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    routing: { method: 'GET', url: 'https://weather.example.com/{city}' },
    ...change,
  }) as DeclaredTool;

/** Answers with the description of the declaration that it runs under. */
const declared: ToolMakers = { http: ({ description }) => ({ run: () => ({ output: description }) }) };

const startRegistry = (options: Partial<FleetOptions> = {}) => startFleet({ tools: [echo], declared, ...options });

describe('a tool that is declared while the system runs (I7, I8)', () => {
  test('can be called at once, is changed, switched off, rolled back and removed without a restart', async () => {
    const { pawl, session, openProducer, audited } = await startRegistry();
    const other = await openProducer();
    const { registry } = pawl;
    expect((await session.call('weather', { city: 'Paris' })).error?.code).toBe('UNKNOWN_TOOL');
    expect(await registry.put('weather', weather())).toMatchObject({
      created: true,
      record: { revision: 1, tier: 'read-only', effects: 'none', trustClass: 'BestEffort', enabled: true },
    });
    expect(contentOf(await session.call('weather', { city: 'Paris' }))).toBe('Current weather.');
    const further = await other.session(session.key);
    expect(contentOf(await further.call('weather', { city: 'Rome' }))).toBe('Current weather.');
    expect((await session.call('weather', {})).error?.code).toBe('INVALID_PARAMS');

    await registry.put('weather', weather({ description: 'Better.' }));
    expect(contentOf(await session.call('weather', { city: 'Paris' }))).toBe('Better.');
    await registry.patch('weather', { enabled: false });
    const refused = await session.call('weather', { city: 'Oslo' });
    expect(refused.error).toMatchObject({ code: 'PERMISSION_DENIED' });
    expect(refused.error?.message).toContain('disabled in the registry');
    await eventually(
      async () => (await further.call('weather', { city: 'Bonn' })).error?.code === 'PERMISSION_DENIED',
      { deadlineMs: 4_000, what: 'the refusal of another producer, sooner than it would ask by itself' },
    );
    expect((await pawl.publishedFor(session.record)).map(({ name }) => name)).toEqual(['echo']);
    expect(await registry.rollback('weather', 1)).toMatchObject({ revision: 4, description: 'Current weather.' });
    expect(contentOf(await session.call('weather', { city: 'Oslo' }))).toBe('Current weather.');
    await registry.remove('weather');
    expect((await session.call('weather', { city: 'Oslo' })).error?.code).toBe('UNKNOWN_TOOL');
    expect((await registry.history('weather')).map(({ kind, revision }) => [revision, kind])).toEqual([
      [5, 'removed'],
      [4, 'http'],
      [3, 'http'],
      [2, 'http'],
      [1, 'http'],
    ]);
    expect(audited.flatMap((event) => (event.type === 'registry-changed' ? [event.action] : []))).toEqual([
      'declared',
      'declared',
      'disabled',
      'rolled-back',
      'removed',
    ]);
  });

  test('that is disabled stays so when it is declared again without a word on that', async () => {
    const { pawl, session } = await startRegistry();
    const { registry } = pawl;
    await registry.put('weather', weather({ policy: { decision: 'allow' } }));
    await registry.patch('weather', { enabled: false });
    const put = await registry.put('weather', weather({ version: '1.1.0' }));
    expect(put.record).toMatchObject({ version: '1.1.0', enabled: false });
    // The declaration itself is replaced as a whole.
    expect(put.record.policy).toBeUndefined();
    expect((await session.call('weather', { city: 'Oslo' })).error?.code).toBe('PERMISSION_DENIED');
    await registry.put('weather', weather({ enabled: true }));
    expect(contentOf(await session.call('weather', { city: 'Oslo' }))).toBe('Current weather.');
    await registry.remove('weather');
    expect((await registry.put('weather', weather())).record.enabled).toBe(true);
  });

  test('a call runs under the declaration that it was validated with, and not at all once its tool is off (I3)', async () => {
    const { tool, arrived, open } = gated('gate', { tier: 'read-only', effects: 'none' });
    const { pawl, session } = await startRegistry({ tools: [tool], concurrency: 1 });
    await pawl.registry.put('weather', weather({ description: 'Old.' }));
    await pawl.registry.put('other', weather());
    await pawl.registry.put('gone', weather());
    const held = pending(await session.submit('gate', {}));
    await arrived();
    const queued = pending(await session.submit('weather', { city: 'Paris' }));
    const refused = pending(await session.submit('other', { city: 'Paris' }));
    const removed = pending(await session.submit('gone', { city: 'Paris' }));
    await pawl.registry.put('weather', weather({ description: 'New.' }));
    await pawl.registry.patch('other', { enabled: false });
    await pawl.registry.remove('gone');
    open();
    expect(contentOf(await queued.result)).toBe('Old.');
    expect((await refused.result).error?.code).toBe('PERMISSION_DENIED');
    expect((await removed.result).error).toMatchObject({ code: 'PERMISSION_DENIED' });
    await held.result;
  });

  test('writers that saw another revision are refused; without one the last wins', async () => {
    const { pawl } = await startRegistry({ workers: 0 });
    const { registry } = pawl;
    await registry.put('weather', weather(), { ifRevision: 0 });
    await expect(registry.put('weather', weather(), { ifRevision: 0 })).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
    await expect(registry.patch('weather', { enabled: false }, { ifRevision: 7 })).rejects.toThrow('7 was expected');
    await Promise.all(['a', 'b', 'c'].map((description) => registry.put('weather', weather({ description }))));
    expect((await registry.read('weather'))?.revision).toBe(4);
  });

  test('what is immutable can be switched, and otherwise neither changed nor removed', async () => {
    const { pawl } = await startRegistry({ workers: 0 });
    const { registry } = pawl;
    await registry.put('weather', weather({ mutable: false }));
    await expect(registry.put('weather', weather())).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    await expect(registry.remove('weather')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    expect(await registry.patch('weather', { enabled: false })).toMatchObject({ enabled: false, mutable: false });
    await registry.patch('weather', { mutable: true });
    await registry.remove('weather');
  });

  test("the workers' own tools are switched the same way, and their names are taken (I22)", async () => {
    const { pawl, session } = await startRegistry();
    await expect(pawl.registry.put('echo', weather())).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
    expect(await pawl.registry.patch('echo', { enabled: false })).toMatchObject({ kind: 'code', enabled: false });
    expect((await session.call('echo', { text: 'a' })).error?.code).toBe('PERMISSION_DENIED');
    // A remove would switch it on again.
    await expect(pawl.registry.remove('echo')).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      message: expect.stringContaining('tools.echo is a tool of the workers'),
    });
    expect((await session.call('echo', { text: 'b' })).error?.code).toBe('PERMISSION_DENIED');
    await pawl.registry.patch('echo', { enabled: true });
    expect(contentOf(await session.call('echo', { text: 'a' }))).toEqual({ text: 'a' });
    await expect(pawl.registry.patch('nothing', { enabled: false })).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });
  });

  test('its policy restricts, and never widens (I3)', async () => {
    const { pawl, session } = await startRegistry({ settings: { policy: { global: { tools: { denied: 'deny' } } } } });
    await pawl.registry.put('main_only', weather({ policy: { sessionKinds: ['main'] } }));
    await pawl.registry.put('denied', weather({ policy: { decision: 'allow' } }));
    const below = await session.worker();
    expect(contentOf(await session.call('main_only', { city: 'Paris' }))).toBe('Current weather.');
    expect((await below.call('main_only', { city: 'Paris' })).error?.code).toBe('PERMISSION_DENIED');
    expect((await session.call('denied', { city: 'Paris' })).error?.code).toBe('PERMISSION_DENIED');
  });

  test.each([
    ['a dynamic tool of the read-only tier (C21)', { kind: 'dynamic', tier: 'read-only', routing: {} }, 'tier'],
    ['a schema that is none', { inputSchema: 'none' }, 'inputSchema'],
    ['a version that is none', { version: 'new' }, 'version'],
    [
      'an address whose host the model would choose (I16)',
      { routing: { method: 'GET', url: 'https://{host}/' } },
      'url',
    ],
    ['a field that does not exist', { colour: 'red' }, 'colour'],
  ])('%s is refused with its place', async (_what, change, partition) => {
    const { pawl } = await startRegistry({ workers: 0 });
    const error = await pawl.registry
      .put('weather', weather(change as Partial<DeclaredTool>))
      .catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'CONTRACT_INVALID' });
    expect(error.message).toContain(partition);
  });
});

test('R25: the circuit of a declared tool is forced open by its name, although it never opened by itself', async () => {
  const { pawl, session } = await startRegistry();
  await pawl.registry.put('weather', weather());
  expect(await pawl.circuits.set('force_open', { tool: 'weather' }, 'maintenance')).toMatchObject([
    { key: 'tool:tools.weather', circuit: { state: 'FORCED_OPEN' } },
  ]);
  expect((await session.call('weather', { city: 'Paris' })).status).toBe('circuit_open');
});

test('what is declared, and switched off, stays so when the signing key is changed in three steps', async () => {
  const [old, fresh] = [
    { kid: 'old', key: 'the key that came before' },
    { kid: 'new', key: 'the key that came after it' },
  ];
  const { pawl, openProducer, startWorker } = await startRegistry({ workers: 0, settings: { signingKeys: [old] } });
  const worker = await startWorker();
  await pawl.registry.put('weather', weather());
  await pawl.registry.patch('echo', { enabled: false });
  await pawl.skills.put('forecasts', { description: 'Says what comes.' });
  for (const signingKeys of [
    [old, fresh],
    [fresh, old],
  ])
    await openProducer({ signingKeys });
  // Workers start again with the key that all trust now, and publish their tools with it.
  await worker.close();
  await startWorker({ settings: { signingKeys: [fresh] } });

  const after = await openProducer({ signingKeys: [fresh] });
  expect((await after.registry.list()).map(({ name, kind }) => [name, kind])).toEqual([
    ['echo', 'code'],
    ['weather', 'http'],
  ]);
  expect((await after.skills.list()).map(({ name }) => name)).toEqual(['forecasts']);
  const refused = (await (await after.openSession()).call('echo', { text: 'x' })).error;
  expect(refused).toMatchObject({ code: 'PERMISSION_DENIED' });
});
