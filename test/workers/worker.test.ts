import { setTimeout } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { jobIdOf } from '../../src/shared/store/queues/jobs.ts';
import { redisOptions } from '../../src/shared/store/redis/connection-options.ts';
import { FleetKeys, PartitionKeys } from '../../src/shared/store/redis/keys.ts';
import { TIERS } from '../../src/shared/tools/tool.ts';
import { contentOf, type Fleet, pending, startFleet } from '../helpers/fleet.ts';
import { startWire } from '../helpers/proxy.ts';
import { eventually, within } from '../helpers/signal.ts';
import { echo, gated, httpError, scripted } from '../helpers/tools.ts';

const WORKSPACE = { tier: 'workspace', shard: 0 } as const;

function queueOf({ world, settings }: Fleet): Queue {
  const keys = new PartitionKeys(settings.prefix, WORKSPACE);
  const queue = new Queue(keys.queue, {
    prefix: keys.base,
    connection: redisOptions({ url: world.redisUrl, name: `${world.prefix}:queue`, mode: 'patient' }) as never,
    skipMetasUpdate: true,
  });
  onTestFinished(() => queue.close());
  return queue;
}

describe('what a worker offers', () => {
  test('is in the catalogue while it lives, and its leaving is seen', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const worker = await fleet.startWorker();
    expect(worker.tools).toEqual(['tools.echo@1.0.0']);
    expect((await fleet.pawl.catalogue()).workers.map(({ id, tools }) => ({ id, tools }))).toEqual([
      { id: worker.id, tools: ['tools.echo@1.0.0'] },
    ]);
    await worker.close();
    await eventually(async () => (await fleet.pawl.catalogue()).workers.length === 0);
  });

  test('is there again as soon as Redis is, although that has lost it', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const wire = await startWire(fleet.world.redisUrl);
    const worker = await fleet.startWorker({ settings: { redisUrl: wire.url } });
    const { redis, prefix } = fleet.pawl.backend;
    const keys = new FleetKeys(prefix);
    wire.cut();
    await redis.unlink(keys.tools, keys.workers, keys.workerLoads);
    wire.heal();
    await eventually(async () => {
      const { tools, workers } = await fleet.pawl.catalogue();
      return tools.length === 1 && workers[0]?.id === worker.id;
    });
  });

  test('two tools of one name cannot be offered together', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    await expect(fleet.startWorker({ tools: [echo, { ...echo, version: '2.0.0' }] })).rejects.toMatchObject({
      code: 'CONFIGURATION',
    });
    await eventually(async () => (await fleet.world.connections()).every((name) => !name.includes('worker')));
  });

  test('what cannot be published ends the start: nothing stays open, and errors are the process’s again', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const handlers = () => process.listenerCount('uncaughtException') + process.listenerCount('unhandledRejection');
    const before = handlers();
    const { redis, prefix } = fleet.pawl.backend;
    await redis.set(new FleetKeys(prefix).workers, 'no index');
    await expect(fleet.startWorker()).rejects.toThrow('WRONGTYPE');
    expect(handlers()).toBe(before);
    await eventually(async () => (await fleet.world.connections()).every((name) => !name.includes('worker')));
  });

  test('a call for a tool that this worker lacks waits for one that has it, without consuming an attempt', async () => {
    const { tool } = scripted('note', ({ attempt }) => ({ output: attempt }));
    const other = scripted('other', () => ({ output: null })).tool;
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    await fleet.startWorker({ tools: [other] });
    const submission = pending(await fleet.session.submit(tool, {}));
    await eventually(async () => ((await fleet.pawl.read(submission.callId))?.fence ?? 0) > 0);
    await fleet.startWorker();
    expect(await submission.result).toMatchObject({ status: 'success', attempts: 1, output: { content: 1 } });
  });
});

describe('draining', () => {
  test.each([10_000, Number.POSITIVE_INFINITY])('waits %s ms for what runs and takes nothing new', async (graceMs) => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], workers: 0, concurrency: 1 });
    const worker = await fleet.startWorker();
    const running = pending(await fleet.session.submit(gate.tool, {}, { idempotencyKey: 'one' }));
    await gate.arrived();
    const closing = worker.close(graceMs);
    const waiting = pending(await fleet.session.submit(gate.tool, {}, { idempotencyKey: 'two' }));
    const listed = async () => (await fleet.pawl.backend.catalogue.read()).workers;
    await eventually(async () => (await listed()).some(({ draining }) => draining), { what: 'the draining worker' });
    expect(await listed()).toMatchObject([{ id: worker.id, tiers: [], tools: [], running: 1 }]);
    gate.open();
    await closing;
    expect(await listed()).toEqual([]);
    expect((await running.result).status).toBe('success');
    expect(await fleet.pawl.read(waiting.callId)).toMatchObject({ phase: 'queued', attempts: [] });
    expect(gate.contexts).toHaveLength(1);
  });

  test.each([Number.NaN, 'SIGTERM', '10s', null, 1n, {}])(
    'a grace period of %s is refused by its name, and ends nothing',
    async (graceMs) => {
      const gate = gated();
      const fleet = await startFleet({ tools: [gate.tool], workers: 0 });
      const worker = await fleet.startWorker();
      const submission = pending(await fleet.session.submit(gate.tool, {}));
      await gate.arrived();
      await expect(worker.close(graceMs as number)).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        message: expect.stringContaining('graceMs: must be a number of milliseconds'),
      });
      gate.open();
      expect(await submission.result).toMatchObject({ status: 'success' });
    },
  );

  test.each([
    ['idempotent', 'success'],
    ['once', 'OUTCOME_UNKNOWN'],
  ] as const)('when the grace period ends, a running %s call comes to %s', async (effects, end) => {
    const gate = gated('gate', { effects });
    const fleet = await startFleet({ tools: [gate.tool], workers: 0 });
    const worker = await fleet.startWorker();
    const submission = pending(await fleet.session.submit(gate.tool, {}));
    await gate.arrived();
    await worker.close(0);
    expect(gate.contexts[0]?.signal.reason).toMatchObject({ code: 'DRAINED' });
    gate.open();
    await fleet.startWorker();
    const result = await submission.result;
    expect(result.error?.code ?? result.status).toBe(end);
    expect(result.attempts).toBe(1);
    if (end === 'success') expect(result).not.toHaveProperty('retriedBy');
  });

  test('ends while the connection that waits for jobs is being made again', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const wire = await startWire(fleet.world.redisUrl);
    const worker = await fleet.startWorker({ settings: { redisUrl: wire.url } });
    const { redis } = fleet.pawl.backend;
    const blocked = await eventually(async () => {
      const list = String(await redis.client('LIST')).split('\n');
      const found = list.find((line) => line.includes(fleet.world.prefix) && line.includes('cmd=bzpopmin'));
      return found && /\bid=(\d+)/.exec(found)?.[1];
    });
    wire.refuse();
    await redis.client('KILL', 'ID', blocked);
    await setTimeout(200);
    await within(worker.close(), 20_000, 'the end of the worker');
    wire.heal();
  });

  test('of a worker that runs nothing ends although Redis is away, however long its grace period', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const wire = await startWire(fleet.world.redisUrl);
    const worker = await fleet.startWorker({ settings: { redisUrl: wire.url } });
    wire.cut();
    await within(worker.close(Number.POSITIVE_INFINITY), 60_000, 'the end of a worker without Redis');
  });
});

describe('jobs', () => {
  test('stay small and hold no parameters and no results', async () => {
    const { tool } = scripted('note', () => ({ output: 'secret result' }));
    const fleet = await startFleet({ tools: [tool] });
    const { callId = '' } = await fleet.session.call(tool, { text: 'secret parameter' });
    const { generation = '' } = (await fleet.pawl.read(callId)) ?? {};
    const queue = queueOf(fleet);
    const job = await eventually(async () => {
      const found = await queue.getJob(jobIdOf(callId, generation));
      return found?.finishedOn === undefined ? undefined : found;
    });
    expect(job.returnvalue).toEqual({ status: 'success', attempts: 1, durationMs: expect.any(Number) });
    expect(JSON.stringify(job)).not.toContain('secret');
  });

  test('a failed call is a failed job, with its code for Bull Board', async () => {
    const { tool } = scripted('down', () => {
      throw httpError(404);
    });
    const fleet = await startFleet({ tools: [tool] });
    const { callId = '' } = await fleet.session.call(tool, {});
    const { generation = '' } = (await fleet.pawl.read(callId)) ?? {};
    const queue = queueOf(fleet);
    const job = await eventually(async () => {
      const found = await queue.getJob(jobIdOf(callId, generation));
      return found?.failedReason === undefined ? undefined : found;
    });
    expect(job.failedReason).toBe('HTTP_404: HTTP 404');
  });

  test('one that is not ours ends, and the queue goes on', async () => {
    const { tool } = scripted('note', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool] });
    const queue = queueOf(fleet);
    const foreign = await queue.add('note', { callId: 7 });
    await eventually(async () => (await foreign.getState()) === 'failed');
    expect((await fleet.session.call(tool, {})).status).toBe('success');
  });

  test('many that fail at once leave none behind: the next job is taken under the lock that it was given', async () => {
    const { tool } = scripted('note', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool], concurrency: 4 });
    const queue = queueOf(fleet);
    await queue.addBulk(Array.from({ length: 40 }, () => ({ name: 'note', data: { callId: 'x' } as never })));
    // A job whose lock another worker holds would stay active until that runs out.
    expect(fleet.settings.lockDurationMs).toBeGreaterThan(20_000);
    await eventually(async () => (await queue.getFailedCount()) === 40, { what: 'the end of all' });
    expect(await queue.getActiveCount()).toBe(0);
  });

  test('one for a call that has ended is dropped', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool] });
    const { callId = '' } = await fleet.session.call(tool, {});
    const record = await fleet.pawl.read(callId);
    const queue = queueOf(fleet);
    const { generation = '' } = record ?? {};
    const jobId = jobIdOf(callId, generation);
    await eventually(async () => {
      await (await queue.getJob(jobId))?.remove();
      return true;
    });
    const again = await queue.add('note', { callId, generation, session: fleet.session.key }, { jobId });
    await eventually(async () => (await again.getState()) === 'completed');
    expect(contexts).toHaveLength(1);
  });
});

test('a worker has as many attempts at a time as its options say, for each tier', async () => {
  const gate = gated();
  const fleet = await startFleet({ tools: [gate.tool, echo], workers: 0 });
  const worker = await fleet.startWorker({ concurrency: 2 });
  const calls = ['a', 'b', 'c'].map((idempotencyKey) => fleet.session.call(gate.tool, {}, { idempotencyKey }));
  await gate.arrived(2);
  expect(contentOf(await fleet.session.call(echo, { text: 'x' }))).toEqual({ text: 'x' });
  await eventually(() => worker.running === 2);
  expect(gate.contexts).toHaveLength(2);
  gate.open();
  expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(['success', 'success', 'success']);
  await eventually(() => worker.running === 0);
});

test('jobs of lost workers are found although Redis’ clock was set back after the last look', async () => {
  const gate = gated('gate', { effects: 'none' });
  const fleet = await startFleet({ tools: [gate.tool], settings: { stalledIntervalMs: 300 } });
  const submission = pending(await fleet.session.submit(gate.tool, {}));
  await gate.arrived();
  const record = await fleet.pawl.read(submission.callId);
  const keys = new PartitionKeys(fleet.settings.prefix, WORKSPACE);
  const { redis } = fleet.pawl.backend;
  await redis.set(keys.job('stalled-check'), '1', 'PX', 3_600_000);
  await redis.del(`${keys.job(jobIdOf(submission.callId, record?.generation ?? ''))}:lock`);
  await gate.arrived(2);
  gate.open();
  expect(await submission.result).toMatchObject({ status: 'success', attempts: 2 });
});

describe('a job that comes back to the worker that still runs it', () => {
  test('is never run a second time for a tool with effects once (decision 5)', async () => {
    const gate = gated('gate', { effects: 'once' });
    const settings = { lockDurationMs: 600, stalledIntervalMs: 60_000 };
    const fleet = await startFleet({ tools: [gate.tool], settings, concurrency: 1 });
    const submission = pending(await fleet.session.submit(gate.tool, {}));
    await gate.arrived();
    const record = await fleet.pawl.read(submission.callId);
    const keys = new PartitionKeys(fleet.settings.prefix, WORKSPACE);
    const jobId = jobIdOf(submission.callId, record?.generation ?? '');
    // What BullMQ's stalled check does with a job whose lock has run out.
    const { redis } = fleet.pawl.backend;
    await redis.del(`${keys.job(jobId)}:lock`);
    await redis.lrem(keys.job('active'), 1, jobId);
    await redis.rpush(keys.job('wait'), jobId);
    await redis.zadd(keys.job('marker'), 0, '0');
    expect(await submission.result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
    expect(gate.contexts).toHaveLength(1);
  });
});

test.each(TIERS.filter((tier) => tier !== 'elevated'))(
  'calls of a small %s tool that are made at once share commands, half as many as there are calls at most',
  async (tier) => {
    const { tool } = scripted('small', () => ({ output: 'done' }), {
      tier,
      effects: tier === 'read-only' ? 'none' : 'idempotent',
    });
    const { pawl } = await startFleet({ tools: [tool], concurrency: 64 });
    const session = await pawl.openSession({ actorId: 'ada' });
    const CALLS = 512;
    const callAll = (count: number) =>
      Promise.all(Array.from({ length: count }, (_, number) => session.call('small', { count, number })));
    await callAll(1);
    const sent = vi.spyOn(Redis.prototype, 'sendCommand');
    onTestFinished(() => sent.mockRestore());
    const results = await callAll(CALLS);
    expect(results.every(({ status }) => status === 'success')).toBe(true);
    const names = Object.groupBy(sent.mock.calls, ([{ name }]) => name);
    const counts = Object.fromEntries(Object.entries(names).map(([name, calls]) => [name, calls?.length]));
    expect(sent.mock.calls.length, JSON.stringify(counts)).toBeLessThan(CALLS / 2);
  },
);
