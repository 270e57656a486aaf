import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig } from '../rig.ts';

const publish = defineTool({
  name: 'publish',
  version: '1.0.0',
  description: 'Publishes a text.',
  tier: 'elevated',
  input: z.strictObject({ text: z.string(), rows: z.array(z.array(z.number())).optional() }),
  preview: ({ text }) => ({ summary: `Publish ${text.length} characters`, details: text }),
  run: (params) => ({ output: params.text.length }),
});

test('a list of approvals truncates large parameters and gives their size; a single approval has them in full', async () => {
  const { ask, call } = await startRig({ tools: [publish], tiers: ['elevated'] });
  const session = { kind: 'main', sessionKey: 'press', actorId: 'agent-7', channel: { kind: 'operator' } };
  await ask('/v1/sessions', { method: 'POST', json: session });
  const submit = async (params: object) =>
    (await call({ tool: 'publish', session: 'press', params }, { wait: 0 })).body.callId as string;
  const small = { text: 'x'.repeat(10_000) };
  const large = { text: 'é'.repeat(1_000_000), rows: Array.from({ length: 20_000 }, (_, row) => [row, row]) };
  const smallId = await submit(small);
  const largeId = await submit(large);

  const list = await eventually(async () => {
    const answer = await ask('/v1/approvals?state=pending');
    return answer.body.approvals.length === 2 ? answer : undefined;
  });
  const listed = (callId: string) => list.body.approvals.find((each: { callId: string }) => each.callId === callId);
  expect(list.text.length).toBeLessThan(200_000);
  expect(listed(smallId)).toMatchObject({ params: small });
  expect(listed(smallId)).not.toHaveProperty('shortened');
  const paramsBytes = Buffer.byteLength(JSON.stringify(large));
  expect(listed(largeId)).toMatchObject({ shortened: true, paramsBytes });
  expect(listed(largeId).params.text).toMatch(/^é+… \(1000000 characters\)$/);
  expect(listed(largeId).params.rows.at(-1)).toMatch(/^… \(\d+ more\)$/);

  const whole = (await ask(`/v1/approvals/${listed(largeId).id}`)).body;
  expect(whole).toMatchObject({ params: large, digest: listed(largeId).digest });
  expect(whole).not.toHaveProperty('shortened');
  expect(whole.preview.details.length).toBeGreaterThan(200_000);

  const edited = { text: 'y'.repeat(300_000) };
  const decision = { decision: 'approve', digest: whole.digest, params: edited };
  const decided = await ask(`/v1/approvals/${whole.id}`, { method: 'POST', json: decision });
  expect(decided.body).toMatchObject({ decidedParams: edited });
  const [approved] = (await ask('/v1/approvals?state=approved')).body.approvals;
  expect(approved).toMatchObject({ shortened: true, paramsBytes });
  expect(approved.decidedParams.text).toMatch(/^y+… \(300000 characters\)$/);
});

test('approvers of the session’s tenant list its standing approvals, and revoke them', async () => {
  const apiTokens = [
    { token: 'agent-of-acme', role: 'agent' as const, tenantId: 'acme' },
    { token: 'approver-of-acme', role: 'approver' as const, tenantId: 'acme' },
    { token: 'approver-of-other', role: 'approver' as const, tenantId: 'other' },
  ];
  const { ask, call } = await startRig({ tools: [publish], tiers: ['elevated'], settings: { apiTokens } });
  const [token, approver] = ['agent-of-acme', 'approver-of-acme'];
  const session = { kind: 'main', sessionKey: 'press', actorId: 'agent-7', channel: { kind: 'operator' } };
  await ask('/v1/sessions', { method: 'POST', token, json: session });
  const { callId } = (await call({ tool: 'publish', session: 'press', params: { text: 'news' } }, { wait: 0, token }))
    .body;
  const { id, digest } = (await ask(`/v1/approvals/${callId}`, { token: approver })).body;
  const json = { decision: 'approve', digest, remember: true };
  await ask(`/v1/approvals/${id}`, { method: 'POST', token: approver, json });

  const remembered = await ask('/v1/sessions/press/remembered', { token: approver });
  expect(remembered.body.remembered).toMatchObject([{ approvalId: id, session: 'press', tool: 'publish' }]);
  expect((await ask('/v1/sessions/press/remembered', { token })).status).toBe(403);
  const path = `/v1/sessions/press/remembered/${id}`;
  expect((await ask(path, { method: 'DELETE', token })).status).toBe(403);
  expect((await ask(path, { method: 'DELETE', token: 'approver-of-other' })).status).toBe(403);
  expect((await ask(path, { method: 'DELETE', token: approver })).status).toBe(204);
  expect(await ask(path, { method: 'DELETE', token: approver })).toMatchObject({
    status: 404,
    body: { error: { code: 'UNKNOWN_APPROVAL' } },
  });
  expect((await ask('/v1/sessions/press/remembered', { token: approver })).body).toEqual({ remembered: [] });
});
