import { expect, test } from 'vitest';
import { eventually } from '../../../helpers/signal.ts';
import { startRig, testTools } from '../rig.ts';

test('a drained worker finishes its calls, accepts no more and ends', async () => {
  const { tools, started, release } = testTools();
  const { ask, call } = await startRig({ tools });
  const { body } = await call({ tool: 'hold', session: 's' }, { wait: 0 });
  await started.promise;
  const [worker] = (await ask('/v1/workers')).body.workers;
  const asked = await ask(`/v1/workers/${encodeURIComponent(worker.id)}/drain`, { method: 'POST' });
  expect(asked.status).toBe(202);
  const isDraining = async () => (await ask('/v1/workers')).body.workers[0].draining === true;
  await eventually(isDraining, { what: 'the drain' });
  release.fire();
  const ended = await ask(`/v1/calls/${body.callId}?wait=5000`);
  expect(ended.body).toMatchObject({ state: 'done', attempts: [{ status: 'success' }] });
  await eventually(async () => (await ask('/v1/workers')).body.workers.length === 0, { what: 'the worker to leave' });
  expect((await ask('/v1/workers/nobody/drain', { method: 'POST' })).status).toBe(404);
});

test('calls are found by tool and state; a call shows its parameters without secrets', async () => {
  const { tools } = testTools();
  const { ask, call } = await startRig({ tools });
  await call({ tool: 'echo', session: 's', params: { text: 'password=hunter2-hunter2' } });
  const { body: failed } = await call({ tool: 'fail', session: 's' });
  const found = async (query: string) =>
    (await ask(`/v1/calls?${query}`)).body.calls.map(({ tool }: { tool: string }) => tool);
  expect(await found('state=failed')).toEqual(['fail']);
  expect(await found('tool=ECH')).toEqual(['echo']);
  expect(await found('state=unresolved')).toEqual([]);
  expect((await ask('/v1/calls?state=lost')).status).toBe(400);
  expect((await ask(`/v1/calls/${failed.callId}`)).body).toMatchObject({ params: {}, attempts: [{ fence: 1 }] });
});

test('a caller learns its role and permissions; the token of a tenant may not oversee', async () => {
  const apiTokens = [
    { token: 'agent-secret', role: 'agent' as const },
    { token: 'tenant-secret', role: 'operator' as const, tenantId: 'acme' },
  ];
  const { ask } = await startRig({
    settings: { apiTokens, traceUrl: 'http://127.0.0.1:16686/trace/{traceId}' },
  });
  const me = async (token: string) => (await ask('/v1/me', { token })).body;
  expect(await me('agent-secret')).toMatchObject({ role: 'agent', permissions: ['use', 'read'] });
  const tenant = await me('tenant-secret');
  expect(tenant).toMatchObject({ role: 'operator', tenantId: 'acme', traceUrl: expect.stringContaining('{traceId}') });
  expect(tenant.permissions).toContain('operate');
  expect(tenant.permissions).not.toContain('oversee');
  for (const path of ['/v1/workers', '/v1/circuits/history', '/queues'])
    expect((await ask(path, { token: 'tenant-secret' })).status, path).toBe(403);
});

test('an admin spreads new sessions among more shards; an operator sees each of them', async () => {
  const apiTokens = (['operator', 'admin'] as const).map((role) => ({ token: `${role}-secret`, role }));
  const { ask } = await startRig({ settings: { apiTokens } });
  const put = (tier: string, shards: unknown, token: string) =>
    ask(`/v1/shards/${tier}`, { method: 'PUT', json: { shards }, token });
  expect((await put('system', 2, 'operator-secret')).status).toBe(403);
  expect((await put('fast', 2, 'admin-secret')).status).toBe(404);
  expect((await put('system', 65, 'admin-secret')).body.error.issues).toMatchObject([{ path: 'shards' }]);
  const changed = await put('system', 2, 'admin-secret');
  const shard = { tier: 'system', takesSessions: true, waiting: 0, running: 0, kept: 0 };
  expect(changed.body.shards).toEqual([
    { ...shard, shard: 0 },
    { ...shard, shard: 1 },
  ]);
  expect((await ask('/v1/shards', { token: 'operator-secret' })).body.shards).toHaveLength(5);
});

test('the history of circuits has each new state, its time and its reason', async () => {
  const { tools } = testTools();
  const { ask } = await startRig({ tools });
  const act = (json: object) => ask('/debug/tool-reliability', { method: 'POST', json });
  await act({ action: 'force_open', tool: 'echo', reason: 'the index is rebuilt' });
  await act({ action: 'reset', key: 'tool:tools.echo' });
  const { changes } = (await ask('/v1/circuits/history')).body;
  const key = 'tool:tools.echo';
  expect(changes.filter((change: { key: string }) => change.key === key)).toEqual([
    { key, from: 'FORCED_OPEN', to: 'CLOSED', atMs: expect.any(Number) },
    { key, from: 'CLOSED', to: 'FORCED_OPEN', atMs: expect.any(Number), reason: 'the index is rebuilt' },
  ]);
});
