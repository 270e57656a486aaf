import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig } from '../rig.ts';

const double = defineTool({
  name: 'double',
  version: '1.0.0',
  description: 'Doubles a number.',
  tier: 'read-only',
  input: z.object({ n: z.number() }),
  output: z.object({ twice: z.number() }),
  run: async ({ n }) => ({ output: { twice: n * 2 } }),
});

test('a plan over HTTP: a dry run, its end, its list and its cancellation', async () => {
  const rig = await startRig({ tools: [double] });
  await eventually(async () => (await rig.pawl.catalogue()).tools.length === 1, { what: 'the tool' });
  const post = (json: unknown, query = '') => rig.ask(`/v1/plans${query}`, { method: 'POST', json });
  const plan = {
    session: 'demo',
    nodes: {
      b: { tool: 'double', params: { n: { $from: 'a.twice' } } },
      a: { tool: 'double', params: { n: 2 } },
    },
  };
  expect(await post(plan, '?dryRun=true')).toMatchObject({ status: 200, body: { order: ['a', 'b'] } });
  expect((await post({ session: 'demo', nodes: { a: { tool: 'nothing' } } })).status).toBe(400);
  expect((await rig.ask('/v1/plans')).body).toEqual({ plans: [] });
  expect((await rig.ask('/v1/sessions/demo')).status).toBe(404);
  const made = await post(plan);
  expect(made).toMatchObject({ status: 202, body: { order: ['a', 'b'] } });
  const at = `/v1/plans/${made.body.planId}`;
  await eventually(async () => (await rig.ask(at)).body.state === 'done', { what: 'the end of the plan' });
  const { body } = await rig.ask(at);
  expect(body.progress).toEqual({ ended: 2, total: 2 });
  expect(body.nodes.b).toMatchObject({ tool: 'double', state: 'success', needs: ['a'] });
  expect(body.nodes.b.calls).toMatchObject([{ summary: '{"twice":8}' }]);
  const call = await rig.ask(`/v1/calls/${body.nodes.b.calls[0].callId}`);
  expect(call.body.result.output.content).toEqual({ twice: 8 });
  expect((await rig.ask('/v1/plans')).body.plans).toMatchObject([{ state: 'done', counts: { total: 2, success: 2 } }]);
  expect(await rig.ask(at, { method: 'DELETE' })).toMatchObject({ status: 200, body: { state: 'done' } });
  const { records } = (await rig.ask('/v1/audit?type=group-changed')).body;
  expect(records).toMatchObject([
    { kind: 'plan', groupId: made.body.planId, action: 'ended', state: 'done', sessionKey: 'demo' },
    { kind: 'plan', groupId: made.body.planId, action: 'begun', size: 2, sessionKey: 'demo' },
  ]);
  const { text } = await rig.ask('/metrics');
  expect(text).toContain('groups_total{kind="plan",state="done"} 1');
  expect(text).toContain('groups_open 0');
  const keyed = (name: string) =>
    rig.ask('/v1/plans', {
      method: 'POST',
      headers: { 'idempotency-key': '"trip"' },
      json: { session: 'demo', nodes: { [name]: { tool: 'double', params: { n: 1 } } } },
    });
  const one = await keyed('a');
  expect(one.body.planId).toMatch(/^plan\./);
  expect(await keyed('a')).toMatchObject({ status: 202, body: one.body });
  expect(await keyed('b')).toMatchObject({ status: 422, body: { error: { code: 'IDEMPOTENCY_CONFLICT' } } });
  const wrong = await post({ session: 'demo', nodes: { a: { tool: 'double', params: { n: 'x' } } } });
  expect(wrong).toMatchObject({
    status: 400,
    body: { error: { code: 'PLAN_INVALID', issues: [{ path: 'nodes.a.params.n' }] } },
  });
});
