import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { SettingsInput } from '../../../../src/shared/config/config.ts';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { createLocalRunner } from '../../../../src/testing.ts';
import { startFleet } from '../../../helpers/fleet.ts';
import { signal } from '../../../helpers/signal.ts';
import { type Rig, startRig, testTools } from '../rig.ts';

/** The places where a tool's policy may name states. */
const PLACES: readonly (readonly [string, Partial<SettingsInput>])[] = [
  ['its settings', { tools: { echo: { states: ['planning'] } } }],
  ['the policy of all', { policy: { global: { tools: { echo: { states: ['planning'] } } } } }],
  [
    'the policy of sessions, by a pattern',
    { policy: { sessions: { '*': { tools: { 'ec*': { states: ['planning'] } } } } } },
  ],
];

const FRONT_DOORS: readonly (readonly [string, (rig: Rig, session: string) => Promise<string>])[] = [
  [
    'POST /v1/calls, short',
    async (rig, session) => codeOf(await rig.call({ tool: 'echo', params: { text: 'x' }, session })),
  ],
  [
    'POST /v1/calls, an envelope',
    async (rig, session) => {
      const envelope = (await rig.pawl.session(session)).envelope('echo', { text: 'y' });
      return codeOf(await rig.call(envelope));
    },
  ],
  [
    'the library',
    async (rig, session) => {
      const result = await (await rig.pawl.session(session)).call('echo', { text: 'z' });
      return result.error?.code ?? result.status;
    },
  ],
  [
    'POST /mcp',
    async (rig, session) => {
      const client = new Client({ name: 'test', version: '1.0.0' });
      const requestInit = { headers: { 'pawl-session': session } };
      await client.connect(new StreamableHTTPClientTransport(new URL(`${rig.server.url}/mcp`), { requestInit }));
      onTestFinished(() => client.close());
      // A session sees no tool that it may not call.
      const called = client.callTool({ name: 'echo', arguments: { text: 'm' } });
      return called.then(
        ({ isError }) => (isError === true ? 'error' : 'success'),
        ({ message }: Error) => message,
      );
    },
  ],
];

function codeOf({ body }: { readonly body: { status?: string; error?: { code?: string } } }): string {
  return body.error?.code ?? body.status ?? '';
}

describe.each(PLACES)('a tool whose states stand in %s', (_place, settings) => {
  test('is called from a session in one of them, and from no other, whatever front door the call comes in by (I3, I12)', async () => {
    const rig = await startRig({ ...testTools(), settings });
    const { sessionKey } = (await rig.ask('/v1/sessions', { method: 'POST', json: {} })).body;
    const shown = async () => {
      const { tools } = (await rig.ask(`/v1/tools?session=${sessionKey}`)).body;
      return tools.some(
        ({ name, namespace }: { name: string; namespace: string }) => `${namespace}.${name}` === 'tools.echo',
      );
    };
    for (const [state, allowed] of [
      ['open', false],
      ['planning', true],
      ['acting', false],
    ] as const) {
      if (state !== 'open')
        expect(await rig.ask(`/v1/sessions/${sessionKey}`, { method: 'PATCH', json: { state } })).toMatchObject({
          status: 200,
          body: { state },
        });
      for (const [door, call] of FRONT_DOORS)
        expect(`${door}: ${await call(rig, sessionKey)}`).toMatch(
          allowed ? /: success$/ : /: .*(?:PERMISSION_DENIED|Unknown tool: echo)$/,
        );
      expect(await shown()).toBe(allowed);
    }
  });
});

test('a session below another one begins in its state and follows it, also in another process', async () => {
  const rig = await startRig({ ...testTools(), settings: { tools: { echo: { states: ['planning'] } } } });
  const main = await rig.pawl.openSession({ state: 'planning' });
  const branch = await main.branch();
  const leaf = await branch.branch();
  expect([branch.state, leaf.state]).toEqual(['planning', 'planning']);
  expect(await leaf.call('echo', { text: 'x' })).toMatchObject({ status: 'success' });
  await main.setState('acting');
  expect(main.state).toBe('acting');
  for (const session of [main, branch, leaf])
    expect(await session.call('echo', { text: 'again' })).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
  expect((await rig.ask(`/v1/sessions/${leaf.key}`)).body.state).toBe('acting');
});

test('after changes of two processes at the same time, all sessions of a tree have one state', async () => {
  const { pawl, openProducer } = await startFleet({ tools: [] });
  const other = await openProducer();
  const main = await pawl.openSession();
  const opening = Array.from({ length: 8 }, () => main.branch());
  for (let change = 0; change < 25; change += 1) {
    const branch = main.branch();
    await Promise.all([
      pawl.sessions.setState(main.key, `planning-${change}`),
      other.sessions.setState(main.key, `acting-${change}`),
      ...opening,
    ]);
    const sessions = [main, await branch, ...(await Promise.all(opening))];
    const states = await Promise.all(sessions.map(async ({ key }) => (await pawl.backend.sessions.read(key))?.state));
    expect(new Set(states).size).toBe(1);
  }
});

test('an accepted call continues when its session changes its state', async () => {
  const { tools, started, release } = testTools();
  const rig = await startRig({ tools, settings: { tools: { hold: { states: ['planning'] } } } });
  const session = await rig.pawl.openSession({ state: 'planning' });
  const call = session.call('hold', {});
  await started.promise;
  await session.setState('acting');
  release.fire();
  expect(await call).toMatchObject({ status: 'success' });
});

test.for(['closed', '', 'a state', 'x'.repeat(65)])(
  'a state %j is refused, and a closed session has no other',
  async (state) => {
    const rig = await startRig();
    const session = await rig.pawl.openSession();
    const change = (to: string) => rig.ask(`/v1/sessions/${session.key}`, { method: 'PATCH', json: { state: to } });
    expect(await change(state)).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
    await expect(session.setState(state)).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
    await session.close();
    const { body } = await change('planning');
    expect(body.error.code).toBe('SESSION_CLOSED');
    expect((await rig.ask('/v1/sessions/nobody', { method: 'PATCH', json: { state: 'x' } })).status).toBe(404);
  },
);

test('without a fleet the same rule holds', async () => {
  const done = signal();
  const tool = defineTool({
    name: 'echo',
    version: '1.0.0',
    description: 'Returns its text.',
    tier: 'read-only',
    input: z.object({}),
    run: () => {
      done.fire();
      return { output: 'x' };
    },
  });
  const runner = createLocalRunner({ tools: [tool], settings: { tools: { echo: { states: ['planning'] } } } });
  const session = await runner.openSession();
  expect(await session.call(tool, {})).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
  await session.setState('planning');
  expect(await session.call(tool, {})).toMatchObject({ status: 'success' });
  await done.promise;
  await runner.close(0);
});
