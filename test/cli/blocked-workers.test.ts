/** @module-tag slow */
import { spawnSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { inBuiltPackage } from '../helpers/built-package.ts';
import { startProgram } from '../helpers/process.ts';
import { eventually, isGone } from '../helpers/signal.ts';
import { type CliFixture, openPlace } from './pawl.ts';

const SHORT = { PAWL_LOCK_DURATION_MS: '1500', PAWL_STALLED_INTERVAL_MS: '500' };
const WAYS = ['loop', 'pattern', 'program'] as const;

const LAUNCHER = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
const AS_FIRST = ['--pid', '--fork', '--kill-child', '--mount-proc', '--'];
const canBeFirst = spawnSync('unshare', [...AS_FIRST, 'true']).status === 0;

let place: CliFixture;
beforeEach(async () => {
  place = await openPlace();
  const tools = fileURLToPath(new URL('./fixtures/blocking-tools.ts', import.meta.url));
  cpSync(tools, join(place.folder, 'blocking.ts'));
});
afterEach(() => place[Symbol.asyncDispose]());

const callOf = (tool: string, params: object, key: string) =>
  place.start(['call', tool, '--params', JSON.stringify(params), '--key', key, '--json'], SHORT);

test.each(WAYS)(
  'up kills and replaces a worker whose tool blocks the event loop (%s), and a once call ends as unknown',
  {},
  async (way) => {
    const up = place.start(['up', '--port', '0', '--json', '--workers', '1', '--tools', 'blocking.ts'], SHORT);
    const { workers } = JSON.parse(await up.line('"event":"ready"')) as { workers: { pid: number }[] };
    const blocking = callOf('block_once', { way }, `up ${way}`);
    await up.line('workers are complete again');
    expect(workers.every(({ pid }) => isGone(pid))).toBe(true);
    const greeted = callOf('greet', {}, `greet ${way}`);
    expect(await greeted.ended).toEqual({ code: 0, signal: null });
    expect(await blocking.ended).toEqual({ code: 6, signal: null });
    expect(JSON.parse(blocking.stdout())).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
    up.signal('SIGINT');
    expect(await up.ended).toEqual({ code: 0, signal: null });
  },
);

test.each(WAYS)('a single worker reports its blocked event loop at /healthz (%s), and ends itself', {}, async (way) => {
  const environment = { ...SHORT, PAWL_METRICS_PORT: '0' };
  const worker = place.start(['worker', '--tools', 'blocking.ts', '--json'], environment);
  const { metricsPort } = JSON.parse(await worker.line('"event":"ready"')) as { metricsPort: number };
  const health = () => fetch(`http://127.0.0.1:${metricsPort}/healthz`);
  expect((await health()).status).toBe(200);
  const blocking = callOf('block_once', { way }, `alone ${way}`);
  const stalled = await eventually(async () => {
    const answer = await health();
    return answer.status === 503 && (await answer.json());
  });
  expect(stalled).toMatchObject({
    status: 'stalled',
    reason: expect.stringContaining('has held the event loop for'),
  });
  expect(await worker.ended).toEqual({ code: null, signal: 'SIGKILL' });
  expect(worker.stderr()).toContain('worker_stalled');
  const heir = place.start(['worker', '--tools', 'blocking.ts', '--json'], SHORT);
  expect((await blocking.ended).code).toBe(6);
  heir.signal('SIGTERM');
  expect(await heir.ended).toEqual({ code: 0, signal: null });
});

test.each([
  ['up', 'hook', { tool: 'list_dir', params: {} }],
  ['serve', 'toolset', undefined],
] as const)(
  'a front door (%s) ends itself when a %s of a tools file blocks its event loop',
  async (command, code, call) => {
    const file = join(place.folder, 'front-door.ts');
    const exported = {
      hook: "defineHook({ name: 'h', beforeCall: block })",
      toolset: "toolset('t', ({ session }) => (session === undefined ? [] : block()))",
    };
    const block = 'const block = () => { for (;;); };';
    const text = `import { defineHook, toolset } from 'pawl';\n${block}\nexport const code = ${exported[code]};\n`;
    writeFileSync(file, text);
    const door = place.start([command, '--port', '0', '--json', '--tools', 'front-door.ts'], SHORT);
    const { url } = JSON.parse(await door.line('"event":"ready"')) as { url: string };
    const headers = { 'content-type': 'application/json' };
    const post = async (path: string, body: object) =>
      await fetch(`${url}/v1/${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    const { sessionKey } = (await (await post('sessions', { kind: 'main' })).json()) as { sessionKey: string };
    const request =
      call === undefined
        ? fetch(`${url}/v1/tools?session=${sessionKey}`)
        : post('calls', { ...call, session: sessionKey });
    await expect(request).rejects.toThrow('fetch failed');
    expect(await door.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(door.stderr()).toContain('a hook or a toolset has held the event loop for 5 s: this server ends');
  },
);

test.runIf(canBeFirst)('the first process of a container ends itself, too', async () => {
  const worker = [inBuiltPackage(LAUNCHER), 'worker', '--tools', 'blocking.ts', '--json'];
  const env = { ...SHORT, REDIS_URL: place.world.redisUrl, PAWL_PREFIX: place.world.prefix };
  const first = startProgram('unshare', [...AS_FIRST, process.execPath, ...worker], { cwd: place.folder, env });
  expect(JSON.parse(await first.line('"event":"ready"'))).toMatchObject({ pid: 1 });
  const blocking = callOf('block_once', { way: 'loop' }, 'first process');
  expect(await first.ended).toEqual({ code: 137, signal: null });
  await blocking.kill();
});

test('a repeatable call is identified as the one that blocks its workers, and stopping an idle worker blames no call', async () => {
  const env = { ...SHORT, PAWL_DRAIN_MS: '500' };
  const up = () => place.start(['up', '--port', '0', '--json', '--workers', '2', '--tools', 'blocking.ts'], env);
  const first = up();
  await first.line('"event":"ready"');
  const blocking = callOf('block_idempotent', { way: 'loop' }, 'blocking');
  await first.line('"tool_call_start"');
  // One that stands still is stopped, and killed in the end.
  first.signal('SIGINT');
  await first.ended;
  const second = up();
  await second.line('"event":"ready"');
  expect(await blocking.ended).toEqual({ code: 6, signal: null });
  const { error, attempts } = JSON.parse(blocking.stdout()) as { error: object; attempts: number };
  expect(error).toMatchObject({ code: 'POISONED' });
  // The worker that was stopped, two that were killed because they were silent, and one that ran nothing else.
  expect(attempts).toBe(4);
  second.signal('SIGINT');
  await second.ended;
});

test.each(['block_before', 'block_parsing'])(
  'a waiting call that blocks each worker before it is ready (%s) keeps no fleet from starting',
  async (tool) => {
    const env = { ...SHORT, PAWL_DRAIN_MS: '500' };
    const up = () => place.start(['up', '--port', '0', '--json', '--workers', '1', '--tools', 'blocking.ts'], env);
    const first = up();
    await first.line('"event":"ready"');
    const blocking = callOf(tool, {}, 'before');
    await first.line('has been silent');
    first.signal('SIGINT');
    await first.ended;
    const second = up();
    await second.line('has been silent');
    expect(await blocking.ended).toEqual({ code: 6, signal: null });
    expect(JSON.parse(blocking.stdout())).toMatchObject({ error: { code: 'POISONED' } });
    await second.line('"event":"ready"');
    const greeted = callOf('greet', {}, 'greet after');
    expect(await greeted.ended).toEqual({ code: 0, signal: null });
    second.signal('SIGINT');
    expect(await second.ended).toEqual({ code: 0, signal: null });
  },
);
