import { once } from 'node:events';
import { expect, test, vi } from 'vitest';
import type { AgentEvent, Session } from '../../../src/producer/sessions/session.ts';
import { SubAgentService } from '../../../src/producer/sessions/sub-agents.ts';
import type { AgentOrder } from '../../../src/shared/tools/sub-agent.ts';
import { yieldToEventLoop } from '../../../src/shared/util/time.ts';
import { WorkerAgents } from '../../../src/workers/context/sub-agents.ts';
import { startFleet } from '../../helpers/fleet.ts';

test('an agent’s message stays in its mailbox while its session cannot be read, and delays no other agent', async () => {
  const mail = new Map(['one', 'other'].map((agentId) => [agentId, [orderOf(agentId)]]));
  const told: string[] = [];
  const errors: Error[] = [];
  let away = true;
  const desk = new SubAgentService({
    agents: {
      list: async () => [...mail.keys()],
      take: async (agentId) => mail.get(agentId)?.shift(),
      putBack: async () => {},
      read: async () => undefined,
      reply: async () => 'replied',
    },
    async session(key) {
      if (away && key === 'one') throw new Error('Redis is away');
      return sessionOf(key);
    },
    closeSession: async () => {},
    onError: (error) => errors.push(error),
  });
  const session = sessionOf('parent', (agentId) => told.push(agentId));
  desk.listen(session);
  await expect.poll(() => told).toEqual(['other']);
  expect(errors).toMatchObject([{ message: 'Redis is away' }]);
  away = false;
  desk.catchUp();
  await expect.poll(() => told).toEqual(['other', 'one']);
});

test('a program that takes one task at a time loses none of those that come together', async () => {
  const { pawl, session, openProducer } = await startFleet({ tools: [], workers: 0 });
  const agents = new WorkerAgents(pawl.backend);
  const tasks = ['a', 'b', 'c', 'd', 'e', 'f'];
  const spawnAll = () =>
    tasks.map((task) => agents.open({ callId: task, generation: '1', session: session.record }).spawn(task));
  const told: (string | undefined)[] = [];
  const takeOne = async (holder: Session) => {
    const [event] = (await once(holder.events, 'agent')) as [AgentEvent];
    told.push(event.message);
  };
  const first = takeOne(session);
  await Promise.all(spawnAll());
  await first;
  // The others wait for whoever listens next, here or elsewhere.
  await takeOne(session);
  const elsewhere = await (await openProducer()).session(session.key);
  elsewhere.events.on('agent', ({ message }) => void told.push(message));
  await expect.poll(() => told.toSorted(), { timeout: 30_000 }).toEqual(tasks);
});

test('a task with half of an emoji reaches the agent’s model as well-formed text', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const told = once(session.events, 'agent');
  const caller = { callId: 'a', generation: '1', session: session.record };
  await new WorkerAgents(pawl.backend).open(caller).spawn('x \ud83d');
  expect(await told).toMatchObject([{ message: 'x \ufffd' }]);
});

test('that an agent is closed is delivered later when its session could not be closed', async () => {
  const waiting = [{ ...orderOf('one'), type: 'closed' } as AgentOrder];
  const told: string[] = [];
  const errors: Error[] = [];
  let away = true;
  const desk = new SubAgentService({
    agents: {
      list: async () => ['one'],
      take: async () => waiting.shift(),
      putBack: async () => {},
      read: async () => undefined,
      reply: async () => 'replied',
    },
    session: async (key) => sessionOf(key),
    closeSession: async () => {
      if (away) throw new Error('Redis is away');
    },
    onError: (error) => errors.push(error),
  });
  desk.listen(sessionOf('parent', (agentId) => told.push(agentId)));
  await expect.poll(() => errors).toMatchObject([{ message: 'Redis is away' }]);
  expect(told).toEqual([]);
  away = false;
  desk.catchUp();
  await expect.poll(() => told).toEqual(['one']);
});

test('who stops listening at once takes nothing', async () => {
  const { pawl, session } = await startFleet({ tools: [], workers: 0 });
  const listen = vi.spyOn(pawl.agents, 'listen');
  const ignore = () => {};
  session.events.on('agent', ignore);
  session.events.off('agent', ignore);
  await yieldToEventLoop();
  expect(listen).not.toHaveBeenCalled();
});

function orderOf(agentId: string): AgentOrder {
  return { type: 'task', agentId, turn: 1 } as unknown as AgentOrder;
}

function sessionOf(key: string, onAgent: (agentId: string) => void = () => {}): Session {
  return { key, emit: (_: string, { agentId }: AgentOrder) => onAgent(agentId) } as unknown as Session;
}
