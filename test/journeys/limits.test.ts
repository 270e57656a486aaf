import { expect, test } from 'vitest';
import { within } from '../helpers/signal.ts';
import { door, startTestService } from '../workers/connectors/service.ts';
import { startFleet } from './fixtures/fleet.ts';

test('four workers keep the limits of a tool and of a tenant exactly, and waiting spends no attempt (I17, I20)', {
  timeout: 60_000,
}, async () => {
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
