import { expect, test } from 'vitest';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { baseTools } from '../../../../src/workers/tools/index.ts';
import { type AskOptions, startRig, startTestWorker } from '../rig.ts';

async function startAgentRig() {
  const rig = await startRig();
  await startTestWorker(rig.settings, baseTools, silentLogger, ['read-only', 'system']);
  const post = (path: string, json?: unknown, options: AskOptions = {}) =>
    rig.ask(path, { method: 'POST', ...(json === undefined ? {} : { json }), ...options });
  const call = (tool: string, params: object, key: string) =>
    rig.call({ tool, params, session: 'lead', idempotencyKey: key }, { wait: 20_000 });
  return { ...rig, post, call };
}

test('over HTTP a program runs a session’s sub-agent: it gets orders, calls in its session, and replies (C18)', async () => {
  const { ask, post, call } = await startAgentRig();
  const spawned = await call('spawn_agent', { message: 'count the files' }, 'spawn');
  const { id: agentId } = spawned.body.output.content;
  const next = await post('/v1/sessions/lead/agents/next?wait=20000');
  expect(next.body.order).toMatchObject({
    agentId,
    turn: 1,
    type: 'spawned',
    message: 'count the files',
    sessionKey: agentId,
  });
  expect((await ask(`/v1/sessions/${agentId}`)).body).toMatchObject({ kind: 'worker', parent: 'lead' });
  const waiting = call('wait', { ids: [agentId] }, 'wait');
  const reply = { turn: 1, state: 'completed', output: 'three' };
  const at = `/v1/sessions/lead/agents/${agentId}/reply`;
  expect((await post(at, reply)).body).toEqual({ replied: true });
  expect(JSON.stringify((await waiting).body.output)).toContain('three');
  expect((await post(at, { ...reply, turn: 2 })).body).toEqual({ replied: false });
  expect((await post(at, { ...reply, output: 'four' })).body).toEqual({ replied: false });
  expect((await post(at, reply)).body).toEqual({ replied: true });
  const again = await call('wait', { ids: [agentId] }, 'wait again');
  expect(JSON.stringify(again.body.output)).toContain('three');
});

test('a request without a message gets none, and the next request gets a later one', async () => {
  const { post, call } = await startAgentRig();
  await post('/v1/sessions', { sessionKey: 'quiet' });
  expect((await post('/v1/sessions/quiet/agents/next?wait=0')).body).toEqual({});
  const two = await Promise.all(['a', 'b'].map((key) => call('spawn_agent', { message: key }, key)));
  expect(two.map(({ status }) => status)).toEqual([200, 200]);
  const told = [];
  for (let times = 0; times < 2; times += 1)
    told.push((await post('/v1/sessions/lead/agents/next?wait=20000')).body.order.message);
  expect(told.toSorted()).toEqual(['a', 'b']);
});

test('a missing agent and an invalid reply are refused with the reason', async () => {
  const { post } = await startAgentRig();
  await post('/v1/sessions', { sessionKey: 'lead' });
  expect((await post('/v1/sessions/unheard-of/agents/next?wait=0')).status).toBe(404);
  const reply = (json: unknown) => post('/v1/sessions/lead/agents/agent-x/reply', json);
  expect((await reply({ turn: 1, state: 'completed' })).body.error.code).toBe('NOT_FOUND');
  expect((await reply({ turn: 1, state: 'running' })).body.error.code).toBe('CONTRACT_INVALID');
});

test('a request with wait=0 gets a pending message, and a closed session is an error', async () => {
  const { post, call, ask } = await startAgentRig();
  for (const key of ['a', 'b']) await call('spawn_agent', { message: key }, key);
  const told = [];
  for (let times = 0; times < 3; times += 1)
    told.push((await post('/v1/sessions/lead/agents/next?wait=0')).body.order?.message);
  expect(told.toSorted()).toEqual(['a', 'b', undefined]);
  await ask('/v1/sessions/lead', { method: 'DELETE' });
  const next = await post('/v1/sessions/lead/agents/next?wait=20000');
  expect(next.status).toBe(409);
  expect(next.body.error.code).toBe('SESSION_CLOSED');
});
