/**
 * C18: sub-agents over two workers and several producers.
 *
 * @module-tag slow
 */
import { expect, test } from 'vitest';
import type { Session, ToolResultEnvelope } from '../../src/index.ts';
import type { AgentEvent } from '../../src/types.ts';
import { eventually, signal, within } from '../helpers/signal.ts';
import { connectTo, startFleet } from './fixtures/fleet.ts';

interface Agent {
  readonly id: string;
  readonly state: string;
  readonly output?: string;
}

function agentOf(result: ToolResultEnvelope): Agent {
  expect(result.status, result.error?.message).toBe('success');
  return result.output?.content as Agent;
}

async function waited(session: Session, ids: readonly string[], timeoutMs = 10_000) {
  const result = await session.call('wait', { ids, timeout_ms: timeoutMs });
  expect(result.status, result.error?.message).toBe('success');
  return result.output?.content as { readonly agents: readonly Agent[]; readonly timed_out: boolean };
}

test('agents get messages in order, by one of several listeners, and waited for on whichever worker', async () => {
  const fleet = await startFleet({ workers: 2, script: './base-worker.ts' });
  const { session } = fleet;
  const ids: string[] = [];
  for (const message of ['a', 'b', 'c', 'd']) ids.push(agentOf(await session.call('spawn_agent', { message })).id);
  const first = ids[0] ?? '';
  // The same call, asked again, starts no second one.
  const key = { idempotencyKey: 'once' };
  const again = await Promise.all([1, 2].map(() => session.call('spawn_agent', { message: 'e' }, key)));
  expect(new Set(again.map((each) => agentOf(each).id)).size).toBe(1);
  expect(await waited(session, ids, 0)).toMatchObject({ timed_out: true, agents: [{ state: 'queued' }, {}, {}, {}] });
  expect((await fleet.pawl.session(first)).record).toMatchObject({ kind: 'worker', parent: session.key });

  // Two processes hold the session; each message goes to one of them.
  const second = await (await connectTo(fleet.world)).session(session.key);
  const told: AgentEvent[] = [];
  for (const each of [session, second]) each.events.on('agent', (event) => void told.push(event));
  await eventually(() => told.length === 5, { what: 'five tasks' });
  expect(told.map(({ message }) => message).sort()).toEqual(['a', 'b', 'c', 'd', 'e']);

  const order = told.find(({ agentId }) => agentId === first) as AgentEvent;
  const waiting = waited(session, ids);
  expect(await second.reply(order, { state: 'completed', output: 'done' })).toBe(true);
  const answered = await within(waiting, 30_000, 'the first answer');
  expect(answered.timed_out).toBe(false);
  expect(answered.agents[0]).toEqual({ id: first, state: 'completed', output: 'done' });
  expect(answered.agents.slice(1).map(({ state }) => state)).toEqual(['running', 'running', 'running']);

  // More to do makes the reply to what came before late.
  agentOf(await session.call('send_input', { id: first, message: 'more', interrupt: true }));
  const more = await eventually(() => told.find(({ message }) => message === 'more'));
  expect(more).toMatchObject({ type: 'input', interrupt: true, turn: 2 });
  expect(await session.reply(order, { state: 'failed' })).toBe(false);
  expect(await session.reply(more, { state: 'paused' })).toBe(true);
  expect((await waited(session, [first])).agents).toEqual([{ id: first, state: 'paused' }]);
  agentOf(await session.call('resume_agent', { id: first }));
  await eventually(() => told.find(({ type }) => type === 'resumed'));
  expect(await waited(session, [first], 0)).toMatchObject({ timed_out: true });

  // An agent spawns and waits for no agents of its own, and its session ends with it.
  expect((await order.session.call('wait', { ids: [first] })).error).toMatchObject({ code: 'PERMISSION_DENIED' });
  expect(agentOf(await session.call('close_agent', { id: first })).state).toBe('closed');
  await eventually(() => told.find(({ type }) => type === 'closed'));
  expect((await order.session.call('read', { path: 'x' })).error).toMatchObject({ code: 'SESSION_CLOSED' });
  expect((await session.call('resume_agent', { id: first })).error).toMatchObject({ code: 'NOT_FOUND' });

  const stranger = await fleet.pawl.openSession({ workspaceRoot: fleet.folder });
  const foreign = await stranger.call('send_input', { id: ids[1], message: 'x' });
  expect(foreign.error).toMatchObject({ code: 'NOT_FOUND' });
});

test('a session has sixteen agents and no more', async () => {
  const fleet = await startFleet({ workers: 1, script: './base-worker.ts' });
  const { session } = fleet;
  const spawned = await Promise.all(
    Array.from({ length: 17 }, (_, number) => session.call('spawn_agent', { message: `task ${number}` })),
  );
  const refused = spawned.filter(({ status }) => status !== 'success');
  expect(refused.map(({ error }) => error?.code)).toEqual(['TOO_MANY_AGENTS']);

  // One that is closed counts no more, though nobody listens who could hear of it.
  const closed = agentOf(spawned.find(({ status }) => status === 'success') as ToolResultEnvelope).id;
  agentOf(await session.call('close_agent', { id: closed }));
  agentOf(await session.call('spawn_agent', { message: 'in its place' }));
  const { error } = await session.call('spawn_agent', { message: 'one too many' });
  expect(error?.code).toBe('TOO_MANY_AGENTS');
  expect(error?.message).not.toContain(closed);
});

test('a call that waits holds no worker: one with a single slot goes on, and the answer resumes the call', async () => {
  const fleet = await startFleet({ workers: 1, concurrency: 1, script: './base-worker.ts' });
  const { session } = fleet;
  const heard = signal<AgentEvent>();
  session.events.on('agent', heard.fire);
  agentOf(await session.call('spawn_agent', { message: 'think' }));
  const event = await within(heard.promise, 10_000, 'the task');
  const params = { ids: [event.agentId], timeout_ms: 300_000 };
  const waiting = await Promise.all(
    ['first', 'second', 'third'].map(async (idempotencyKey) => {
      const call = await session.submit('wait', params, { idempotencyKey });
      if (call.kind !== 'pending') throw new Error(`the call is ${call.kind}`);
      return call;
    }),
  );
  const isAside = async ({ callId }: { readonly callId: string }) => {
    const call = await fleet.pawl.read(callId);
    return call?.phase === 'queued' && call.fence > 0;
  };
  await eventually(async () => (await Promise.all(waiting.map(isAside))).every(Boolean));
  expect(agentOf(await session.call('send_input', { id: event.agentId, message: 'more' }))).toMatchObject({
    id: event.agentId,
  });
  const [first, , third] = waiting;
  expect(await session.cancel(third?.callId ?? '')).toMatchObject({ settlement: 'cancelled' });

  const order = { ...event, turn: 2 };
  expect(await session.reply(order, { state: 'completed', output: 'soon' })).toBe(true);
  for (const { result } of waiting.slice(0, 2)) {
    const { status, output, attempts } = await within(result, 20_000, 'the answer');
    expect({ status, attempts }).toEqual({ status: 'success', attempts: 1 });
    expect(output?.content).toMatchObject({ agents: [{ state: 'completed', output: 'soon' }], timed_out: false });
  }
  expect((await fleet.pawl.read(first?.callId ?? ''))?.attempts).toHaveLength(1);
});
