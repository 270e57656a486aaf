import { expect, test } from 'vitest';
import { startRig, testTools } from '../rig.ts';

const apiTokens = [
  { token: 'agent-token', role: 'agent' as const },
  { token: 'approver-token', role: 'approver' as const },
  { token: 'operator-token', role: 'operator' as const },
  { token: 'agent-of-acme', role: 'agent' as const, tenantId: 'acme' },
  { token: 'operator-of-acme', role: 'operator' as const, tenantId: 'acme' },
];

interface Listed {
  readonly type: string;
  readonly tool?: string;
  readonly tenantId?: string;
  readonly callId?: string;
  readonly by?: string;
}

test('I4: GET /v1/audit is for operators; one of a tenant sees that tenant’s records; session, tool and since select', async () => {
  const { ask, call } = await startRig({ ...testTools(), settings: { apiTokens } });
  const list = async (query: string, token = 'operator-token') => {
    const answer = await ask(`/v1/audit${query}`, { token });
    expect(answer.status).toBe(200);
    return answer.body.records as Listed[];
  };
  const mine = await call({ tool: 'echo', params: { text: 'a' }, session: 's1' }, { token: 'agent-of-acme' });
  await call({ tool: 'fail', params: {}, session: 's2' }, { token: 'agent-token' });
  for (const token of ['agent-token', 'approver-token']) expect((await ask('/v1/audit', { token })).status).toBe(403);
  expect(new Set((await list('')).map(({ tool }) => tool))).toEqual(new Set(['tools.echo', 'tools.fail']));
  const acmes = await list('', 'operator-of-acme');
  // Written by two processes, of which either may be first.
  expect(acmes.map(({ type, tenantId }) => `${type} ${tenantId}`).toSorted()).toEqual(['attempt acme', 'call acme']);
  expect((await list('?session=s2')).every(({ tool }) => tool === 'tools.fail')).toBe(true);
  expect((await list('?tool=echo&type=call')).map(({ callId }) => callId)).toEqual([mine.body.callId]);
  expect(await list(`?since=${Date.now() + 60_000}`)).toEqual([]);
  expect((await list('?since=2020-01-01T00:00:00Z&limit=1')).length).toBe(1);
  for (const query of ['since=yesterday', 'type=calls']) {
    const wrong = await ask(`/v1/audit?${query}`, { token: 'operator-token' });
    expect(wrong, query).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
  }
  // An operator's own hand is recorded under their token's name.
  await ask('/debug/tool-reliability', {
    method: 'POST',
    token: 'operator-token',
    json: { action: 'disable', tool: 'echo', reason: 'trying' },
  });
  expect(await list('?type=override')).toMatchObject([{ by: expect.stringMatching(/^operator:/), tool: 'tools.echo' }]);
});
