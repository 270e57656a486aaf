/** @module-tag slow */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.ts';
import { startServer } from '../chaos/server.ts';
import { temporaryFolder } from '../helpers/context.ts';
import { startPawl } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { readEffects } from './fixtures/effect-log.ts';
import { startFleet } from './fixtures/fleet.ts';

const TOOLS = fileURLToPath(new URL('./fixtures/tools.ts', import.meta.url));
const CALLERS = 50;
const KEY = 'invoice-7';
const CALLS = 10_000;
const SUBMITTED_AT_ONCE = 250;
const MAX_BYTES_OF_CALL = 100;

test('a pending call outlives the front doors, the worker and Redis, all killed: of 50 completions at once, one ends it', async () => {
  const folder = temporaryFolder();
  const redis = await startServer(join(folder, 'redis'), ['--appendfsync', 'always']);
  onTestFinished(() => redis[Symbol.asyncDispose]());
  const effectLog = join(folder, 'effects.jsonl');
  const env = {
    REDIS_URL: redis.url,
    PAWL_LOCK_DURATION_MS: '2000',
    PAWL_STALLED_INTERVAL_MS: '500',
    EFFECT_LOG: effectLog,
    LOG_LEVEL: 'info',
  };
  const startDoor = async () => {
    const door = startPawl(['serve', '--port', '0', '--json'], { env, cwd: folder });
    const { url } = JSON.parse(await door.line('"ready"')) as { readonly url: string };
    return { door, url };
  };
  const startWorker = async () => {
    const worker = startPawl(['worker', '--tools', TOOLS, '--json'], { env, cwd: folder });
    await worker.line('"ready"');
    return worker;
  };
  const [first, worker] = await Promise.all([startDoor(), startWorker()]);
  const submitted = await fetch(`${first.url}/v1/calls?wait=0`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tool: 'leave_outside', params: { mailbox: folder }, session: 's', idempotencyKey: KEY }),
  });
  const { callId } = (await submitted.json()) as { readonly callId: string };
  const read = async (url: string) => (await fetch(`${url}/v1/calls/${callId}`)).json() as Promise<{ phase?: string }>;
  await eventually(async () => (await read(first.url)).phase === 'pending', { what: 'the pending call' });

  await Promise.all([first.door.kill(), worker.kill(), redis.kill()]);
  await redis.start();
  const [left, right] = await Promise.all([startDoor(), startDoor(), startWorker()]);
  expect(await read(left.url)).toMatchObject({
    state: 'inflight',
    phase: 'pending',
    attempts: [{ status: 'pending' }],
  });
  const token = readFileSync(join(folder, KEY), 'utf8');
  const answers = await Promise.all(
    Array.from({ length: CALLERS }, async (_, by) => {
      const { url } = by % 2 === 0 ? left : right;
      const response = await fetch(`${url}/v1/completions/${token}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ status: 'success', output: { by } }),
      });
      const { error } = (await response.json()) as { readonly error?: { readonly code: string } };
      return `${response.status} ${error?.code ?? 'completed'}`;
    }),
  );
  const winner = answers.indexOf('200 completed');
  expect(answers.filter((answer) => answer === '409 COMPLETION_USED')).toHaveLength(CALLERS - 1);

  const pawl = await connect({ redisUrl: redis.url, logLevel: 'silent' });
  onTestFinished(() => pawl.close());
  expect(await pawl.result(callId)).toMatchObject({ status: 'success', output: { content: { by: winner } } });
  expect(readEffects(effectLog)).toHaveLength(1);
});

test(`a worker holds nothing for ${CALLS} pending calls: its heap has no more in it, and all of its slots are free`, {
  timeout: 300_000,
}, async () => {
  const slots = 4;
  const { pawl, session, workers, folder, effects, gate } = await startFleet({ concurrency: slots });
  const [worker] = workers;
  const countPending = async () => {
    const { shards, ledger } = pawl.backend;
    const counts = await Promise.all(shards.partitions().map((partition) => ledger.index.counts(partition)));
    return counts.reduce((sum, { pending }) => sum + pending, 0);
  };
  let submitted = 0;
  const pend = async (calls: number) => {
    for (const until = submitted + calls; submitted < until; ) {
      const some = Array.from({ length: SUBMITTED_AT_ONCE }, (_, number) =>
        session.submit('leave_outside', { mailbox: folder }, { idempotencyKey: `pay-${submitted + number}` }),
      );
      for (const submission of await Promise.all(some)) if (submission.kind === 'pending') submission.stop();
      submitted += SUBMITTED_AT_ONCE;
    }
    await eventually(async () => (await countPending()) === submitted, { what: `${submitted} pending calls` });
  };
  let asked = 0;
  const heap = async () => {
    asked += 1;
    worker?.signal('SIGUSR2');
    const lines = await eventually(() => {
      const found = worker?.stdout().match(/^heap \d+$/gm) ?? [];
      return found.length === asked && found;
    });
    return Number(lines.at(-1)?.slice('heap '.length));
  };
  await pend(CALLS / 5);
  const before = await heap();
  await pend(CALLS - submitted);
  expect(((await heap()) - before) / (CALLS - CALLS / 5)).toBeLessThan(MAX_BYTES_OF_CALL);
  const { path, open } = gate('go on');
  const running = Array.from({ length: slots }, (_, slot) =>
    session.call('record_none', { label: `slot ${slot}`, gate: path }),
  );
  await eventually(() => effects().filter(({ key }) => !key.startsWith('pay-')).length === slots, {
    what: 'a call in each slot',
  });
  open();
  for (const { status } of await Promise.all(running)) expect(status).toBe('success');
});
