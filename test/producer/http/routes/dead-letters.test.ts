/** `/v1/dead-letters` and `/v1/resolutions`. */
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ToolError } from '../../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../../helpers/signal.ts';
import { scripted } from '../../../helpers/tools.ts';
import { type Rig, startRig } from '../rig.ts';

function payments() {
  const state = { broken: true, paid: 0 };
  const { tool } = scripted('pay', () => {
    if (state.broken) throw new ToolError('the bank is closed', { code: 'BANK_CLOSED' });
    state.paid += 1;
    return { output: state.paid };
  });
  return { tool, state };
}

async function start(change: Parameters<typeof startRig>[0] = {}) {
  const { tool, state } = payments();
  const rig = await startRig({ tools: [tool], settings: { reliability: { openMode: 'off' } }, ...change });
  return { rig, state };
}

async function fail({ call }: Rig, count: number, session = 's', token?: string): Promise<string[]> {
  const answers = await Promise.all(
    Array.from({ length: count }, (_, number) =>
      call({ tool: 'pay', session, idempotencyKey: `k${number}`, params: {} }, token === undefined ? {} : { token }),
    ),
  );
  return answers.map(({ body }) => body.callId as string);
}

test('dead letters are listed, redriven and discarded; the call has the new result under its ID', async () => {
  const { rig, state } = await start();
  const { ask } = rig;
  const ids = await fail(rig, 3);
  const listed = await ask('/v1/dead-letters?tool=pay&code=BANK_CLOSED&session=s&since=2020-01-01&limit=2');
  expect(listed).toMatchObject({
    status: 200,
    body: { counts: { total: 3, codes: { BANK_CLOSED: 3 }, tools: { 'tools.pay': 3 } }, next: expect.any(String) },
  });
  const [first] = listed.body.deadLetters;
  expect(first).toMatchObject({ tool: 'pay', code: 'BANK_CLOSED', message: 'the bank is closed', attempts: 1 });
  const rest = await ask(`/v1/dead-letters?tool=pay&limit=2&next=${listed.body.next}`);
  expect(rest.body.deadLetters).toHaveLength(1);
  expect(rest.body.next).toBeUndefined();

  const post = (json: object) => ask('/v1/dead-letters', { method: 'POST', json });
  const filter = { tool: 'pay', until: Date.now() + 60_000 };
  expect((await post({ action: 'redrive', filter, dryRun: true })).body).toEqual({
    matched: 3,
    started: 0,
    skipped: [],
  });
  const [discarded = ''] = ids;
  expect((await post({ action: 'discard', ids: [discarded], reason: 'a test' })).body).toEqual({
    matched: 1,
    started: 1,
    skipped: [],
  });
  state.broken = false;
  const redriven = await post({ action: 'redrive', filter, perSecond: 100, reason: 'open again' });
  expect(redriven.body).toMatchObject({ matched: 2, started: 2, skipped: [], state: 'done' });
  for (const id of ids.slice(1)) {
    const { body } = await ask(`/v1/calls/${id}?wait=10000`);
    expect(body).toMatchObject({ state: 'done', result: { status: 'success' }, redrives: [{ code: 'BANK_CLOSED' }] });
    expect(body.attempts).toMatchObject([{ round: 1, status: 'error' }, { status: 'success' }]);
  }
  expect(state.paid).toBe(2);
  expect((await ask('/v1/dead-letters')).body).toMatchObject({ deadLetters: [], counts: { total: 0 } });
  expect((await ask(`/v1/dead-letters/redrives/${redriven.body.redriveId}`)).body).toMatchObject({
    state: 'done',
    by: 'local operator',
    reason: 'open again',
    filter: { tool: 'pay' },
    matched: 2,
    started: 2,
    skipped: [],
  });
  expect((await ask('/v1/dead-letters/redrives')).body.redrives).toMatchObject([{ started: 2, skippedCount: 0 }]);
});

test('a slow redrive answers in time, is followed and stopped', async () => {
  const { rig, state } = await start();
  const { ask } = rig;
  await fail(rig, 6);
  state.broken = false;
  const begun = await ask('/v1/dead-letters?wait=0', {
    method: 'POST',
    json: { action: 'redrive', filter: {}, perSecond: 1 },
  });
  expect(begun.body).toMatchObject({ matched: 6, state: 'running' });
  const path = `/v1/dead-letters/redrives/${begun.body.redriveId}`;
  await eventually(async () => (await ask(path)).body.started >= 1);
  const stopped = await ask(path, { method: 'DELETE' });
  expect(stopped.body).toMatchObject({ state: 'stopped' });
  expect((await ask(`${path}?wait=5000`)).body.state).toBe('stopped');
  const left = (await ask('/v1/dead-letters')).body.counts.total;
  expect(left).toBeGreaterThanOrEqual(3);
  expect(left).toBeLessThan(6);
});

test('calls in doubt are resolved together, with a reason', async () => {
  const pay = defineTool({
    name: 'pay',
    version: '1.0.0',
    description: 'Pays until its time is over.',
    tier: 'workspace',
    effects: 'once',
    input: z.object({}),
    output: z.object({ paid: z.number() }),
    run: (_, { signal: stopped }) =>
      new Promise((_resolve, reject) => stopped.addEventListener('abort', () => reject(stopped.reason))),
  });
  const rig = await startRig({ tools: [pay] });
  const { ask, call } = rig;
  const answers = await Promise.all(
    [1, 2].map((number) => call({ tool: 'pay', session: 's', idempotencyKey: `k${number}`, timeoutMs: 2_000 })),
  );
  const ids = answers.map(({ body }) => body.callId as string);
  const unresolved = () => ask('/v1/calls?state=unresolved');
  await eventually(async () => (await unresolved()).body.calls.length === 2);
  const post = (json: object) => ask('/v1/resolutions', { method: 'POST', json });
  const redrive = await ask('/v1/dead-letters', { method: 'POST', json: { action: 'redrive', ids } });
  expect(redrive.body).toMatchObject({ matched: 2, started: 0 });
  expect(redrive.body.skipped.map(({ callId }: { callId: string }) => callId).sort()).toEqual([...ids].sort());
  expect(await post({ filter: {}, as: 'failed' })).toMatchObject({
    status: 400,
    body: { error: { code: 'CONTRACT_INVALID', issues: [{ path: 'reason' }] } },
  });
  const body = { filter: { tool: 'pay' }, as: 'succeeded', output: { paid: 1 }, reason: 'the bank has both' };
  const unfit = { as: 'succeeded', output: { paid: 'yes' } };
  const skipped = ids.map((callId) => ({ callId, code: 'COMPLETION_INVALID' }));
  for (const dryRun of [true, false])
    expect((await post({ ...body, ...unfit, dryRun })).body).toMatchObject({
      started: 0,
      skipped: expect.arrayContaining(skipped),
    });
  expect(await ask(`/v1/calls/${ids[0]}/resolution`, { method: 'POST', json: unfit })).toMatchObject({
    status: 422,
    body: { error: { code: 'COMPLETION_INVALID', issues: [{ path: 'output.paid' }] } },
  });
  expect((await post({ ...body, dryRun: true })).body).toEqual({ matched: 2, started: 0, skipped: [] });
  expect((await post(body)).body).toEqual({ matched: 2, started: 2, skipped: [] });
  expect((await unresolved()).body.calls).toEqual([]);
  const { body: shown } = await ask(`/v1/calls/${ids[0]}`);
  expect(shown.result.output.content).toEqual({ paid: 1 });
  const { body: audit } = await ask(`/v1/audit?call=${ids[0]}&type=override`);
  expect(audit.records).toMatchObject([{ what: 'resolution', action: 'succeeded', reason: 'the bank has both' }]);
});

test.each([
  [{ action: 'redrive' }, 'filter'],
  [{ action: 'redrive', ids: ['a'], filter: {} }, 'filter'],
  [{ action: 'redrive', ids: [] }, 'ids'],
  [{ action: 'redrive', filter: { since: 'yesterday' } }, 'filter.since'],
  [{ action: 'redrive', filter: { since: 2, until: 1 } }, 'filter.until'],
  [{ action: 'redrive', filter: { since: '2026-02-30' } }, 'filter.since'],
  [{ action: 'redrive', filter: { since: '-5' } }, 'filter.since'],
  [{ action: 'redrive', filter: { tol: 'pay' } }, 'filter'],
  [{ action: 'redrive', filter: {}, perSecond: 0 }, 'perSecond'],
  [{ action: 'discard', filter: {}, perSecond: 5 }, 'perSecond'],
  [{ action: 'retry', filter: {} }, 'action'],
])('%j is 400 at %s, and nothing is stored', async (json, path) => {
  const { rig } = await start({ tools: undefined } as never);
  const before = await rig.world.keys();
  const { status, body } = await rig.ask('/v1/dead-letters', { method: 'POST', json });
  expect(status).toBe(400);
  expect(body.error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path }] });
  expect((await rig.world.keys()).filter((key) => !before.includes(key) && /redrive|dead/.test(key))).toEqual([]);
});

test('an agent’s token is refused, and a tenant’s operator sees its tenant alone', async () => {
  const token = (role: 'agent' | 'operator', tenantId?: string) => ({
    token: `${role}-${tenantId ?? 'all'}-token`,
    role,
    ...(tenantId === undefined ? {} : { tenantId }),
  });
  const apiTokens = [token('agent', 'red'), token('agent', 'blue'), token('operator', 'red'), token('operator')];
  const settings = { reliability: { openMode: 'off' as const }, apiTokens };
  const { rig, state } = await start({ settings });
  const { ask } = rig;
  const [red = ''] = await fail(rig, 1, 'of-red', 'agent-red-token');
  const [blue = ''] = await fail(rig, 1, 'of-blue', 'agent-blue-token');
  for (const [method, path, json] of [
    ['GET', '/v1/dead-letters', undefined],
    ['POST', '/v1/dead-letters', { action: 'redrive', filter: {} }],
    ['POST', '/v1/resolutions', { filter: {}, as: 'failed', reason: 'x' }],
    ['GET', '/v1/dead-letters/redrives', undefined],
  ] as const)
    expect((await ask(path, { method, json, token: 'agent-red-token' })).status).toBe(403);
  const listed = async (of: string) =>
    (await ask('/v1/dead-letters', { token: of })).body.deadLetters.map(({ callId }: { callId: string }) => callId);
  expect(await listed('operator-red-token')).toEqual([red]);
  expect(await listed('operator-all-token')).toEqual([blue, red]);
  state.broken = false;
  const redrive = (json: object, of: string) =>
    ask('/v1/dead-letters', { method: 'POST', token: of, json: { action: 'redrive', ...json } });
  expect((await redrive({ ids: [red, blue] }, 'operator-red-token')).body).toMatchObject({
    matched: 2,
    started: 1,
    skipped: [{ callId: blue, code: 'UNKNOWN_CALL' }],
  });
  await eventually(() => state.paid === 1);
  expect(await listed('operator-all-token')).toEqual([blue]);
});
