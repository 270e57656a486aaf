import { expect, test } from 'vitest';
import { partitionFor } from '../../../../src/shared/calls/call-id.ts';
import { promote } from '../../../../src/shared/store/queues/promote.ts';
import { readShardState } from '../../../../src/shared/store/queues/shard-state.ts';
import { pending, startFleet } from '../../../helpers/fleet.ts';
import { eventually } from '../../../helpers/signal.ts';
import { gated, scripted } from '../../../helpers/tools.ts';

const AGO_MS = 20_000;

test('a call that waits for a limit waits for no worker, until it is promoted', async () => {
  const gate = gated('gate', { timeoutMs: 120_000 });
  const limited = { tools: { gate: { limits: { concurrency: 1 } } } };
  const { pawl, session } = await startFleet({ tools: [gate.tool], settings: limited });
  const { redis, prefix, ledger } = pawl.backend;
  const running = pending(await session.submit(gate.tool, { number: 1 }));
  await gate.arrived();
  const waiting = pending(await session.submit(gate.tool, { number: 2 }));
  const partition = partitionFor(waiting.callId);
  const keys = ledger.keys(partition);
  await eventually(async () => (await redis.zcard(keys.job('delayed'))) === 1, { what: 'the call that is put aside' });

  const [jobId = ''] = await redis.zrange(keys.job('delayed'), '0', '0');
  const record = keys.record(waiting.callId);
  await redis.hincrby(record, 'updatedAtMs', -AGO_MS);
  expect((await readShardState(redis, prefix, partition)).oldestWaitMs).toBe(0);

  // No worker takes what it is woken for.
  await redis.hset(keys.job('meta'), 'paused', '1');
  expect(await promote(redis, prefix, jobId)).toBe('promoted');
  await redis.hincrby(record, 'notBeforeMs', -AGO_MS);
  expect((await readShardState(redis, prefix, partition)).oldestWaitMs).toBeGreaterThanOrEqual(AGO_MS);
  await redis.hdel(keys.job('meta'), 'paused');
  gate.open();
  expect((await Promise.all([running.result, waiting.result])).map(({ status }) => status)).toEqual([
    'success',
    'success',
  ]);
});

test('a call that was cancelled before a person decided waits for nothing: not for a retry either', async () => {
  const deploy = scripted('deploy', () => ({ output: 'deployed' }), { tier: 'elevated' });
  const { pawl } = await startFleet({ tools: [deploy.tool] });
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const { redis, prefix, ledger } = pawl.backend;
  const { callId } = pending(await session.submit(deploy.tool, {}));
  const partition = partitionFor(callId);
  const keys = ledger.keys(partition);
  await eventually(async () => (await redis.zcard(keys.job('delayed'))) === 1, { what: 'the job that waits' });
  expect(await readShardState(redis, prefix, partition)).toMatchObject({ awaitingApproval: 1, delayed: 0, waiting: 0 });

  const [jobId = ''] = await redis.zrange(keys.job('delayed'), '0', '0');
  await pawl.cancel(callId);
  expect(await readShardState(redis, prefix, partition)).toMatchObject({ awaitingApproval: 0, delayed: 0, waiting: 0 });
  expect(await redis.exists(keys.job(jobId))).toBe(0);
});
