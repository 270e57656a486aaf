import { expect, test } from 'vitest';
import { startRig, testTools } from '../rig.ts';

test('I17: the turn of a short call counts towards its budget, and its tags set its priority', async () => {
  const { pawl, ask, call } = await startRig({ ...testTools(), settings: { policy: { global: { taint: 'deny' } } } });
  const opened = await ask('/v1/sessions', { method: 'POST', json: { budget: { perTurn: { calls: 1 } } } });
  const session = opened.body.sessionKey as string;
  const echo = (text: string, more: object) => call({ tool: 'echo', params: { text }, session, ...more });
  expect((await echo('a', { turnId: '1' })).status).toBe(200);
  expect((await echo('b', { turnId: '1' })).body.error.code).toBe('BUDGET_EXHAUSTED');
  const said = { turnId: '2', requestTags: ['importance:background'], safetyCritical: false, baggage: { user: 'ada' } };
  const { callId } = (await echo('c', said)).body;
  expect((await pawl.read(callId))?.request.envelope).toMatchObject({
    control: { requestTags: ['turn:2', 'importance:background'] },
    payload: { callHints: { safetyCritical: false } },
    trace: { baggage: { user: 'ada' } },
  });
  expect((await echo('d', { requestTags: ['taint:mail'] })).body.error.code).toBe('PERMISSION_DENIED');
  for (const wrong of [
    { turnId: '' },
    { requestTags: 'x' },
    { requestTags: Array(32).fill('x') },
    { baggage: { a: 1 } },
  ])
    expect((await echo('e', wrong)).status).toBe(400);
});

test('I17, I20: a spent budget and a full tier are 429; a session shows its spending', async () => {
  const { ask, call } = await startRig({
    ...testTools(),
    settings: { budgets: { tenants: { acme: { calls: 1 } } }, admission: { maxInflight: 2 } },
  });
  const opened = await ask('/v1/sessions', { method: 'POST', json: { budget: { calls: 2, costUnits: 9 } } });
  const session = opened.body.sessionKey as string;
  const echo = (text: string, key = session) => call({ tool: 'echo', params: { text }, session: key });
  expect((await echo('a')).status).toBe(200);
  expect((await echo('b')).status).toBe(200);
  const spent = await echo('c');
  expect(spent).toMatchObject({ status: 429, body: { error: { code: 'BUDGET_EXHAUSTED' } } });
  expect(spent.body.error.message).toContain('2 of 2 calls');
  expect(spent.headers.get('retry-after')).toBeNull();
  const shown = await ask(`/v1/sessions/${session}`);
  expect(shown.body.spent).toEqual({ calls: 2, costUnits: 2, timeMs: 0 });

  const tenant = await ask('/v1/sessions', { method: 'POST', json: { tenantId: 'acme' } });
  await echo('a', tenant.body.sessionKey as string);
  const later = await echo('b', tenant.body.sessionKey as string);
  expect(later.status).toBe(429);
  expect(Number(later.headers.get('retry-after'))).toBeGreaterThan(80_000);

  const free = await ask('/v1/sessions', { method: 'POST', json: { importance: 'background' } });
  const hold = (key: string) => call({ tool: 'hold', params: {}, session: key, idempotencyKey: key }, { wait: 0 });
  const other = await ask('/v1/sessions', { method: 'POST', json: {} });
  expect((await hold(other.body.sessionKey as string)).status).toBe(202);
  const full = await hold(free.body.sessionKey as string);
  expect(full).toMatchObject({ status: 429, body: { error: { code: 'OVERLOADED' } } });
  expect(full.headers.get('retry-after')).toBe('10');
  const wrong = await ask('/v1/sessions', { method: 'POST', json: { budget: { cals: 2 } } });
  expect(wrong).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
});
