import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig } from '../rig.ts';

const TOKENS = [
  { token: 'agent-of-one', role: 'agent', tenantId: 'one' },
  { token: 'agent-of-two', role: 'agent', tenantId: 'two' },
  { token: 'approver-of-all', role: 'approver' },
] as const;

const double = defineTool({
  name: 'double',
  version: '1.0.0',
  description: 'Doubles a number.',
  tier: 'read-only',
  input: z.object({ n: z.number() }),
  run: async ({ n }) => ({ output: n * 2 }),
});

test('a batch over HTTP answers with the ID or the error of each call, and then with their states', async () => {
  const rig = await startRig({ tools: [double] });
  await eventually(async () => (await rig.pawl.catalogue()).tools.length === 1, { what: 'the tool' });
  const calls = [
    { tool: 'double', params: { n: 1 }, session: 'demo', idempotencyKey: 'one' },
    { tool: 'double', params: { n: 'two' }, session: 'demo' },
    { tool: 'double', session: 'demo', speed: 9 },
    { tool: 'double', params: { n: 4 }, session: 'other' },
  ];
  const made = await rig.ask('/v1/batches', { method: 'POST', json: { calls, concurrency: 1 } });
  expect(made.status).toBe(202);
  const { batchId, calls: answers } = made.body;
  expect(made.headers.get('location')).toBe(`/v1/batches/${batchId}`);
  expect(answers[1].error).toMatchObject({ code: 'INVALID_PARAMS', issues: [{ path: 'calls.1.params.n' }] });
  expect(answers[2].error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'calls.2' }] });
  const read = () => rig.ask(`/v1/batches/${batchId}`);
  await eventually(async () => (await read()).body.state === 'done', { what: 'the end of the batch' });
  const { body } = await read();
  expect(body.counts).toEqual({ total: 4, done: 2, refused: 2 });
  expect(body.calls[0]).toMatchObject({ callId: answers[0].callId, tool: 'double', session: 'demo', state: 'done' });
  const result = await rig.ask(`/v1/calls/${answers[3].callId}`);
  expect(result.body.result.output.content).toBe(8);
  const keyed = async (n: number) => {
    const json = { idempotencyKey: 'a', calls: [{ tool: 'double', params: { n }, session: 'demo' }] };
    const { status, body } = await rig.ask('/v1/batches', { method: 'POST', json });
    return status === 202 ? body.batchId : body.error.code;
  };
  const key = await keyed(6);
  expect([await keyed(6), await keyed(7)]).toEqual([key, 'IDEMPOTENCY_CONFLICT']);
  const cancelled = await rig.ask(`/v1/batches/${batchId}`, { method: 'DELETE' });
  expect(cancelled).toMatchObject({ status: 200, body: { state: 'done' } });

  const call = { tool: 'double', params: { n: 5 }, session: 'demo' };
  const later = [
    { ...call, startAfterMs: 3_600_000 },
    { ...call, startAt: 'soon' },
  ];
  const delayed = (await rig.ask('/v1/batches', { method: 'POST', json: { calls: later } })).body;
  expect(delayed.calls[1].error).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'calls.1.startAt' }] });
  await eventually(async () => (await rig.ask(`/v1/calls/${delayed.calls[0].callId}`)).body.phase === 'delayed');
  await rig.ask(`/v1/batches/${delayed.batchId}`, { method: 'DELETE' });
  await eventually(async () => (await rig.ask(`/v1/calls/${delayed.calls[0].callId}`)).body.state === 'cancelled');
});

test('a batch that is no batch is refused, and another tenant sees none', async () => {
  const rig = await startRig({ settings: { apiTokens: [...TOKENS] }, tools: [double] });
  await eventually(async () => (await rig.pawl.catalogue()).tools.length === 1, { what: 'the tool' });
  const post = (json: unknown, token = 'agent-of-one') => rig.ask('/v1/batches', { method: 'POST', json, token });
  for (const json of [{}, { calls: [] }, { calls: 'x' }, { calls: [{}], concurrency: 0 }, { calls: [{}], x: 1 }])
    expect((await post(json)).body.error.code).toBe('CONTRACT_INVALID');
  expect((await post({ calls: [{}] }, 'approver-of-all')).status).toBe(403);
  const call = { tool: 'double', params: { n: 1 }, session: 'one' };
  const { body } = await post({ calls: [call] });
  expect((await rig.ask(`/v1/batches/${body.batchId}`, { token: 'agent-of-one' })).status).toBe(200);
  for (const method of ['GET', 'DELETE'])
    expect((await rig.ask(`/v1/batches/${body.batchId}`, { method, token: 'agent-of-two' })).body.error.code).toBe(
      'NOT_FOUND',
    );
  const foreign = await post({ calls: [call, { ...call, session: 'two' }] }, 'agent-of-two');
  expect(foreign.body.calls[0].error.code).toBe('PERMISSION_DENIED');
  expect(foreign.body.calls[1].callId).toBeTruthy();
});
