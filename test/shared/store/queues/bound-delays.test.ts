import { expect, test } from 'vitest';
import { boundDelays } from '../../../../src/shared/store/queues/promote.ts';
import { claimOf, jobOf, openBooks, PLACE } from '../calls.ts';

const HOUR_MS = 3_600_000;
const DELAY_MS = 4_000;

test('where Redis’ clock was set back, retries and parked calls wait for as long as they were to wait; later starts keep their time', async () => {
  const { redis, world, ledger } = await openBooks();
  const keys = ledger.keys(PLACE);
  const nowMs = await ledger.now();
  const dueAtMs = async (jobId: string) => Number(await redis.zscore(keys.job('delayed'), jobId)) / 0x1000;
  const delayed = async (name: string, phase: string, leftMs: number) => {
    const claim = claimOf(name);
    await ledger.claim(claim);
    const { callId, generation } = jobOf(claim);
    const jobId = `${callId}.${generation}`;
    await redis.hset(keys.record(callId), { phase, notBeforeMs: String(nowMs + leftMs) });
    await redis.hset(keys.job(jobId), 'delay', String(DELAY_MS));
    await redis.zadd(keys.job('delayed'), (nowMs + leftMs) * 0x1000, jobId);
    return { callId, jobId };
  };
  const retried = await delayed('retried', 'waiting-retry', HOUR_MS + DELAY_MS);
  const parked = await delayed('parked', 'queued', HOUR_MS + DELAY_MS);
  const inTime = await delayed('in-time', 'waiting-retry', DELAY_MS);
  const later = await delayed('later', 'delayed', HOUR_MS + DELAY_MS);
  await boundDelays(redis, world.prefix, PLACE);
  for (const { callId, jobId } of [retried, parked]) {
    expect((await dueAtMs(jobId)) - nowMs).toBeGreaterThanOrEqual(DELAY_MS);
    expect((await dueAtMs(jobId)) - nowMs).toBeLessThan(DELAY_MS + 10_000);
    expect(await redis.hget(keys.record(callId), 'notBeforeMs')).toBe(String(await dueAtMs(jobId)));
  }
  expect(await dueAtMs(inTime.jobId)).toBe(nowMs + DELAY_MS);
  expect(await dueAtMs(later.jobId)).toBe(nowMs + HOUR_MS + DELAY_MS);
});
