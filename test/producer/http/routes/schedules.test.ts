import { expect, test } from 'vitest';
import { startRig, testTools } from '../rig.ts';

const TOKENS = [
  { token: 'the-agent-1', role: 'agent' as const },
  { token: 'the-acme-1', role: 'agent' as const, tenantId: 'acme' },
  { token: 'the-umbrella-1', role: 'operator' as const, tenantId: 'umbrella' },
  { token: 'the-approver-1', role: 'approver' as const },
];

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

test('/v1/schedules: written, listed, shown, paused, resumed, let run and removed', async () => {
  const { ask } = await startRig(testTools());
  await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 'ops' } });
  const put = (id: string, json: object) => ask(`/v1/schedules/${id}`, { method: 'PUT', json });
  const act = (action: string) => ask('/v1/schedules/nightly', { method: 'POST', json: { action } });
  const nightly = {
    tool: 'echo',
    params: { text: 'hi' },
    session: 'ops',
    cron: '0 2 * * *',
    timezone: 'Europe/Berlin',
  };

  const created = await put('nightly', nightly);
  expect(created.status).toBe(201);
  expect(created.headers.get('location')).toBe('/v1/schedules/nightly');
  expect(created.body).toMatchObject({
    ...nightly,
    id: 'nightly',
    state: 'active',
    overlap: 'skip',
    missed: 'run-latest',
  });
  expect(created.body.next).toHaveLength(5);
  for (const at of created.body.next) expect(at).toMatch(ISO);

  const replaced = await put('nightly', { ...nightly, params: { text: 'ho' } });
  expect(replaced).toMatchObject({ status: 200, body: { revision: 2, params: { text: 'ho' } } });
  await put('often', {
    tool: 'echo',
    params: { text: 'hi' },
    session: 'ops',
    every: '5m',
    from: '2099-01-01T00:02:00Z',
  });
  const { schedules } = (await ask('/v1/schedules')).body;
  expect(schedules.map(({ id }: { id: string }) => id)).toEqual(['nightly', 'often']);
  expect(schedules[1].next.slice(0, 2)).toEqual(['2099-01-01T00:02:00.000Z', '2099-01-01T00:07:00.000Z']);

  expect((await act('pause')).body).toMatchObject({ state: 'paused', next: [], pausedBy: 'local operator' });
  const ran = await act('run');
  expect(ran).toMatchObject({
    status: 200,
    body: { state: 'paused', recent: [{ result: 'run' }], last: { result: 'run' } },
  });
  expect((await ask(`/v1/calls/${ran.body.callId}?wait=10000`)).body.result.output.content).toMatchObject({
    text: 'ho',
  });
  expect((await act('resume')).body.next).toHaveLength(5);
  expect((await act('stop')).body.error.issues[0].path).toBe('action');

  expect((await ask('/v1/schedules/nightly', { method: 'DELETE' })).status).toBe(204);
  expect((await ask('/v1/schedules/nightly')).body.error.code).toBe('NOT_FOUND');
  const { records } = (await ask('/v1/audit?type=schedule-changed')).body;
  expect(records.map(({ action, scheduleId }: Record<string, string>) => `${action} ${scheduleId}`).reverse()).toEqual([
    'created nightly',
    'replaced nightly',
    'created often',
    'paused nightly',
    'run nightly',
    'resumed nightly',
    'removed nightly',
  ]);
});

test('/v1/schedules: an invalid schedule is refused with the path, and nothing is stored', async () => {
  const { ask, world } = await startRig(testTools());
  await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 'ops' } });
  await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 'over' } });
  await ask('/v1/sessions/over', { method: 'DELETE' });
  const good = { tool: 'echo', params: { text: 'hi' }, session: 'ops', every: '5m' };
  const cron = { ...good, every: undefined };
  const cases: readonly [number, string, string, object][] = [
    [400, 'CONTRACT_INVALID', 'timezone', { ...cron, cron: '0 2 * * *', timezone: 'Europe/Berln' }],
    [400, 'CONTRACT_INVALID', 'timezone', { ...good, timezone: 'Europe/Berlin' }],
    [400, 'CONTRACT_INVALID', 'cron', { ...cron, cron: '61 * * * *' }],
    [400, 'CONTRACT_INVALID', 'cron', { ...cron, cron: '* * * *' }],
    [400, 'CONTRACT_INVALID', 'cron', { ...cron, cron: '0 0 31 2 *' }],
    [400, 'CONTRACT_INVALID', 'cron', { ...good, cron: '0 2 * * *' }],
    [400, 'CONTRACT_INVALID', 'every', cron],
    [400, 'CONTRACT_INVALID', 'every', { ...good, every: 999 }],
    [400, 'CONTRACT_INVALID', 'every', { ...good, every: 'soon' }],
    [400, 'CONTRACT_INVALID', 'until', { ...good, from: '2099-01-02', until: '2099-01-01' }],
    [400, 'CONTRACT_INVALID', 'until', { ...good, until: '2020-01-01T00:00:00Z' }],
    [400, 'CONTRACT_INVALID', 'from', { ...good, from: '2099-01-02T10:00:00' }],
    [400, 'CONTRACT_INVALID', 'from', { ...good, from: '2099-02-30' }],
    [400, 'CONTRACT_INVALID', 'from', { ...good, from: 1.5 }],
    [400, 'CONTRACT_INVALID', 'until', { ...good, until: '2099-02-30T00:00:00Z' }],
    [400, 'CONTRACT_INVALID', 'id', { ...good, id: 'another' }],
    [400, 'CONTRACT_INVALID', 'limit', { ...good, limit: 0 }],
    [400, 'CONTRACT_INVALID', 'overlap', { ...good, overlap: 'both' }],
    [400, 'CONTRACT_INVALID', 'missed', { ...good, missed: 'all' }],
    [400, 'CONTRACT_INVALID', 'session', { ...good, session: undefined }],
    [400, 'INVALID_PARAMS', 'params.text', { ...good, params: { text: 7 } }],
    [404, 'UNKNOWN_TOOL', 'tool', { ...good, tool: 'ecco' }],
    [400, 'CONTRACT_INVALID', 'session', { ...good, session: '\ud800' }],
    [400, 'CONTRACT_INVALID', 'every', { ...cron, session: 'new' }],
    [400, 'CONTRACT_INVALID', 'until', { ...good, session: 'new', until: '2020-01-01T00:00:00Z' }],
    [400, 'INVALID_PARAMS', 'params.text', { ...good, session: 'new', params: { text: 7 } }],
    [404, 'UNKNOWN_TOOL', 'tool', { ...good, session: 'new', tool: 'ecco' }],
    [409, 'SESSION_CLOSED', 'session', { ...good, session: 'over' }],
  ];
  for (const [status, code, path, json] of cases) {
    const { status: got, body } = await ask('/v1/schedules/x', { method: 'PUT', json });
    expect({ got, code: body.error?.code, path: body.error?.issues?.[0]?.path, json }).toEqual({
      got: status,
      code,
      path,
      json,
    });
  }
  for (const misread of ['*L', '5L', '1-', '*-5', '5*', '1?', '*/*', 'LW', '1,', '٥', 'mons', '005']) {
    const { body } = await ask('/v1/schedules/x', { method: 'PUT', json: { ...cron, cron: `0 0 ${misread} * *` } });
    expect(body.error?.message, misread).toContain('is no value, range or step');
  }
  for (const never of ['0 0 30 2 *', '0 0 31 4,6 *']) {
    const { body } = await ask('/v1/schedules/x', { method: 'PUT', json: { ...cron, cron: never } });
    expect(body.error.message).toContain('names a day that never comes');
  }
  expect((await ask('/v1/schedules/a%20b', { method: 'PUT', json: good })).body.error.issues[0].path).toBe('id');
  expect((await ask('/v1/schedules')).body).toEqual({ schedules: [] });
  expect((await world.keys()).filter((key) => key.includes('{schedules}'))).toEqual([]);
  expect((await ask('/v1/sessions/new')).status).toBe(404);

  expect((await ask('/v1/schedules/x', { method: 'PUT', json: { ...good, session: 'new' } })).status).toBe(201);
  expect((await ask('/v1/sessions/new')).body).toMatchObject({ kind: 'main', state: 'open' });
});

test('/v1/schedules: a token of a tenant sees only its own, and an approver none', async () => {
  const { ask } = await startRig({ ...testTools(), settings: { apiTokens: TOKENS } });
  const open = (sessionKey: string, token: string) =>
    ask('/v1/sessions', { method: 'POST', json: { sessionKey }, token });
  await open('a', 'the-acme-1');
  await open('u', 'the-umbrella-1');
  const put = (id: string, session: unknown, token: string) =>
    ask(`/v1/schedules/${id}`, {
      method: 'PUT',
      json: { tool: 'echo', params: { text: id }, session, every: '1h' },
      token,
    });
  expect(await put('acme', 'a', 'the-acme-1')).toMatchObject({ status: 201, body: { tenantId: 'acme' } });
  expect((await put('umbrella', 'u', 'the-umbrella-1')).status).toBe(201);
  const ids = async (token: string) =>
    (await ask('/v1/schedules', { token })).body.schedules.map(({ id }: { id: string }) => id);
  expect(await ids('the-acme-1')).toEqual(['acme']);
  expect(await ids('the-agent-1')).toEqual(['acme', 'umbrella']);

  const token = 'the-acme-1';
  expect((await ask('/v1/schedules/umbrella', { token })).status).toBe(404);
  expect((await ask('/v1/schedules/umbrella', { method: 'POST', json: { action: 'run' }, token })).status).toBe(404);
  expect((await ask('/v1/schedules/umbrella', { method: 'DELETE', token })).status).toBe(404);
  expect((await put('umbrella', 'a', token)).status).toBe(403);
  expect((await put('umbrella', 'new', token)).status).toBe(403);
  expect((await ask('/v1/sessions/new', { token })).status).toBe(404);
  expect((await put('other', 'u', token)).status).toBe(403);
  expect(await put('other', { key: 'u' }, token)).toMatchObject({
    status: 400,
    body: { error: { code: 'CONTRACT_INVALID', issues: [{ path: 'session' }] } },
  });
  expect((await ask('/v1/schedules', { token: 'the-approver-1' })).status).toBe(403);
  expect(await ids('the-umbrella-1')).toEqual(['umbrella']);
});
