import { readdirSync, readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { connect, startWorker } from '../../../src/index.ts';
import { restoreSnapshot, type Snapshot } from '../../fixtures/golden/snapshot.ts';
import { goldenTools } from '../../fixtures/golden/tools.ts';
import { eventually } from '../../helpers/signal.ts';
import { createWorld } from '../../helpers/world.ts';

const FOLDER = new URL('../../fixtures/golden/', import.meta.url);
const files = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));

test.each(files)(
  'what an earlier Pawl left in Redis, %s, is read, run and replayed as it was meant (R14)',
  async (file) => {
    const { callIds, keys } = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as {
      callIds: Readonly<Record<string, string>>;
      keys: Snapshot;
    };
    const world = await createWorld();
    const redis = new Redis(world.redisUrl);
    onTestFinished(() => redis.disconnect());
    await restoreSnapshot(redis, world.prefix, keys);
    const settings = { redisUrl: world.redisUrl, prefix: world.prefix, logLevel: 'silent' } as const;
    const pawl = await connect(settings);
    onTestFinished(() => pawl.close());
    const worker = await startWorker({
      ...settings,
      tools: goldenTools('answer'),
      lockDurationMs: 1_000,
      stalledIntervalMs: 200,
    });
    onTestFinished(() => worker.close());
    const ended = async (state: string) => {
      const callId = callIds[state] ?? '';
      await eventually(async () => (await pawl.read(callId))?.state !== 'inflight', { what: `the end of ${state}` });
      return (await pawl.result(callId)) as object;
    };

    // The worker that held them is gone, and so are its locks; what became of them follows their tools' effects.
    expect(await ended('lost-idempotent')).toMatchObject({ status: 'success', attempts: 2 });
    expect(await ended('lost-once')).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await ended('queued-idempotent')).toMatchObject({ status: 'success', attempts: 1 });
    expect(await ended('queued-once')).toMatchObject({ status: 'success', attempts: 1 });
    expect(await ended('waiting-retry')).toMatchObject({
      status: 'success',
      attempts: 2,
      retriedBy: [{ reasonCode: 'DOWN' }],
    });
    expect(await ended('done')).toMatchObject({ status: 'success', output: { content: { text: 'done' } } });
    expect(await pawl.read(callIds['cancelled'] ?? '')).toMatchObject({ state: 'cancelled' });

    // Their keys are still taken.
    const session = await pawl.session('golden');
    for (const state of ['done', 'queued-once'])
      expect(await session.call('note_once', { text: state }, { idempotencyKey: state })).toMatchObject({
        fromCache: true,
      });
    const conflict = await session.call('note_once', { text: 'other' }, { idempotencyKey: 'done' });
    expect(conflict.error).toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
  },
);

test('there is something golden to keep', () => {
  expect(files).not.toEqual([]);
});
