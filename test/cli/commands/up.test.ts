import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { freePort } from '../../helpers/free-port.ts';
import { startProgram, type TestProcess } from '../../helpers/process.ts';
import { eventually, isGone } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

interface Ready {
  readonly url: string;
  readonly queuesUrl: string;
  readonly workers: readonly { readonly pid: number }[];
}

async function up(...args: readonly string[]): Promise<{ readonly process: TestProcess; readonly ready: Ready }> {
  const process = place.start(['up', '--port', '0', '--json', ...args]);
  const ready = JSON.parse(await process.line('"event":"ready"')) as Ready;
  return { process, ready };
}

/** Reads the answer to its end: a closing server waits for those who have not. */
async function statusOf(url: string): Promise<number> {
  const answer = await fetch(url);
  await answer.text();
  return answer.status;
}

async function handIn(url: string, tool: string, params: object, session: string): Promise<void> {
  const answer = await fetch(`${url}/v1/calls?wait=0`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tool, params, session }),
  });
  await answer.text();
}

/** Of the newest call of a session. */
async function phaseOf(url: string, session: string): Promise<string | undefined> {
  const answer = await fetch(`${url}/v1/calls?session=${session}`);
  const { calls } = (await answer.json()) as { calls: readonly { readonly phase: string }[] };
  return calls[0]?.phase;
}

async function allGone(pids: readonly number[]): Promise<void> {
  await eventually(() => pids.every(isGone), { what: `the end of ${pids.join(', ')}` });
  await eventually(async () => (await place.world.connections()).length === 0, { what: 'the end of the connections' });
}

test('up serves calls and replaces a dead worker; Ctrl-C drains it and ends all processes', async () => {
  const { process, ready } = await up('--workers', '2', '--tools', 'tools.ts');
  expect(ready.workers).toHaveLength(2);
  // All of its processes use one Redis, whose promises are logged once.
  expect(process.stderr().match(/"redisVersion"/g)).toHaveLength(1);
  const [first, second] = ready.workers.map(({ pid }) => pid) as [number, number];
  expect(await statusOf(`${ready.url}/readyz`)).toBe(200);
  expect(await statusOf(ready.queuesUrl)).toBe(200);

  globalThis.process.kill(first, 'SIGKILL');
  const completed = await process.line('workers are complete again');
  const replacement = Number(/\d+$/.exec(completed)?.[0]);
  expect(isGone(first)).toBe(true);
  expect([first, second]).not.toContain(replacement);

  const gate = join(place.folder, 'the last call may end');
  const params = JSON.stringify({ ms: 60_000, until: gate });
  const call = place.start(['call', 'linger', '--params', params, '--key', 'last']);
  await process.line('"tool_call_start"');
  process.signal('SIGINT');
  await process.line('draining: 2 workers');
  expect(await statusOf(`${ready.url}/readyz`)).toBe(503);
  writeFileSync(gate, '');
  expect(await call.ended).toEqual({ code: 0, signal: null });
  expect(await process.ended).toEqual({ code: 0, signal: null });
  await allGone([second, replacement]);
});

test('the first call after /readyz says ready finds its tool', async () => {
  const port = await freePort();
  const process = place.start(['up', '--port', String(port), '--workers', '1', '--tools', 'tools.ts']);
  const url = `http://127.0.0.1:${port}`;
  await eventually(async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.status === 200, {
    everyMs: 5,
  });
  const answer = await fetch(`${url}/v1/calls`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tool: 'linger', params: { ms: 1 }, session: 'early' }),
  });
  expect(await answer.json()).toMatchObject({ status: 'success' });
  process.signal('SIGINT');
  expect(await process.ended).toEqual({ code: 0, signal: null });
});

test('kill -9 of up takes its workers along', async () => {
  const { process, ready } = await up('--workers', '1');
  await process.kill();
  await allGone(ready.workers.map(({ pid }) => pid));
});

test('a second signal interrupts the calls and ends at once', async () => {
  const { process, ready } = await up('--workers', '1', '--tools', 'tools.ts');
  const call = place.start(['call', 'linger', '--params', '{"ms":60000}', '--key', 'impatient']);
  await process.line('"tool_call_start"');
  process.signal('SIGTERM');
  await process.line('draining: 1 worker');
  process.signal('SIGTERM');
  expect(await process.ended).toEqual({ code: 1, signal: null });
  expect((await call.ended).code).toBe(6);
  await allGone(ready.workers.map(({ pid }) => pid));
});

/** `pawl ARGS…`, whose standard error takes nothing. */
function unheard(args: readonly string[]): TestProcess {
  const env = { REDIS_URL: place.world.redisUrl, PAWL_PREFIX: place.world.prefix, LOG_LEVEL: 'info' };
  const launcher = fileURLToPath(new URL('../../../bin/pawl.mjs', import.meta.url));
  const command = ['-c', 'exec "$0" "$@" 2>/dev/full', globalThis.process.execPath, launcher, ...args];
  return startProgram('sh', command, { cwd: place.folder, env });
}

test('a log that cannot be written, because the disk is full, neither ends a server nor keeps it from ending', {
  tags: 'slow',
}, async () => {
  const serve = unheard(['serve', '--port', '0', '--json']);
  const { url } = JSON.parse(await serve.line('"event":"ready"')) as Ready;
  expect(await statusOf(`${url}/readyz`)).toBe(200);
  serve.signal('SIGINT');
  expect(await serve.ended).toEqual({ code: 0, signal: null });
  await allGone([]);
});

test('up drains also when its output is closed', { tags: 'slow' }, async () => {
  const process = unheard(['up', '--port', '0', '--json', '--workers', '1', '--tools', 'tools.ts']);
  const { url } = JSON.parse(await process.line('"event":"ready"')) as Ready;
  const gate = join(place.folder, 'the unheard call may end');
  await handIn(url, 'linger', { ms: 60_000, until: gate }, 'unheard');
  await eventually(async () => (await phaseOf(url, 'unheard')) === 'running');
  process.signal('SIGINT');
  await eventually(async () => (await statusOf(`${url}/readyz`)) === 503);
  writeFileSync(gate, '');
  expect(await process.ended).toEqual({ code: 0, signal: null });
  await allGone([]);
});

test('a closed terminal drains up, serve and a worker', { tags: 'slow' }, async () => {
  const [{ process: whole, ready }, serve, worker] = [
    await up('--workers', '1'),
    place.start(['serve', '--port', '0', '--json']),
    await place.worker(),
  ];
  await serve.line('"event":"ready"');
  const gate = join(place.folder, 'the call of the closed terminal may end');
  await handIn(ready.url, 'linger', { ms: 60_000, until: gate }, 'closed-terminal');
  await worker.line('"tool_call_start"');
  for (const process of [whole, serve, worker]) process.signal('SIGHUP');
  await worker.line('draining: SIGHUP');
  worker.signal('SIGHUP');
  writeFileSync(gate, '');
  const endings = await Promise.all([whole, serve, worker].map(({ ended }) => ended));
  expect(endings).toEqual(Array.from({ length: 3 }, () => ({ code: 0, signal: null })));
  await allGone(ready.workers.map(({ pid }) => pid));
});

test('an API process prints the addresses of its page, MCP and Bull Board', async () => {
  const serve = place.start(['serve', '--port', '0']);
  await serve.line('MCP');
  const said = serve.stdout();
  for (const [name, path, status] of [
    ['page', '/', 200],
    ['queues', '/queues', 200],
    ['MCP', '/mcp', 405],
  ] as const) {
    const address = new RegExp(`^  ${name} +(http://127\\.0\\.0\\.1:\\d+${path})(?: |$)`, 'm').exec(said)?.[1];
    expect([name, await statusOf(address ?? '')]).toEqual([name, status]);
  }
  serve.signal('SIGINT');
  expect(await serve.ended).toEqual({ code: 0, signal: null });
});

test('up names the port that is taken, and doctor explains the fix', async () => {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as { port: number };
  try {
    const [refused, doctor] = await Promise.all([
      place.run(['up', '--port', String(port)]),
      place.run(['doctor'], { env: { PAWL_HTTP_PORT: String(port) } }),
    ]);
    expect({ code: refused.code, stdout: refused.stdout }).toEqual({ code: 2, stdout: '' });
    expect(refused.stderr).toContain(`port ${port} is taken`);
    expect(doctor.code).toBe(2);
    expect(doctor.stdout).toMatch(/FAIL {2}port .* is in use by another program\n.*→ choose another/);
  } finally {
    server.close();
  }
});

test('unusable tools are reported once, and no process stays', async () => {
  const { code, stdout, stderr } = await place.run(['up', '--port', '0', '--workers', '2', '--tools', 'nowhere.ts']);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr.match(/There is no tools file nowhere\.ts/g)).toHaveLength(1);
  await allGone([]);
});

test('serve accepts calls without workers of its own, and drains; without tokens it stays on this machine', async () => {
  const [serve, refused] = [
    place.start(['serve', '--port', '0', '--json']),
    place.run(['serve', '--port', '0', '--host', '0.0.0.0']),
  ];
  const { url } = JSON.parse(await serve.line('"event":"ready"')) as Ready;
  const worker = await place.worker();
  const answer = await fetch(`${url}/v1/calls?wait=10000`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tool: 'greet', params: { name: 'Ada' }, session: 'over-http' }),
  });
  expect(await answer.json()).toMatchObject({ status: 'success', output: { content: { text: 'Hello, Ada!' } } });
  for (const process of [serve, worker]) process.signal('SIGTERM');
  expect(await serve.ended).toEqual({ code: 0, signal: null });
  expect(await worker.ended).toEqual({ code: 0, signal: null });
  expect(await refused).toMatchObject({ code: 2, stderr: expect.stringContaining('binds to loopback only') });
  await allGone([]);
});

test('A21: a tools file of ten lines works, and an edit of it, or of what it imports, is picked up while up runs; its hooks and toolsets too (D5, D10)', {
  tags: 'slow',
}, async () => {
  const file = join(place.folder, 'ten.ts');
  const words = join(place.folder, 'words.ts');
  const source = (greeting: string) => `import { defineTool } from 'pawl';
import { z } from 'zod';
import { word } from './words.ts';

export const greet = defineTool({
  name: 'greet',
  version: '1.0.0',
  description: 'Greets.',
  tier: 'read-only',
  input: z.object({ name: z.string() }),
  run: ({ name }) => ({ output: word + ', ' + ${greeting}, display: word + ', ' + ${greeting} }),
});
`;
  writeFileSync(file, source('name'));
  writeFileSync(words, "export const word = 'Hello';\n");
  writeFileSync(
    join(place.folder, 'guards.ts'),
    `import { defineHook, defineTool, toolset } from 'pawl';
import { z } from 'zod';

export const guard = defineHook({
  name: 'guard',
  tools: ['greet'],
  beforeCall: ({ params }) => (params.name === 'Mallory' ? { deny: 'not her' } : undefined),
  beforeAttempt: ({ params }) => ({ params: { name: params.name + '!' } }),
});
export const more = toolset('more', ({ session }) => session?.kind === 'worker' ? [] : [
  defineTool({
    name: 'shout',
    version: '1.0.0',
    description: 'Shouts.',
    tier: 'read-only',
    input: z.object({ text: z.string() }),
    run: ({ text }) => ({ output: text.toUpperCase() }),
  }),
]);
`,
  );
  const { process, ready } = await up('--workers', '1', '--tools', 'ten.ts', 'guards.ts', '--watch');
  const handIn = async (tool: string, params: object) => {
    const answer = await fetch(`${ready.url}/v1/calls`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tool, params, session: 'edited' }),
    });
    return answer.json();
  };
  const call = place.start(['call', 'greet', '--params', '{"name":"Ada"}']);
  await call.ended;
  expect(call.stdout().trim()).toBe('Hello, Ada!');
  expect(await handIn('greet', { name: 'Mallory' })).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
  expect(await handIn('shout', { text: 'hey' })).toMatchObject({ output: { content: 'HEY' } });
  const shownTo = async (kind: string) => {
    const json = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ kind }) };
    const { sessionKey } = (await (await fetch(`${ready.url}/v1/sessions`, json)).json()) as { sessionKey: string };
    const listed = await (await fetch(`${ready.url}/v1/tools?session=${sessionKey}`)).json();
    return (listed as { tools: { name: string }[] }).tools.map(({ name }) => name);
  };
  expect(await shownTo('main')).toEqual(expect.arrayContaining(['greet', 'shout', 'read']));
  const worker = await shownTo('worker');
  expect(worker).toEqual(expect.arrayContaining(['greet', 'read']));
  expect(worker).not.toContain('shout');
  writeFileSync(words, "export const word = 'Good day';\n");
  await process.line('words.ts was edited');
  await process.line('workers are complete again');
  expect(await handIn('greet', { name: 'Bob' })).toMatchObject({ output: { content: 'Good day, Bob!' } });
  writeFileSync(file, source("'dear ' + name"));
  await process.line('ten.ts was edited');
  await eventually(async () => {
    expect(await handIn('greet', { name: 'Eve' })).toMatchObject({ output: { content: 'Good day, dear Eve!' } });
    return true;
  });
  process.signal('SIGINT');
  expect(await process.ended).toEqual({ code: 0, signal: null });
  await allGone(ready.workers.map(({ pid }) => pid));
});
