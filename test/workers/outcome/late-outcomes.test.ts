/** Code that has ended while its worker cannot write to Redis: the outcome is written as soon as it can be, if no other attempt began. */
import { describe, expect, test } from 'vitest';
import { jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { PartitionKeys } from '../../../src/shared/store/redis/keys.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';
import type { ToolResult } from '../../../src/shared/tools/tool-result.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { createUser } from '../../helpers/redis-user.ts';
import { eventually, signal, within } from '../../helpers/signal.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

const SETTINGS = { lockDurationMs: 1_500, stalledIntervalMs: 60_000 };

async function leaseRunsOut({ pawl, settings }: Fleet, callId: string): Promise<void> {
  const keys = new PartitionKeys(settings.prefix, { tier: 'workspace', shard: 0 });
  const { generation = '' } = (await pawl.read(callId)) ?? {};
  const lock = `${keys.job(jobIdOf(callId, generation))}:lock`;
  await eventually(async () => (await pawl.backend.redis.exists(lock)) === 0, { what: 'the end of the lease' });
}

/** A call of a `once` tool that ends while Redis refuses what its worker writes, until the lease has run out. */
async function endWhileRefused(end: (ctx: ToolContext) => ToolResult<unknown> | Promise<ToolResult<unknown>>) {
  const started = signal();
  const mayEnd = signal();
  const { tool, contexts } = scripted(
    'effect',
    async (ctx) => {
      started.fire();
      await mayEnd.promise;
      return end(ctx);
    },
    { effects: 'once' },
  );
  const fleet = await startFleet({ tools: [tool], workers: 0 });
  const { redisUrl, prefix } = fleet.world;
  const user = await createUser(redisUrl, prefix, ['~*', '&*', '+@all']);
  await fleet.startWorker({ settings: { ...SETTINGS, redisUrl: user.url } });
  const submission = pending(await fleet.session.submit(tool, {}));
  await started.promise;
  await user.give('-@write');
  mayEnd.fire();
  await leaseRunsOut(fleet, submission.callId);
  return { fleet, submission, contexts, heal: () => user.give('+@all') };
}

describe('the outcome of a call that ended while its worker could not write for longer than its lease', () => {
  test.each([
    ['a result', () => ({ output: 'done' }), { status: 'success', attempts: 1, output: { content: 'done' } }],
    [
      'a failure that leaves no doubt',
      () => {
        throw httpError(422);
      },
      { status: 'error', attempts: 1, error: { code: 'HTTP_422' } },
    ],
  ])('is %s, and nothing ran again for it', async (_what, end, expected) => {
    const { heal, submission, contexts } = await endWhileRefused(end);
    await heal();
    expect(await within(submission.result, 30_000, 'the result')).toMatchObject(expected);
    expect(contexts).toHaveLength(expected.attempts);
  });

  test('is dropped when another worker has begun with the call meanwhile', async () => {
    const { fleet, heal, submission, contexts } = await endWhileRefused(() => ({ output: 'too late' }));
    await fleet.startWorker({ settings: { ...SETTINGS, stalledIntervalMs: 200 } });
    const result = await within(submission.result, 30_000, 'the result');
    await heal();
    expect(result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
    expect(contexts).toHaveLength(1);
  });
});
