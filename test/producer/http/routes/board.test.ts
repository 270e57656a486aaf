import { Redis } from 'ioredis';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PartitionKeys } from '../../../../src/shared/store/redis/keys.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig, testTools } from '../rig.ts';

describe('Bull Board at /queues', () => {
  test('shows the page, its files and the four queues', async () => {
    const { ask, server } = await startRig(testTools());
    for (const path of ['/queues', '/queues/', '/queues/queue/read-only']) {
      const page = await ask(path);
      expect(page.status, path).toBe(200);
      expect(page.text).toContain('<title>Pawl</title>');
      expect(page.headers.get('x-powered-by')).toBeNull();
      const base = new URL(/<base href="([^"]+)"/.exec(page.text)?.[1] ?? '', `${server.url}${path}`);
      const script = /src="(static\/js\/main[^"]+)"/.exec(page.text)?.[1] ?? '';
      const file = await ask(new URL(script, base).pathname);
      expect(file.status).toBe(200);
      expect(file.headers.get('content-type')).toContain('javascript');
    }
    const { status, body } = await ask('/queues/api/queues');
    expect(status).toBe(200);
    expect(
      body.queues.map(({ name, readOnlyMode }: { name: string; readOnlyMode: boolean }) => [name, readOnlyMode]),
    ).toEqual(['read-only', 'workspace', 'system', 'elevated'].map((name) => [name, true]));
  });

  test('shows which queues have a worker', async () => {
    const { ask } = await startRig(testTools());
    const { queues } = (await ask('/queues/api/queues')).body;
    expect(queues.map(({ hasWorkers }: { hasWorkers: boolean }) => hasWorkers)).toEqual([true, true, false, false]);
  });

  test('shows the IDs of a job’s call, and no parameter, result or failure message', async () => {
    const { ask, call } = await startRig(testTools());
    const done = await call({ tool: 'echo', session: 's', params: { text: 'a secret' } });
    const failed = await call({ tool: 'fail', session: 's' });
    const shown = await eventually(async () => {
      const ok = await ask('/queues/api/queues?activeQueue=workspace&status=completed');
      const bad = await ask('/queues/api/queues?activeQueue=read-only&status=failed');
      const jobs = [...ok.body.queues, ...bad.body.queues].flatMap(({ jobs: listed }: { jobs: object[] }) => listed);
      return jobs.length === 2 ? { jobs, text: ok.text + bad.text } : undefined;
    });
    expect(shown.jobs).toMatchObject([
      { name: 'echo', data: { callId: done.body.callId, session: 's' }, returnValue: { status: 'success' } },
      { name: 'fail', data: { callId: failed.body.callId }, failedReason: 'NOT_FOUND', stacktrace: [] },
    ]);
    expect(shown.text).not.toMatch(/a secret|it broke|\.ts:/);
    const [, { id }] = shown.jobs as [object, { id: string }];
    const one = await ask(`/queues/api/queues/read-only/${encodeURIComponent(id)}`);
    expect(one.status).toBe(200);
    expect(one.text).not.toMatch(/it broke|\.ts:/);
  });

  test('refuses every write with 405, and changes nothing in Redis by being there', async () => {
    const { ask, call, world, pawl } = await startRig(testTools());
    const { body } = await call({ tool: 'echo', session: 's', params: { text: 'x' } });
    const redis = new Redis(world.redisUrl);
    onTestFinished(() => redis.disconnect());
    const meta = new PartitionKeys(world.prefix, { tier: 'workspace', shard: 0 }).job('meta');
    await eventually(
      async () => {
        const records = await pawl.audit();
        return records.length >= 2 && records.every(({ seq }) => seq !== undefined);
      },
      { what: 'the seals of the call and its attempt' },
    );
    const before = [await redis.hgetall(meta), await world.keys()];
    await ask('/queues/api/queues?activeQueue=workspace');
    for (const [method, path] of [
      ['PUT', '/queues/api/queues/pause'],
      ['PUT', '/queues/api/queues/workspace/empty'],
      ['PUT', '/queues/api/queues/workspace/obliterate'],
      ['PUT', `/queues/api/queues/workspace/${body.callId}.1/retry`],
      ['POST', '/queues/api/queues/workspace/add'],
      ['PATCH', `/queues/api/queues/workspace/${body.callId}.1/update-data`],
      ['DELETE', '/queues/api/job-schedulers'],
    ] as const)
      expect(await ask(path, { method, json: {} }), `${method} ${path}`).toMatchObject({
        status: 405,
        body: { error: { code: 'METHOD_NOT_ALLOWED' } },
      });
    expect([await redis.hgetall(meta), await world.keys()]).toEqual(before);
  });
});
