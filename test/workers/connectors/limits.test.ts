import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Limits } from '../../../src/shared/store/limits.ts';
import type { PutSpec } from '../../../src/shared/tool-spec.ts';
import { eventually } from '../../helpers/signal.ts';
import { contentOf, startFleet } from '../../producer/fleet.ts';
import { openBooks } from '../../shared/store/calls.ts';
import { sendJson, startTestService } from './service.ts';

test('slots go to those that came first, and come back from those that are gone', async () => {
  const { redis, world } = await openBooks();
  const limits = new Limits(redis, world.prefix);
  const limit = { name: 'credential:one', concurrency: 2 };
  const take = async (job: string, leaseMs = 10_000) => (await limits.take(limit, job, leaseMs)).waitMs === 0;
  expect([await take('a', 200), await take('b'), await take('c'), await take('d')]).toEqual([true, true, false, false]);
  expect(await take('a', 200)).toBe(true);
  await limits.release(limit, 'b');
  // It is kept for the one that waited longest.
  expect([await take('d'), await take('c')]).toEqual([false, true]);
  await eventually(() => take('d'), { what: 'the end of the lease of a' });
  expect(await take('e')).toBe(false);
});

test('4 workers, 3 at a time and 20 in a second on one credential: the service never sees more (I17)', async () => {
  let now = 0;
  let most = 0;
  const service = await startTestService(async (_asked, response) => {
    now += 1;
    most = Math.max(most, now);
    await sleep(20);
    now -= 1;
    sendJson(response, { ok: true });
  });
  const { pawl, session } = await startFleet({
    tools: [],
    workers: 4,
    concurrency: 16,
    settings: { allowedHosts: [service.host] },
  });
  const limits = { credential: 'shared', concurrency: 3, perSecond: 20 };
  for (const name of ['first', 'second'])
    await pawl.registry.put(name, {
      kind: 'http',
      version: '1.0.0',
      description: 'Asks the service.',
      inputSchema: { type: 'object' },
      routing: { method: 'GET', url: `${service.url}/${name}`, limits },
    } as PutSpec);
  const results = await Promise.all(
    Array.from({ length: 50 }, (_, index) => session.call(index % 2 === 0 ? 'first' : 'second', { index })),
  );
  for (const result of results) {
    expect(contentOf(result)).toEqual({ ok: true });
    // Waiting spends no attempt.
    expect(result.attempts).toBe(1);
  }
  expect(most).toBeLessThanOrEqual(3);
  const times = service.asked.map(({ atMs }) => atMs);
  for (const atMs of times)
    expect(times.filter((other) => other >= atMs && other < atMs + 1_000).length).toBeLessThanOrEqual(20);
  const lastedMs = Math.max(...times) - Math.min(...times);
  // It is used, too: 50 starts at 20 in a second take two seconds, and a little more.
  expect(lastedMs).toBeLessThan(8_000);
});
