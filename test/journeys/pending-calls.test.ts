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

const TOOLS = fileURLToPath(new URL('./fixtures/tools.ts', import.meta.url));
const CALLERS = 50;
const KEY = 'invoice-7';

test('a pending call outlives the front doors, the worker and Redis, all killed: of 50 completions at once, one ends it', {
  timeout: 120_000,
}, async () => {
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
