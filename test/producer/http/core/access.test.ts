import { describe, expect, test } from 'vitest';
import { uuidv7 } from '../../../../src/shared/util/time.ts';
import { askServer, rawGet, startRig, testTools } from '../rig.ts';

const apiTokens = [
  { token: 'agent-token', role: 'agent' as const },
  { token: 'approver-token', role: 'approver' as const },
  { token: 'operator-token', role: 'operator' as const },
  { token: 'admin-token', role: 'admin' as const },
  { token: 'agent-of-acme', role: 'agent' as const, tenantId: 'acme' },
  { token: 'agent-of-other', role: 'agent' as const, tenantId: 'other' },
  { token: 'operator-of-acme', role: 'operator' as const, tenantId: 'acme' },
];

const start = () => startRig({ ...testTools(), settings: { apiTokens } });

describe('tokens', () => {
  test('every request but the two health checks needs a valid one', async () => {
    const { ask } = await start();
    expect((await ask('/healthz')).status).toBe(200);
    expect((await ask('/readyz')).status).toBe(200);
    for (const path of ['/v1/calls', '/v1/tools', '/metrics', '/debug/tool-reliability', '/openapi.json', '/nothing']) {
      for (const headers of [{}, { authorization: 'Bearer wrong' }, { authorization: 'Bearer' }]) {
        const answer = await ask(path, { headers });
        expect(answer, path).toMatchObject({ status: 401, body: { error: { code: 'UNAUTHENTICATED' } } });
        expect(answer.headers.get('www-authenticate')).toBe('Bearer realm="pawl"');
      }
    }
    expect((await ask('/v1/calls', { headers: { authorization: `Basic ${btoa('x:admin-token')}` } })).status).toBe(401);
    expect((await ask('/v1/calls', { headers: { authorization: 'bearer agent-token' } })).status).toBe(200);
  });

  test('a body is not read before the token is verified', async () => {
    const { ask } = await start();
    const answer = await ask('/v1/calls', { method: 'POST', raw: '{broken' });
    expect(answer.status).toBe(401);
  });

  test('a browser may give the token as the password of the board, and only there', async () => {
    const { ask } = await start();
    const challenge = await ask('/queues/');
    expect(challenge.status).toBe(401);
    expect(challenge.headers.get('www-authenticate')).toBe('Basic realm="pawl"');
    const basic = (token: string) => ({ authorization: `Basic ${btoa(`anybody:${token}`)}` });
    expect((await ask('/queues/', { headers: basic('operator-token') })).status).toBe(200);
    expect((await ask('/queues/', { headers: basic('agent-token') })).status).toBe(403);
  });

  test('with tokens the server answers to any host name', async () => {
    const { server } = await start();
    const headers = { host: 'pawl.internal', authorization: 'Bearer agent-token' };
    expect(await rawGet(`${server.url}/v1/calls`, headers)).toBe(200);
  });
});

test('each role has its own permissions', async () => {
  const { ask } = await start();
  const absent = `r0.${'x'.repeat(22)}`;
  const requests = [
    ['GET', '/v1/calls', undefined, 'agent operator admin'],
    ['GET', '/v1/sessions', undefined, 'agent operator admin'],
    ['GET', '/v1/tools', undefined, 'agent operator admin'],
    ['POST', `/v1/calls/${absent}/resolution`, { as: 'failed' }, 'operator admin'],
    ['GET', '/debug/tool-reliability', undefined, 'operator admin'],
    ['POST', '/debug/tool-reliability', { action: 'reset' }, 'operator admin'],
    ['GET', '/queues/', undefined, 'operator admin'],
    ['GET', '/metrics', undefined, 'operator admin'],
    ['GET', '/openapi.json', undefined, 'agent approver operator admin'],
  ] as const;
  for (const [method, path, json, allowed] of requests) {
    for (const role of ['agent', 'approver', 'operator', 'admin']) {
      const { status } = await ask(path, { method, json, token: `${role}-token` });
      if (allowed.split(' ').includes(role)) expect([200, 404], `${role} ${method} ${path}`).toContain(status);
      else expect(status, `${role} ${method} ${path}`).toBe(403);
    }
  }
});

describe('tenants', () => {
  const envelope = (sessionKey: string, tenantId?: string) => ({
    contractVersion: '1.1',
    requestId: uuidv7(),
    toolName: 'echo',
    toolNamespace: 'tools',
    target: { sessionKey, actorId: 'ada', ...(tenantId === undefined ? {} : { tenantId }) },
    payload: { version: '1.0', params: { text: 'x' } },
    transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 1, maxElapsedMs: 1_000 } },
    control: {},
    trace: {},
  });

  test('a token gives its tenant to the sessions and calls it makes', async () => {
    const { ask, call, pawl } = await start();
    const token = 'agent-of-acme';
    const opened = await ask('/v1/sessions', { method: 'POST', token, json: { sessionKey: 'a' } });
    expect(opened).toMatchObject({ status: 201, body: { tenantId: 'acme' } });
    for (const body of [
      { tool: 'echo', params: { text: 'x' }, session: 'a' },
      { tool: 'echo', params: { text: 'x' }, session: 'implicit' },
      envelope('a'),
      envelope('implicit-too', 'acme'),
    ]) {
      const { status, body: result } = await call(body, { token });
      expect(status).toBe(200);
      expect((await pawl.read(result.callId))?.request.envelope.target.tenantId).toBe('acme');
    }
    expect((await pawl.session('implicit')).record.tenantId).toBe('acme');
    expect((await pawl.session('implicit-too')).record).toMatchObject({ tenantId: 'acme', actorId: 'ada' });
  });

  test('another tenant, named or belonging to a session, is 403', async () => {
    const { ask, call } = await start();
    await ask('/v1/sessions', { method: 'POST', token: 'agent-of-other', json: { sessionKey: 'theirs' } });
    await ask('/v1/sessions', { method: 'POST', token: 'admin-token', json: { sessionKey: 'nobodys' } });
    const token = 'agent-of-acme';
    const refused = [
      await ask('/v1/sessions', { method: 'POST', token, json: { tenantId: 'other' } }),
      await ask('/v1/sessions', { method: 'POST', token, json: { kind: 'branch', parent: 'theirs' } }),
      await ask('/v1/sessions/theirs', { token }),
      await ask('/v1/sessions/nobodys', { token }),
      await ask('/v1/sessions/theirs', { method: 'DELETE', token }),
      await ask('/v1/tools?session=theirs', { token }),
      await ask('/v1/calls?session=theirs', { token }),
      await call({ tool: 'echo', params: { text: 'x' }, session: 'theirs' }, { token }),
      await call(envelope('theirs'), { token }),
      await call(envelope('mine', 'other'), { token }),
    ];
    for (const answer of refused)
      expect(answer).toMatchObject({ status: 403, body: { error: { code: 'PERMISSION_DENIED' } } });
    expect((await ask('/v1/sessions/theirs', { token: 'agent-of-other' })).body.state).toBe('open');
  });

  test('lists show the own tenant alone, and another tenant’s call is not there', async () => {
    const { ask, call } = await start();
    const mine = await call({ tool: 'echo', params: { text: 'm' }, session: 'mine' }, { token: 'agent-of-acme' });
    const theirs = await call({ tool: 'echo', params: { text: 't' }, session: 'theirs' }, { token: 'agent-of-other' });
    const token = 'operator-of-acme';
    const { calls } = (await ask('/v1/calls', { token })).body;
    expect(calls.map(({ callId }: { callId: string }) => callId)).toEqual([mine.body.callId]);
    const { sessions } = (await ask('/v1/sessions', { token })).body;
    expect(sessions.map(({ sessionKey }: { sessionKey: string }) => sessionKey)).toEqual(['mine']);
    const path = `/v1/calls/${theirs.body.callId}`;
    expect((await ask(path, { token })).status).toBe(404);
    expect((await ask(path, { token, method: 'DELETE' })).status).toBe(404);
    expect((await ask(`${path}/resolution`, { token, method: 'POST', json: { as: 'failed' } })).status).toBe(404);
    expect((await ask('/v1/calls', { token: 'admin-token' })).body.calls).toHaveLength(2);
  });

  test('a route for the whole fleet needs a token without a tenant', async () => {
    const { ask, server } = await start();
    for (const path of ['/debug/tool-reliability', '/metrics', '/queues/'])
      expect((await ask(path, { token: 'operator-of-acme' })).status, path).toBe(403);
    expect((await askServer(server.url, '/v1/tools', { token: 'operator-of-acme' })).status).toBe(200);
  });
});
