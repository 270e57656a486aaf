import { expect, onTestFinished, test, vi } from 'vitest';
import { digest } from '../../../src/shared/schema/canonical-json.ts';
import { WorkerAgents } from '../../../src/workers/context/sub-agents.ts';
import { startFleet } from '../../helpers/fleet.ts';

test('an agent that is spawned while its session is being closed is closed with it', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const { backend } = pawl;
  const agents = new WorkerAgents(backend).open({ callId: 'spawning', generation: '1', session: session.record });
  const create = backend.sessions.create.bind(backend.sessions);
  const creating = vi.spyOn(backend.sessions, 'create').mockImplementation(async (...asked) => {
    await pawl.sessions.close(session.key);
    return create(...asked);
  });
  onTestFinished(() => creating.mockRestore());
  await expect(agents.spawn('look around')).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
  const below = (await pawl.sessions.list()).filter(({ parent }) => parent === session.key);
  expect(below.map(({ state }) => state)).toEqual(['closed']);
  expect(await backend.agents.list(session.key)).toEqual([]);
});

test.each([
  { kind: 'main', tenantId: 'globex' },
  { kind: 'branch', below: true },
] as const)('an agent is not spawned under a key that another session took before: %o', async ({ below, ...taken }) => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const sessionKey = `agent-${digest('spawning').slice(0, 22)}`;
  await pawl.openSession({ sessionKey, ...taken, ...(below === true ? { parent: session.key } : {}) });
  const agents = new WorkerAgents(pawl.backend).open({ callId: 'spawning', generation: '1', session: session.record });
  await expect(agents.spawn('look around')).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'sessionKey' }],
  });
  expect(await pawl.backend.agents.list(session.key)).toEqual([]);
  expect(await pawl.backend.sessions.read(sessionKey)).toMatchObject(taken);
});

test('an attempt that runs again finds the agent that the one before spawned', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const spawn = () =>
    new WorkerAgents(pawl.backend).open({ callId: 'again', generation: '1', session: session.record }).spawn('look');
  expect(await spawn()).toEqual(await spawn());
  expect(await pawl.backend.agents.list(session.key)).toHaveLength(1);
});

test('a call without capacity for its agent creates nothing, and its retry starts one when there is capacity', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const { sessions } = pawl.backend;
  const agents = (callId: string) =>
    new WorkerAgents(pawl.backend).open({ callId, generation: '1', session: session.record });
  const [first] = await Promise.all(Array.from({ length: 16 }, (_, number) => agents(`call ${number}`).spawn('look')));
  await expect(agents('late').spawn('look')).rejects.toMatchObject({ code: 'TOO_MANY_AGENTS' });
  expect(await sessions.list(100)).toHaveLength(17);
  expect(await sessions.tree(session.key)).toHaveLength(17);
  await agents('closing').close(first?.agentId ?? '');
  const { agentId } = await agents('late').spawn('look');
  expect(await sessions.read(agentId)).toMatchObject({ state: 'open', parent: session.key });
});
