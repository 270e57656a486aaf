import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

const LAUNCHER = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
/** Three times what a command waits for timers that a tools file left behind. */
const STILL_MS = 1_500;

/** A document of `size` operations that can be imported and `size` that cannot, each of which is named on standard error. */
function documentOf(size: number): object {
  const operation = (id: number) => ({ operationId: `list_${id}`, summary: 'x'.repeat(200), responses: {} });
  const paths = Array.from({ length: size }, (_, id) => [
    [`/things/${id}`, { get: operation(id) }],
    [`/others/${'y'.repeat(100)}/${id}`, { get: { responses: {}, parameters: [{ $ref: '#/nowhere' }] } }],
  ]).flat();
  return {
    openapi: '3.1.0',
    info: { title: 'Things', version: '1' },
    servers: [{ url: 'https://things.example' }],
    paths: Object.fromEntries(paths),
  };
}

/** Reads one piece of `stream`, nothing more until the command had time to end, or has ended, and then all of it. */
async function runWithSlowReader(args: readonly string[], stream: 'stdout' | 'stderr') {
  const child = spawn(process.execPath, [LAUNCHER, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const other = child[stream === 'stdout' ? 'stderr' : 'stdout'];
  other.resume();
  const exited = once(child, 'exit');
  const closed = once(child, 'close');
  let text = '';
  const first = once(child[stream].setEncoding('utf8'), 'data');
  child[stream].on('data', (chunk: string) => {
    text += chunk;
  });
  await first;
  child[stream].pause();
  await Promise.race([exited, sleep(STILL_MS)]);
  child[stream].resume();
  const [code] = (await closed) as [number | null];
  return { code, text };
}

test.each(['stdout', 'stderr'] as const)('a slow reader gets all that a command wrote to its %s', async (stream) => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-slow-reader-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'things.json');
  const size = 600;
  writeFileSync(file, JSON.stringify(documentOf(size)));
  const { code, text } = await runWithSlowReader(['tools', 'import-openapi', file, '--dry-run', '--json'], stream);
  expect(code).toBe(0);
  if (stream === 'stdout') expect((JSON.parse(text) as { tools: unknown[] }).tools.length).toBeGreaterThanOrEqual(size);
  else expect(text.match(/left out: /g)).toHaveLength(size);
});

test('a command does not wait for a reader that has ended', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-gone-reader-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'things.json');
  writeFileSync(file, JSON.stringify(documentOf(600)));
  const child = spawn(process.execPath, [LAUNCHER, 'tools', 'import-openapi', file, '--dry-run', '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  child.stderr.resume();
  await once(child.stdout, 'readable');
  child.stdout.destroy();
  expect(await once(child, 'exit')).toEqual([0, null]);
});

test('a command whose reader has ended keeps its exit code', async () => {
  const child = spawn(process.execPath, [LAUNCHER, 'doctor', '--json'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, REDIS_URL: 'redis://127.0.0.1:1' },
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  child.stdout.destroy();
  expect(await once(child, 'exit')).toEqual([7, null]);
});
