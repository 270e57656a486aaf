import { expect, onTestFinished, test, vi } from 'vitest';
import { WorkerAgents } from '../../src/workers/agents.ts';
import { startFleet } from '../producer/fleet.ts';

test('an agent that is spawned while its session is being closed is closed with it', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const { backend } = pawl;
  const agents = new WorkerAgents(backend).open({ callId: 'spawning', generation: '1', session: session.record });
  const create = backend.sessions.create.bind(backend.sessions);
  const creating = vi.spyOn(backend.sessions, 'create').mockImplementation(async (...asked) => {
    await pawl.closeSession(session.key);
    return create(...asked);
  });
  onTestFinished(() => creating.mockRestore());
  await expect(agents.spawn('look around')).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
  const below = (await pawl.sessions()).filter(({ parent }) => parent === session.key);
  expect(below.map(({ state }) => state)).toEqual(['closed']);
  expect(await backend.agents.list(session.key)).toEqual([]);
});
