import { expect, test } from 'vitest';
import type { Pawl, Session } from '../../src/index.ts';
import { signal, within } from '../helpers/signal.ts';
import { door, startTestService } from '../workers/connectors/service.ts';
import { SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';

test('four workers keep the limits of a tool and of a tenant exactly, and waiting spends no attempt (I17, I20)', async () => {
  const doors = { tool: door(3, 24), tenant: door(2, 16), open: door(1, 6) };
  const service = await startTestService(async ({ url }, response) => {
    await doors[url.slice(1) as keyof typeof doors].enter();
    response.end('visited');
  });
  const fleet = await startFleet({
    workers: 4,
    script: './visiting-worker.ts',
    config: {
      tools: { visit: { limits: { concurrency: 3 } } },
      tenants: { 'small-*': { limits: { concurrency: 2 } } },
    },
  });
  const call = async (count: number, tool: string, session = fleet.session, path: keyof typeof doors = 'tool') => {
    const calls = Array.from({ length: count }, (_, number) =>
      session.call(tool, { url: `${service.url}/${path}`, number }, { idempotencyKey: `${path}-${tool}-${number}` }),
    );
    for (const result of await within(Promise.all(calls), 40_000, `calls of ${tool}`))
      expect(result).toMatchObject({ status: 'success', attempts: 1 });
  };
  await call(24, 'visit');
  expect(doors.tool.most()).toBe(3);
  const small = await fleet.pawl.openSession({ sessionKey: 'small', tenantId: 'small-1' });
  await Promise.all([
    call(8, 'visit', small, 'tenant'),
    call(8, 'look', small, 'tenant'),
    // Nobody else waits for the tenant.
    call(6, 'look', fleet.session, 'open'),
  ]);
  expect(doors.tenant.most()).toBe(2);
});

/** Beside the lease: the next look of whoever waits, on a busy machine. */
const LOOK_MS = 3_000;

type Held = readonly [what: string, tool: 'visit' | 'pay', ofTool: object, ofTenant: object];

test.each<Held>([
  ['a tool’s concurrency and rate', 'pay', { concurrency: 1, perSecond: 1 }, {}],
  ['a tool and its tenant', 'pay', { concurrency: 1 }, { concurrency: 1, perSecond: 2 }],
])('what a killed worker held of %s is free within a lease and a look', expectFree);

test.each<Held>([
  ['a tool’s concurrency', 'visit', { concurrency: 1 }, {}],
  ['a tool’s concurrency, whose call is not run again', 'pay', { concurrency: 1 }, {}],
  ['a tool’s rate, whose call is not run again', 'pay', { perSecond: 1 }, {}],
  ['a tenant’s concurrency', 'pay', {}, { concurrency: 1 }],
])('what a killed worker held of %s is free within a lease and a look', { tags: 'slow' }, expectFree);

async function expectFree(...[, tool, ofTool, ofTenant]: Held): Promise<void> {
  const held = signal();
  let visits = 0;
  const service = await startTestService((_request, response) => {
    visits += 1;
    // The first visitor is killed while it waits.
    if (visits === 1) held.fire();
    else response.end('visited');
  });
  const config = { tools: { [tool]: { limits: ofTool } }, tenants: { 'small-*': { limits: ofTenant } } };
  const fleet = await startFleet({ script: './visiting-worker.ts', config, lockDurationMs: SHORT_LOCK_MS });
  const session = await smallSession(fleet.pawl);
  const visit = (number: number) =>
    session.call(tool, { url: service.url, number }, { idempotencyKey: `visit-${number}` });
  const first = visit(1);
  await held.promise;
  await fleet.addWorker();
  await fleet.workers[0]?.kill();
  const killedAtMs = performance.now();
  expect(await visit(2)).toMatchObject({ status: 'success' });
  expect(performance.now() - killedAtMs).toBeLessThan(SHORT_LOCK_MS + LOOK_MS);
  expect((await first).error?.code).toBe(tool === 'pay' ? 'OUTCOME_UNKNOWN' : undefined);
}

test('a call that runs for several leases keeps its place under a limit', async () => {
  const held = signal();
  let [inside, most] = [0, 0];
  const service = await startTestService((_request, response) => {
    inside += 1;
    most = Math.max(most, inside);
    held.fire();
    setTimeout(() => {
      inside -= 1;
      response.end('visited');
    }, 3 * 1_500);
  });
  const fleet = await startFleet({
    script: './visiting-worker.ts',
    config: { tools: { visit: { limits: { concurrency: 1 } } } },
    lockDurationMs: 1_500,
  });
  const visit = (number: number) =>
    fleet.session.call('visit', { url: service.url, number }, { idempotencyKey: `visit-${number}` });
  const first = visit(1);
  await held.promise;
  const results = await Promise.all([first, visit(2)]);
  expect(results.map(({ status }) => status)).toEqual(['success', 'success']);
  expect(most).toBe(1);
});

function smallSession(pawl: Pawl): Promise<Session> {
  return pawl.openSession({ sessionKey: 'small', tenantId: 'small-1' });
}
