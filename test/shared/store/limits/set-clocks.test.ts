/** Redis' clock was set back: what it wrote before ends an hour later than it should. */
import { expect, test } from 'vitest';
import { reserve } from '../../../../src/shared/store/limits/budgets.ts';
import { Limits } from '../../../../src/shared/store/limits/concurrency-limits.ts';
import { openBooks } from '../calls.ts';

const HOUR_MS = 3_600_000;

test('starts under a limit of an hour ahead do not count', async () => {
  const { redis, world } = await openBooks();
  const limits = new Limits(redis, world.prefix);
  const limit = { name: 'tool:note', perSecond: 2 };
  const start = (jobId: string) => limits.acquire(limit, { jobId }, 30_000);
  expect([await start('a'), await start('b')]).toMatchObject([{ kind: 'granted' }, { kind: 'granted' }]);
  expect(await start('c')).toMatchObject({ kind: 'later' });
  const { starts } = limits['keys'].limit(limit.name);
  for (const member of await redis.zrange(starts, '0', '-1')) await redis.zincrby(starts, HOUR_MS, member);
  expect(await start('c')).toMatchObject({ kind: 'granted' });
});

test('a budget of a time is full again when that time is over', async () => {
  const { redis, ledger } = await openBooks();
  const { access } = ledger;
  const account = { name: 'minute', limits: { calls: 1 }, keptMs: 60_000, window: true };
  const charge = { accounts: [account], costUnits: 0 } as never;
  await reserve(access, charge);
  await redis.pexpire(access.fleet.budget('minute'), 60_000 + HOUR_MS);
  expect(await reserve(access, charge)).toHaveProperty('spent');
  expect(await redis.pttl(access.fleet.budget('minute'))).toBeLessThanOrEqual(60_000);
});
