/** `/v1/sessions/{key}/agents`: programs of any language that run the sub-agents of a session. */
import { z } from 'zod';
import { sessionClosed } from '../../../shared/sessions/session.ts';
import { AGENT_ENDINGS } from '../../../shared/tools/sub-agent.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import type { AgentEvent } from '../../sessions/session.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { sessionFor } from './sessions.ts';

export const agentRoutes: readonly Route[] = [
  route('post /v1/sessions/{key}/agents/next', {
    operationId: 'nextAgentOrder',
    permission: 'use',
    summary:
      'The next message to a sub-agent of the session; waits for one up to `?wait=MS`. Each message is delivered once.',
    query: z.strictObject({ wait: queryNumber({ max: 300_000, fallback: 30_000, unit: 'milliseconds' }) }),
    responses: { 200: ['A message, or none', 'AgentNews'] },
    async answer({ pawl, longPolls, path, query, caller, onDisconnect }) {
      const session = await sessionFor(pawl, caller, path.key);
      // Otherwise a client would poll a closed session forever.
      if (session.record.state === 'closed') throw sessionClosed(session.key);
      const arrival = Promise.withResolvers<void>();
      let event: AgentEvent | undefined;
      const onAgentEvent = (received: AgentEvent) => {
        session.events.off('agent', onAgentEvent);
        event = received;
        arrival.resolve();
      };
      session.events.on('agent', onAgentEvent);
      try {
        await longPolls.waitFor(arrival.promise, query.wait, onDisconnect);
        // A message that is already there is delivered however short the wait is.
        if (event === undefined) await pawl.agents.checked(session.key);
      } finally {
        session.events.off('agent', onAgentEvent);
      }
      if (event === undefined) return {};
      const { session: agent, ...order } = event;
      return { order: { ...order, sessionKey: agent.key } };
    },
  }),
  route('post /v1/sessions/{key}/agents/{agentId}/reply', {
    operationId: 'replyAsAgent',
    permission: 'use',
    summary:
      'The answer of a sub-agent to the message of this `turn`. Refused when the agent has a newer message, is closed, or gave another answer before.',
    body: z.strictObject({
      turn: z.number().int().min(1),
      state: z.enum(AGENT_ENDINGS),
      output: z.string().max(1_000_000).optional(),
    }),
    responses: { 200: ['Whether it was accepted', 'AgentReplied'] },
    async answer({ pawl, path, body: { turn, state, output }, caller }) {
      const session = await sessionFor(pawl, caller, path.key);
      // The session needs only the agent and the turn of the order; its type has no effect here.
      const order = { agentId: path.agentId, turn, type: 'input' } as const;
      return { replied: await session.reply(order, { state, ...defined({ output }) }) };
    },
  }),
];
