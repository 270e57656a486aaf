/** @module-tag slow */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.ts';
import { startServer } from '../chaos/server.ts';
import { startScript, type TestProcess } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { openReceiver, type Receiver } from '../workers/callbacks/receiver.ts';

const CALLS = 60;
const KILLS = 4;

const idsOf = ({ received }: Receiver) => new Set(received.map(({ headers }) => headers['webhook-id']));
const callsOf = ({ received }: Receiver) => new Set(received.map(({ body }) => JSON.parse(body).data.callId as string));

test('every settled call is posted under one ID, over a receiver that is down, killed senders and a Redis restart', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-callbacks-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const server = await startServer(join(folder, 'redis'), ['--appendfsync', 'always']);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const env = {
    REDIS_URL: server.url,
    PAWL_LOCK_DURATION_MS: '2000',
    PAWL_STALLED_INTERVAL_MS: '500',
    PAWL_ALLOWED_HOSTS: '127.0.0.1',
    EFFECT_LOG: join(folder, 'effects.jsonl'),
    LOG_LEVEL: 'silent',
  };
  const workers: TestProcess[] = [];
  const addWorker = async () => {
    const worker = startScript(new URL('./fixtures/worker.ts', import.meta.url), [], { env });
    await worker.line(/^ready/);
    workers.push(worker);
  };
  await Promise.all([addWorker(), addWorker()]);
  const pawl = await connect({ redisUrl: server.url, logLevel: 'silent' });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession({ workspaceRoot: folder });

  // One receiver is down at first, one answers slowly, and one is well.
  const first = await openReceiver();
  const port = Number(new URL(first.url).port);
  first.close();
  const slow = await openReceiver((response) => void setTimeout(() => response.end(), 300));
  const well = await openReceiver();
  const urls = [first.url, slow.url, well.url];
  const submitted = Array.from({ length: CALLS }, (_, number) =>
    session.submit(
      'record_idempotent',
      { label: `call-${number}` },
      { idempotencyKey: `call-${number}`, callbackUrl: urls[number % urls.length] as string },
    ),
  );
  const calls = await Promise.all(submitted);
  for (let kill = 0; kill < KILLS; kill += 1) {
    await eventually(() => slow.received.length > 2 * kill, { what: `callbacks before kill ${kill + 1}` });
    await workers[kill]?.kill();
    await addWorker();
    if (kill === 1) {
      await server.kill();
      await server.start();
    }
  }
  const results = await Promise.all(calls.map(({ callId }) => eventually(() => pawl.result(callId ?? ''))));
  expect(results.map(({ status }) => status)).toEqual(calls.map(() => 'success'));
  await eventually(() => callsOf(well).size === CALLS / 3, { what: 'all callbacks of the receiver that is well' });

  const back = await openReceiver(undefined, port);
  await eventually(() => callsOf(back).size === CALLS / 3 && callsOf(slow).size === CALLS / 3, {
    deadlineMs: 120_000,
    what: 'all callbacks of the receivers that were down or slow',
  });
  for (const receiver of [back, slow, well]) expect(idsOf(receiver).size).toBe(CALLS / 3);
  await eventually(
    async () => (await pawl.callbacks.list({ state: 'delivered', limit: 100 })).callbacks.length === CALLS,
  );
});
