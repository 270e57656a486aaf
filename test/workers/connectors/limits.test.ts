import { expect, test } from 'vitest';
import { FleetKeys } from '../../../src/shared/store/keys.ts';
import { Limits } from '../../../src/shared/store/limits.ts';
import type { PutSpec } from '../../../src/shared/tool-spec.ts';
import { eventually } from '../../helpers/signal.ts';
import { contentOf, startFleet } from '../../producer/fleet.ts';
import { openBooks } from '../../shared/store/calls.ts';
import { sendJson, startTestService } from './service.ts';

const LEASE_MS = 30_000;
const CALLS = 50;

test('slots go to those that came first, and come back from those that are gone', async () => {
  const { redis, world } = await openBooks();
  const limits = new Limits(redis, world.prefix);
  const limit = { name: 'credential:one', concurrency: 2 };
  const take = async (job: string) => (await limits.take(limit, job, LEASE_MS)).waitMs === 0;
  expect([await take('a'), await take('b'), await take('c'), await take('d')]).toEqual([true, true, false, false]);
  expect(await take('a')).toBe(true);
  // It is kept for the one that waited longest, for two seconds: all three in one trip.
  const [, ...taken] = await Promise.all([limits.release(limit, 'b'), take('d'), take('c')]);
  expect(taken).toEqual([false, true]);
  expect(await take('d')).toBe(false);
  await redis.zincrby(new FleetKeys(world.prefix).limit(limit.name).holders, -LEASE_MS, 'a');
  expect(await take('d'), 'the slot of a, whose lease has ended').toBe(true);
  expect(await take('e')).toBe(false);
});

test('4 workers, 3 at a time and 20 in a second on one credential: the service never sees more (I17)', async () => {
  const inside: (() => void)[] = [];
  let most = 0;
  let answered = 0;
  const service = await startTestService(async (_asked, response) => {
    // As many as come together go together; the last two are fewer than three.
    await new Promise<void>((leave) => {
      most = Math.max(most, inside.push(leave));
      if (inside.length === Math.min(3, CALLS - answered)) for (const go of inside.splice(0)) go();
    });
    answered += 1;
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
  const calls = Promise.all(
    Array.from({ length: CALLS }, (_, index) => session.call(index % 2 === 0 ? 'first' : 'second', { index })),
  );
  // How long this process, or Redis, stood still at most.
  let [lookedAtMs, stillMs] = [performance.now(), 0];
  const ended = calls.then(() => true);
  await eventually(
    async () => {
      await pawl.backend.redis.ping();
      stillMs = Math.max(stillMs, performance.now() - lookedAtMs);
      lookedAtMs = performance.now();
      return Promise.race([ended, false]);
    },
    { what: 'the end of all calls' },
  );
  const results = await calls;
  for (const result of results) {
    expect(contentOf(result)).toEqual({ ok: true });
    // Waiting spends no attempt.
    expect(result.attempts).toBe(1);
  }
  expect(most).toBe(3);
  const times = service.asked.map(({ atMs }) => atMs);
  // A start that is under way for more than a second counts as arrived: three of them may come in a second that is full.
  const mostInASecond = stillMs < 900 ? 20 : 23;
  for (const atMs of times)
    expect(times.filter((other) => other >= atMs && other < atMs + 1_000).length).toBeLessThanOrEqual(mostInASecond);
  const lastedMs = Math.max(...times) - Math.min(...times);
  // It is used, too: 50 starts at 20 in a second take two seconds, and a little more.
  expect(lastedMs).toBeLessThan(20_000);
});
