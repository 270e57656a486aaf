import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type ConnectionOptions, DelayedError, Queue, Worker } from 'bullmq';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import manifest from '../../../../package.json' with { type: 'json' };
import { digest } from '../../../../src/shared/schema/canonical-json.ts';
import {
  fetchAtEveryMarker,
  jobIdOf,
  KEPT_JOBS,
  scriptsOnRedisTime,
} from '../../../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { claimOf, jobOf, openBooks, PLACE } from '../calls.ts';

const require = createRequire(import.meta.url);

test('every script of BullMQ’s that a worker compares times with takes the caller’s clock as its second argument', () => {
  const scripts = Object.entries(scriptsOnRedisTime());
  expect(scripts).toHaveLength(4);
  for (const [name, { lua }] of scripts) {
    expect(name).toBe(`${name.split(':')[0]}:${manifest.dependencies.bullmq}`);
    expect(lua).toMatch(/ARGV\[2\]\s+timestamp/);
  }
});

test.each([3_600_000, -3_600_000])(
  'a delay lasts as long as it should, without asking all the time, on a clock that is %d ms off',
  async (skewMs) => {
    const { world, ledger } = await openBooks();
    const keys = ledger.keys(PLACE);
    await ledger.claim(claimOf('delayed'));
    const trueNow = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => trueNow() + skewMs);
    onTestFinished(() => void vi.restoreAllMocks());
    const begunMs: number[] = [];
    const { promise: again, resolve } = Promise.withResolvers<void>();
    const options = redisOptions({ url: world.redisUrl, name: `${world.prefix}:worker`, mode: 'patient' });
    const worker = new Worker(
      keys.queue,
      async (job, token) => {
        begunMs.push(performance.now());
        if (begunMs.length > 1) return resolve();
        await job.moveToDelayed(Date.now() + 500, token);
        throw new DelayedError();
      },
      {
        connection: { ...options, scripts: scriptsOnRedisTime() } as ConnectionOptions,
        prefix: keys.base,
        autorun: false,
        skipLockRenewal: true,
      },
    );
    onTestFinished(() => worker.close());
    fetchAtEveryMarker(worker);
    const asked = vi.spyOn(worker.backend, 'moveToActive');
    void worker.run();
    await again;
    const [first = 0, second = 0] = begunMs;
    expect(second - first).toBeGreaterThanOrEqual(495);
    expect(second - first).toBeLessThan(4_000);
    expect(asked.mock.calls.length).toBeLessThan(8);
  },
);

describe('BullMQ’s own scripts, which ours follow or run inside', () => {
  test('are those of the pinned version', () => {
    const installed = JSON.parse(readFileSync(require.resolve('bullmq/package.json'), 'utf8')) as { version: string };
    expect(manifest.dependencies.bullmq, 'bullmq must be pinned to one version').toMatch(/^\d+\.\d+\.\d+$/);
    expect(installed.version).toBe(manifest.dependencies.bullmq);
  });

  test.each([
    ['addStandardJob', 9, 'Lu5Fyf_FTSRoG3N_kmAWp_dGTw0ypfh_Yjv_ovxVQTw'],
    ['moveToActive', 11, 'fTUGnbC4Ma8b0bLV641STob8fTKAuMaEqWtmFLrX15o'],
    ['moveToFinished', 14, 'jnROxdZdvp5_-245qWwCaLumXk8LHQTi0qQsy3G0Wm0'],
  ])('%s has not changed', (name, keys, text) => {
    const script = (require(`bullmq/dist/cjs/scripts/${name}-${keys}.js`) as Record<string, { content: string }>)[name];
    expect(
      digest(script?.content ?? ''),
      'BullMQ has changed a script: compare it with enqueue.lua, fetch-jobs.lua, complete-job.lua, fetch-and-begin.lua and settle-and-fetch.lua, then update this test.',
    ).toBe(text);
  });
});

describe('a job as BullMQ sees it', () => {
  test('is an ordinary job of the tier’s queue, with our name and without parameters', async () => {
    const { ledger, world } = await openBooks();
    const claim = claimOf('secret parameters');
    await ledger.claim(claim);
    const keys = ledger.keys(PLACE);
    const queue = new Queue(keys.queue, {
      prefix: keys.base,
      connection: redisOptions({ url: world.redisUrl, name: `${world.prefix}:queue`, mode: 'patient' }) as never,
      skipMetasUpdate: true,
    });
    onTestFinished(() => queue.close());
    const jobId = jobIdOf(claim.callId, claim.generation);
    const job = await queue.getJob(jobId);
    expect(job).toMatchObject({
      id: jobId,
      name: 'note',
      timestamp: Number(claim.generation),
      data: jobOf(claim),
      opts: { attempts: 1, removeOnComplete: { count: KEPT_JOBS }, removeOnFail: { count: KEPT_JOBS } },
    });
    expect(JSON.stringify(job?.data)).not.toContain('secret');
    expect(await queue.getWaitingCount()).toBe(1);
    expect(await queue.getJobCounts('waiting', 'active', 'completed', 'failed')).toMatchObject({
      waiting: 1,
      active: 0,
    });
  });

  test('is removed when it is finished unless it is kept for Bull Board', async () => {
    const { ledger, redis } = await openBooks();
    const claim = claimOf('a', { keepJob: false });
    await ledger.claim(claim);
    const opts = await redis.hget(ledger.keys(PLACE).job(jobIdOf(claim.callId, claim.generation)), 'opts');
    expect(JSON.parse(opts ?? '')).toMatchObject({ removeOnComplete: true });
  });

  test('has a name and keys that no call ID can collide with', async () => {
    const { ledger, redis } = await openBooks();
    const keys = ledger.keys(PLACE);
    const claim = claimOf('wait');
    await ledger.claim(claim);
    expect(await redis.type(keys.job('wait'))).toBe('list');
    expect(await redis.lrange(keys.job('wait'), 0, -1)).toEqual([jobIdOf(claim.callId, claim.generation)]);
    expect(keys.job('wait')).toContain('{workspace}');
  });
});
