import { expect, test } from 'vitest';
import { z } from 'zod';
import type { OpenSession } from '../../../src/shared/sessions/session.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';
import { testContext } from '../../../src/testing.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';

const seen = async ({ agent }: ToolContext) =>
  agent === undefined ? null : { ...agent, tools: (await agent.tools()).map(({ name, tier }) => `${name} ${tier}`) };
const tool = (name: string, tier: 'read-only' | 'workspace') =>
  defineTool({
    name,
    version: '1.0.0',
    description: 'Says who calls it.',
    tier,
    input: z.object({}),
    run: async (_params, ctx) => ({ output: await seen(ctx) }),
  });
const TOOLS = [tool('who', 'read-only'), tool('change', 'workspace'), tool('forbidden', 'read-only')];
const POLICY = { policy: { agents: { planner: { tools: { forbidden: 'deny' } } } } } as const;
const PLANNER = { id: 'planner', name: 'The planner', model: 'm-1', permissions: ['plan'] };

test.for<[string, OpenSession, object | null]>([
  ['describes one', { agent: PLANNER }, { ...PLANNER, tools: ['change workspace', 'who read-only'] }],
  [
    'names one',
    { agentId: 'robot' },
    { id: 'robot', name: 'robot', tools: ['change workspace', 'forbidden read-only', 'who read-only'] },
  ],
  [
    'does both',
    { agentId: 'planner', agent: { model: 'm-2', permissions: { spend: 5 } } },
    {
      id: 'planner',
      name: 'planner',
      model: 'm-2',
      permissions: { spend: 5 },
      tools: ['change workspace', 'who read-only'],
    },
  ],
  ['reads only', { kind: 'worker', agent: PLANNER }, { ...PLANNER, tools: ['who read-only'] }],
  ['names none', {}, null],
])('a tool sees the agent of a session that %s, and what that may call (A8, D8)', async ([, open, expected]) => {
  const { pawl } = await startFleet({ tools: TOOLS, settings: POLICY });
  const session = await pawl.openSession(open);
  expect(contentOf(await session.call('who', {}))).toEqual(expected);
});

test('a session below another one has its agent, unless it names its own', async () => {
  const { pawl } = await startFleet({ tools: TOOLS });
  const main = await pawl.openSession({ agent: PLANNER });
  expect(contentOf(await (await main.worker()).call('who', {}))).toMatchObject(PLANNER);
  const other = await pawl.openSession({ parent: main.key, agentId: 'other' });
  const agent = contentOf(await other.call('who', {}));
  expect(agent).toMatchObject({ id: 'other', name: 'other' });
  expect(agent).not.toHaveProperty('model');
});

test.for<[string, OpenSession]>([
  ['has no ID', { agent: { name: 'x' } }],
  ['has another ID than the session', { agentId: 'a', agent: { id: 'b' } }],
  ['is described at length', { agent: { id: 'a', permissions: Array.from({ length: 50 }, () => 'x'.repeat(200)) } }],
])('an agent that %s is refused by its path', async ([, open]) => {
  const { pawl } = await startFleet({ tools: TOOLS, workers: 0 });
  await expect(pawl.openSession(open)).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: expect.stringMatching(/^agent\.(?:id|permissions)$/) }],
  });
});

test('in tests there is no agent unless the test gives one', async () => {
  using plain = testContext();
  expect(plain.agent).toBeUndefined();
  using given = testContext({ agent: { ...PLANNER, tools: async () => [] } });
  expect(await seen(given)).toEqual({ ...PLANNER, tools: [] });
});
