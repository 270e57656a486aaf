import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../../helpers/signal.ts';
import { openReceiver } from '../../../workers/callbacks/receiver.ts';
import { startRig } from '../rig.ts';

const note = defineTool({
  name: 'note',
  version: '1.0.0',
  description: 'Notes a text.',
  tier: 'workspace',
  effects: 'idempotent',
  input: z.object({ text: z.string() }),
  run: async ({ text }) => ({ output: text }),
});

const tokens = [
  { token: 'operator-of-all-tenants', role: 'operator' },
  { token: 'agent-of-tenant-acme-1', role: 'agent', tenantId: 'acme' },
  { token: 'operator-of-acme-tenant', role: 'operator', tenantId: 'acme' },
  { token: 'operator-of-other-tenant', role: 'operator', tenantId: 'other' },
] as const;
const [ALL, AGENT, ACME, OTHER] = tokens.map(({ token }) => token);

test('a call over HTTP has a callback of its own or its session’s; a token lists and replays those of its tenant', async () => {
  const { ask, call, pawl } = await startRig({
    tools: [note],
    settings: { apiTokens: [...tokens], allowedHosts: ['127.0.0.1'] },
  });
  const receiver = await openReceiver((response) => void response.writeHead(410).end());
  const opened = await ask('/v1/sessions', {
    method: 'POST',
    token: AGENT as string,
    json: { sessionKey: 'told', callbackUrl: `${receiver.url}?of=session` },
  });
  expect(opened.body).toMatchObject({ callbackUrl: `${receiver.url}?of=session` });
  const { body } = await call({ tool: 'note', session: 'told', params: { text: 'a' } }, { token: AGENT as string });
  expect(body.status).toBe('success');
  await call(
    { tool: 'note', session: 'told', params: { text: 'b' }, callbackUrl: receiver.url },
    { token: AGENT as string },
  );
  const listed = await eventually(async () => {
    const answer = await ask('/v1/callbacks?state=failed', { token: ACME as string });
    return answer.body.callbacks.length === 2 && answer.body.callbacks;
  });
  expect(listed).toContainEqual(
    expect.objectContaining({ callId: body.callId, tenantId: 'acme', session: 'told', tool: 'note', lastStatus: 410 }),
  );
  expect((await ask('/v1/callbacks', { token: ALL as string })).body.callbacks).toHaveLength(2);
  expect((await ask('/v1/callbacks', { token: OTHER as string })).body.callbacks).toEqual([]);

  const path = `/v1/callbacks/${listed[0].id}`;
  const replay = (token: string, json: object = { action: 'replay' }) => ask(path, { method: 'POST', token, json });
  expect((await replay(OTHER as string)).status).toBe(404);
  expect((await replay(AGENT as string)).status).toBe(403);
  expect((await replay(ACME as string, { action: 'again' })).status).toBe(400);
  expect(
    (await ask('/v1/callbacks/none', { method: 'POST', token: ALL as string, json: { action: 'replay' } })).status,
  ).toBe(404);
  const replayed = await replay(ACME as string);
  expect(replayed).toMatchObject({ status: 200, body: { id: listed[0].id } });
  await eventually(() => receiver.received.length === 3);

  const envelope = (await pawl.session('told')).envelope('note', { text: 'c' });
  const whole = { ...envelope, callbackUrl: `${receiver.url}?of=envelope` };
  const answer = await call(whole, { token: AGENT as string });
  expect(answer.body).toMatchObject({ status: 'success' });
  await eventually(() => receiver.received.length === 4);
  expect((await ask('/v1/callbacks', { token: ALL as string })).body.callbacks[0]).toMatchObject({
    callId: answer.body.callId,
    url: whole.callbackUrl,
  });
  const refused = await call({ ...whole, callbackUrl: 'ftp://example.org' }, { token: AGENT as string });
  expect(refused).toMatchObject({ status: 400, body: { error: { issues: [{ path: 'callbackUrl' }] } } });
});

test('a bad callbackUrl is CONTRACT_INVALID with its path, and nothing runs', async () => {
  const { ask, call } = await startRig({ tools: [note] });
  const bad = 'https://ada:pw@example.org/';
  const { status, body } = await call({ tool: 'note', session: 's', params: { text: 'a' }, callbackUrl: bad });
  expect(status).toBe(400);
  expect(body.error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'callbackUrl' }] });
  expect((await ask('/v1/sessions', { method: 'POST', json: { callbackUrl: bad } })).body.error.issues).toMatchObject([
    { path: 'callbackUrl' },
  ]);
  expect((await ask('/v1/calls')).body.calls).toEqual([]);
});
