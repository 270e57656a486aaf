import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

function measuring() {
  const seen: number[] = [];
  const undone: number[] = [];
  const tool = defineTool({
    name: 'measure',
    version: '1.0.0',
    description: 'How long a text is.',
    tier: 'workspace',
    effects: 'keyed',
    input: z.strictObject({ text: z.string(), more: z.array(z.number()).default([]) }),
    run: ({ text, more }) => {
      seen.push(text.length);
      return { output: { length: text.length, last: text.slice(-1), more } };
    },
    compensate: async ({ text }) => void undone.push(text.length),
  });
  return { tool, seen, undone };
}

test('parameters of every size reach the tool as they are, once, whichever producer asks; BullMQ carries none of them', async () => {
  const { tool, seen, undone } = measuring();
  const { session, pawl, world, audited, openProducer } = await startFleet({ tools: [tool] });
  const elsewhere = await (await openProducer()).session(session.key);
  for (const length of [1, 60_000, 70_000, 3_900_000]) {
    const params = { text: `${'é'.repeat(length - 1)}!`, more: [length] };
    const options = { idempotencyKey: `k${length}` };
    const first = await session.call(tool, params, options);
    expect(contentOf(first)).toEqual({ length, last: '!', more: [length] });
    const again = await elsewhere.call(tool, params, options);
    expect(again).toMatchObject({ fromCache: true, callId: first.callId, output: first.output });
    const other = await session.call(tool, { ...params, more: [] }, options);
    expect(other).toMatchObject({ error: { code: 'IDEMPOTENCY_CONFLICT' } });
    const callId = first.callId ?? '';
    expect((await pawl.read(callId))?.request.envelope.payload.params).toEqual(params);
    await eventually(async () => {
      const texts = (await world.keys()).filter((key) => key.includes(`:params:${callId}`));
      return texts.length === (length > 65_000 ? 1 : 0);
    });
  }
  expect(seen).toHaveLength(4);
  const jobs = (await world.keys()).filter((key) => /:\{workspace\}:workspace:w0\.[^:]+$/.test(key));
  for (const job of jobs)
    for (const value of Object.values(await pawl.backend.redis.hgetall(job))) expect(value.length).toBeLessThan(4_096);
  expect(audited.every((event) => event.type !== 'refused')).toBe(true);

  const callId = (await session.call(tool, { text: 'x'.repeat(100_000) }, { idempotencyKey: 'undo' })).callId ?? '';
  expect(await session.compensate(callId)).toMatchObject({ status: 'success' });
  expect(undone).toEqual([100_000]);
});

test('parameters that were lost or changed before the call began end it with a typed error, and nothing runs', async () => {
  const { tool, seen } = measuring();
  const { session, pawl, world, audited, startWorker } = await startFleet({ tools: [tool], workers: 0 });
  const { redis } = pawl.backend;
  const handedIn = async (idempotencyKey: string) => {
    const call = pending(await session.submit(tool, { text: 'x'.repeat(100_000) }, { idempotencyKey }));
    const [key = ''] = (await world.keys()).filter((text) => text.includes(`:params:${call.callId}`));
    return { key, result: call.result };
  };
  const lost = await handedIn('lost');
  await redis.del(lost.key);
  const changed = await handedIn('changed');
  await redis.hset(changed.key, '0', 'changed');
  await startWorker();
  expect(await lost.result).toMatchObject({ status: 'error', attempts: 0, error: { code: 'PARAMS_LOST' } });
  expect(await changed.result).toMatchObject({ status: 'error', attempts: 0, error: { code: 'SIGNATURE_INVALID' } });
  expect(seen).toEqual([]);
  expect(audited).toContainEqual(expect.objectContaining({ type: 'refused', what: 'request' }));
});

test('of a call whose attempt left no record, parameters that are lost leave its effect unknown', async () => {
  const { tool, seen } = measuring();
  const { session, pawl, world, startWorker } = await startFleet({ tools: [tool], workers: 0 });
  const { redis, ledger } = pawl.backend;
  const call = pending(await session.submit(tool, { text: 'x'.repeat(100_000) }));
  const generation = (await ledger.readBrief(call.callId))?.generation ?? '';
  const job = { callId: call.callId, generation, session: session.key };
  const begun = await ledger.begin(job, { workerId: 'one that died', leaseMs: 1, token: 'lost' });
  expect(begun.kind).toBe('started');
  const [key = ''] = (await world.keys()).filter((text) => text.includes(`:params:${call.callId}`));
  await redis.del(key);
  await startWorker();
  expect(await call.result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
  expect(seen).toEqual([]);
});

test('parameters that wait for a person are there when they are approved, and go with the record when they are not', async () => {
  const { tool, seen } = measuring();
  const elevated = defineTool({
    name: 'publish',
    version: '1.0.0',
    description: 'Publishes a text.',
    tier: 'elevated',
    input: z.strictObject({ text: z.string() }),
    run: ({ text }) => {
      seen.push(text.length);
      return { output: text.length };
    },
  });
  const { pawl, world } = await startFleet({
    tools: [tool, elevated],
    settings: { signingKeys: [{ kid: 'k1', key: 'a key that nobody else has' }] },
  });
  const session = await pawl.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
  for (const decision of ['approve', 'deny'] as const) {
    const call = pending(await session.submit('publish', { text: decision.repeat(20_000) }));
    const listed = await eventually(async () => (await pawl.approvals.list({ state: 'pending' }))[0]);
    await pawl.approvals.decide(listed.record.request.id, { decision, digest: listed.digest, by: 'eve' });
    const result = await call.result;
    expect(result.error?.code).toBe(decision === 'approve' ? undefined : 'PERMISSION_DENIED');
    const [key = ''] = (await world.keys()).filter((text) => text.includes(`:params:${call.callId}`));
    expect(await pawl.backend.redis.pttl(key)).toBeGreaterThan(0);
  }
  expect(seen).toEqual(['approve'.length * 20_000]);
});
