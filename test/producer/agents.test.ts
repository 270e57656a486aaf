import { expect, test } from 'vitest';
import { AgentDesk } from '../../src/producer/agents.ts';
import type { Session } from '../../src/producer/session.ts';
import type { AgentOrder } from '../../src/shared/agent.ts';

test('what an agent is told stays in its mailbox while its session cannot be read, and keeps no other agent waiting', async () => {
  const mail = new Map(['one', 'other'].map((agentId) => [agentId, [orderOf(agentId)]]));
  const told: string[] = [];
  const errors: Error[] = [];
  let away = true;
  const desk = new AgentDesk({
    agents: {
      list: async () => [...mail.keys()],
      take: async (agentId) => mail.get(agentId)?.shift(),
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

function orderOf(agentId: string): AgentOrder {
  return { type: 'task', agentId, turn: 1 } as unknown as AgentOrder;
}

function sessionOf(key: string, onAgent: (agentId: string) => void = () => {}): Session {
  return { key, events: { emit: (_: string, { agentId }: AgentOrder) => onAgent(agentId) } } as unknown as Session;
}
