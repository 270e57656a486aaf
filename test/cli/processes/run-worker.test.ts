import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startScript } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('a worker prints its pid, tiers and tools once, and logs each attempt without parameters, outputs or keys (R27)', async () => {
  const worker = place.start(['worker', '--tools', 'tools.ts', '--tiers', 'read-only', '--json']);
  const ready = JSON.parse(await worker.line('"event":"ready"')) as { tools: string[] };
  expect(ready).toMatchObject({ event: 'ready', pid: worker.pid, tiers: ['read-only'] });
  expect(ready.tools).toEqual(
    expect.arrayContaining([expect.stringMatching(/^tools\.read@/), 'tools.greet@1.0.0', 'tools.break@1.0.0']),
  );
  await worker.line('tools.linger is of the tier workspace and not offered');
  await place.run(['call', 'greet', '--params', '{"name":"Secret"}', '--key', 'my-key']);
  expect(JSON.parse(await worker.line('"tool_call_end"'))).toMatchObject({
    event: 'tool_call_end',
    toolName: 'greet',
    attempt: 1,
    state: 'done',
    fromCache: false,
    idempotencyKeyHash: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  worker.signal('SIGTERM');
  expect(await worker.ended).toEqual({ code: 0, signal: null });
  expect(worker.stdout().split('\n')).toHaveLength(2);
  expect(worker.stderr()).toContain('"tool_call_start"');
  expect(worker.stderr()).not.toMatch(/Secret|my-key/);
});

test('a worker with tools files starts where its workspace is a folder that does not exist yet', async () => {
  const workspace = join(place.folder, 'not there', 'yet');
  const worker = place.start(['worker', '--tools', 'tools.ts'], { PAWL_WORKSPACE_ROOT: workspace });
  await worker.line('tools.greet@1.0.0');
  worker.signal('SIGTERM');
  expect(await worker.ended).toEqual({ code: 0, signal: null });
});

test('nothing starts where the workspace is a file, or lies in one', async () => {
  for (const command of [['worker'], ['serve', '--port', '0'], ['up', '--port', '0']]) {
    for (const name of ['tools.ts', 'tools.ts/within']) {
      const env = { PAWL_WORKSPACE_ROOT: join(place.folder, name) };
      const { code, stderr } = await place.run(command, { env });
      expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('tools.ts is none; got') });
      expect(stderr).toContain('PAWL_WORKSPACE_ROOT (workspaceRoot): must be a folder');
    }
  }
});

test('with PAWL_METRICS_PORT a worker serves its health, its metrics and those of its process (R28), until the call that SIGTERM lets finish is over; a second one refuses the taken port', async () => {
  const worker = place.start(['worker', '--tools', 'tools.ts', '--json'], { PAWL_METRICS_PORT: '0' });
  const { metricsPort } = JSON.parse(await worker.line('"event":"ready"')) as { metricsPort: number };
  const get = async (path: string) => await fetch(`http://127.0.0.1:${metricsPort}${path}`);
  await place.run(['call', 'greet', '--params', '{"name":"Ada"}', '--key', 'counted']);
  expect((await get('/healthz')).status).toBe(200);
  expect((await get('/readyz')).status).toBe(200);
  const metrics = await (await get('/metrics')).text();
  expect(metrics).toMatch(/^openclaw_tool_attempts_total\{[^}]*tool="greet"[^}]*\} 1$/m);
  expect(metrics).toMatch(/^nodejs_eventloop_lag_p99_seconds \S+$/m);
  const second = await place.run(['worker', '--tools', 'tools.ts'], {
    env: { PAWL_METRICS_PORT: String(metricsPort) },
  });
  expect(second.code).toBe(2);
  expect(second.stderr).toContain(`PAWL_METRICS_PORT: 127.0.0.1:${metricsPort} cannot be used`);
  // It took no call that it could not finish.
  const { workers } = JSON.parse((await place.run(['tools', 'show', 'greet', '--json'])).stdout) as { workers: number };
  expect(workers).toBe(1);
  const gate = join(place.folder, 'the drained call may end');
  const params = JSON.stringify({ ms: 60_000, until: gate });
  const call = place.start(['call', 'linger', '--params', params, '--key', 'drained-ready']);
  await worker.line('"toolName":"linger"');
  worker.signal('SIGTERM');
  await worker.line('"worker_draining"');
  expect((await get('/readyz')).status).toBe(503);
  writeFileSync(gate, '');
  expect(await call.ended).toEqual({ code: 0, signal: null });
  expect(call.stdout()).toBe('lingered\n');
  expect(await worker.ended).toEqual({ code: 0, signal: null });
});

test('a worker starts with a tools file in a checkout of Pawl, whose code lies in its workspace', async () => {
  const checkout = fileURLToPath(new URL('../../..', import.meta.url));
  const worker = await place.worker({ PAWL_WORKSPACE_ROOT: checkout });
  expect((await place.run(['call', 'greet', '--params', '{"name":"Ada"}'])).code).toBe(0);
  worker.signal('SIGTERM');
  expect((await worker.ended).code).toBe(0);
});

test('a secret may stand in a file that a variable names; a file that is not there, or empty, is named', async () => {
  const file = join(place.folder, 'redis-url');
  writeFileSync(file, `${place.world.redisUrl}\n`);
  const env = { REDIS_URL: undefined, REDIS_URL_FILE: file };
  expect((await place.run(['tools', 'ls', '--json'], { env })).code).toBe(0);
  const missing = await place.run(['tools', 'ls'], { env: { ...env, REDIS_URL_FILE: '/nowhere/redis-url' } });
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('REDIS_URL_FILE: "/nowhere/redis-url"') });
  const empty = join(place.folder, 'empty');
  writeFileSync(empty, '\n');
  const none = await place.run(['tools', 'ls'], { env: { ...env, PAWL_SIGNING_KEYS_FILE: empty } });
  expect(none).toMatchObject({ code: 2, stderr: expect.stringMatching(/^pawl: PAWL_SIGNING_KEYS_FILE: .* is empty/) });
});

test('no tool reads a file that holds a secret of its worker, whatever the workspace (A11)', async () => {
  const secrets = join(place.folder, 'secrets');
  mkdirSync(secrets);
  writeFileSync(join(secrets, '..tokens'), 'a-long-token:admin\n');
  symlinkSync('..tokens', join(secrets, 'api-tokens'));
  const env = { PAWL_API_TOKENS_FILE: join(secrets, 'api-tokens') };
  const worker = await place.worker(env);
  for (const [tool, params] of [
    ['read', { path: 'secrets/api-tokens' }],
    ['grep_files', { path: 'secrets/..tokens', pattern: 'admin' }],
    ['write', { path: 'secrets/..tokens', content: 'mine:admin' }],
  ] as const) {
    const call = await place.run(['call', tool, '--params', JSON.stringify(params)], { env });
    expect(call, tool).toMatchObject({ code: 5, stderr: expect.stringContaining('which no tool may see') });
  }
  worker.signal('SIGTERM');
  await worker.ended;
});

test('a second signal interrupts running calls: a call in doubt ends as unknown, with exit code 6, and is resolved', async () => {
  const worker = await place.worker();
  const call = place.start(['call', 'linger', '--params', '{"ms":60000}', '--key', 'hurried', '--json']);
  await worker.line('"tool_call_start"');
  worker.signal('SIGTERM');
  await worker.line('"worker_draining"');
  worker.signal('SIGTERM');
  expect(await worker.ended).toEqual({ code: 1, signal: null });
  expect(await call.ended).toEqual({ code: 6, signal: null });
  const { callId } = JSON.parse(call.stdout()) as { callId: string };
  const inDoubt = async () => (await place.run(['calls', 'ls', '--state', 'unresolved'])).stdout;
  expect(await inDoubt()).toContain(`${callId}  linger  failed: OUTCOME_UNKNOWN`);
  expect((await place.run(['calls', 'show', callId])).stdout).toContain(`pawl calls resolve ${callId}`);
  const resolve = (output: string) =>
    place.run(['calls', 'resolve', callId, '--as', 'succeeded', '--output', output, '--json']);
  expect(await resolve('{"lingeredMs":"long"}')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('output.lingeredMs'),
  });
  expect(JSON.parse((await resolve('{"lingeredMs":7}')).stdout)).toMatchObject({
    state: 'done',
    result: { status: 'success', output: { content: { lingeredMs: 7 } } },
  });
  expect(await inDoubt()).not.toContain(callId);
});

test('a worker that is killed during a call leaves its outcome unknown (DESIGN, decision 5)', async () => {
  // A world of its own: how often lost jobs are looked for is what the first worker of a queue says.
  await using elsewhere = await openPlace();
  const short = { PAWL_LOCK_DURATION_MS: '600', PAWL_STALLED_INTERVAL_MS: '300' };
  const doomed = await elsewhere.worker(short);
  const call = elsewhere.start(['call', 'linger', '--params', '{"ms":60000}'], short);
  await doomed.line('"tool_call_start"');
  await doomed.kill();
  const heir = await elsewhere.worker(short);
  expect(await call.ended).toEqual({ code: 6, signal: null });
  expect(call.stderr()).toContain('pawl calls resolve w0.');
  heir.signal('SIGTERM');
  expect(await heir.ended).toEqual({ code: 0, signal: null });
});

describe('tools files', () => {
  const files: Readonly<Record<string, string>> = {
    'syntax.ts': 'export const a: number = 1;\nexport const b = = 2;\n',
    'syntax.js': 'export const a = 1;\nexport const b = = 2;\n',
    'deep.js': "export * from './syntax.js';\n",
    'throws.ts': "\nexport const a = (() => { throw new Error('no luck'); })();\n",
    'missing.ts': "import nothing from 'no-such-package';\n",
    'definition.ts':
      "import { defineTool } from 'pawl';\nimport { z } from 'zod';\nexport default defineTool({ name: 'a b', version: '1.0.0', description: 'x', tier: 'read-only', input: z.object({}), run: () => ({ output: 1 }) });\n",
    'none.ts': 'export const list = [1];\nexport default () => 2;\n',
    'promise.ts': "export default import('./tools.ts').then(({ greet }) => greet);\n",
    'empty.ts': '\n',
    'required.cjs':
      "const { defineTool } = require('pawl');\nconst { z } = require('zod');\nmodule.exports = defineTool({ name: 'required', version: '1.0.0', description: 'x', tier: 'read-only', input: z.object({}), run: () => ({ output: 1 }) });\n",
    'missing.cjs': "require('no-such-package');\n",
    'common.cjs': "module.exports = { tools: [require('./tools.ts').greet] };\n",
  };

  test('are run as they are, wherever they lie; a fault is named with its place and without a stack', async () => {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(place.folder, name), text);
    mkdirSync(join(place.folder, 'folder'));
    mkdirSync(join(place.folder, 'commonjs'));
    writeFileSync(join(place.folder, 'commonjs/package.json'), '{ "type": "commonjs" }');
    const read = ['commonjs/import.ts', 'commonjs/export.js'];
    writeFileSync(join(place.folder, 'commonjs/import.ts'), "import 'pawl';\n");
    writeFileSync(join(place.folder, 'commonjs/export.js'), 'export const a = 1;\n');
    const names = ['tools.ts', ...Object.keys(files), ...read, 'absent.ts', 'folder'];
    const script = startScript(new URL('../fixtures/load-tool-files.ts', import.meta.url), names, {
      cwd: place.folder,
    });
    await script.ended;
    const said = new Map(
      script
        .stdout()
        .trim()
        .split('\n')
        .map((line) => line.split(' => ') as [string, string]),
    );
    expect(said.get('tools.ts')).toBe('greet, break, launch, linger, plain');
    expect(said.get('syntax.ts')).toMatch(
      /^The tools file syntax\.ts cannot be used: SyntaxError: .* \(syntax\.ts:2\)\.$/,
    );
    expect(said.get('syntax.js')).toMatch(/SyntaxError: .* \(syntax\.js:2\)\.$/);
    expect(said.get('deep.js')).toMatch(/^The tools file deep\.js .* \(syntax\.js:2\)\.$/);
    expect(said.get('throws.ts')).toContain('no luck (throws.ts:2)');
    expect(said.get('missing.ts')).toContain("Cannot find package 'no-such-package'");
    expect(said.get('definition.ts')).toContain('name must be a letter');
    expect(said.get('none.ts')).toContain('it exports default (function), list (a list without a tool)');
    expect(said.get('promise.ts')).toContain('it exports default (a promise: export what it resolves to, with await).');
    expect(said.get('empty.ts')).toContain('it exports nothing');
    expect(said.get('common.cjs')).toBe('greet');
    expect(said.get('required.cjs')).toBe('required');
    expect(said.get('missing.cjs')).toBe(
      "The tools file missing.cjs cannot be used: Cannot find module 'no-such-package' imported from missing.cjs.",
    );
    for (const name of read)
      expect(said.get(name)).toMatch(/ Write "type": "module" into the package\.json of its project\.$/);
    expect(said.get('absent.ts')).toContain(`There is no tools file absent.ts (${place.folder}/absent.ts)`);
    expect(said.get('folder')).toContain('is not a file');
  });

  test('that cannot be used keep the worker from starting: exit code 2', async () => {
    writeFileSync(join(place.folder, 'bad.ts'), 'export const a = = 1;\n');
    const { code, stdout, stderr } = await place.run(['worker', '--tools', 'bad.ts']);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('(bad.ts:1)');
    expect(stderr).not.toContain('\n    at ');
    await eventually(async () => (await place.world.connections()).length === 0);
  });
});

test('a process that stood still as a whole is distinguished from one whose event loop was blocked', async () => {
  const start = () => startScript(new URL('../fixtures/silent.ts', import.meta.url));
  const silent = start();
  await silent.line('ready');
  silent.say('block');
  await silent.line('stood still: false');
  // A busy machine holds up the process itself as well: the next pause shows it.
  await eventually(async () => {
    silent.pause();
    // Another one takes as long as the pause has to be until it is ready.
    const other = start();
    await other.line('ready');
    await other.kill();
    silent.resume();
    return silent.stdout().includes('stood still: true');
  });
});
