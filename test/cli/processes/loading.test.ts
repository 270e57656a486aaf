/** Tools files whose loading never ends, and workers that never report. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { CliContext } from '../../../src/cli/context.ts';
import { WorkerProcesses } from '../../../src/cli/processes/worker-processes.ts';
import { startScript } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

const SAY = "import { writeSync } from 'node:fs';\nwriteSync(2, 'the file runs\\n');\n";
const WAYS = {
  loop: 'for (;;);',
  pattern: "/^(a+)+$/.test('a'.repeat(60) + '!');",
  program: "(await import('node:child_process')).execFileSync('sleep', ['60']);",
  wait: 'setInterval(() => {}, 1000);\nawait new Promise(() => {});',
} as const;

function toolsFile(name: string, text: string): string {
  const file = join(place.folder, `${name}.ts`);
  writeFileSync(file, `${SAY}${text}\n`);
  return file;
}

test.each(Object.entries(WAYS))(
  'a tools file that is never loaded (%s) is named, and ends its process with exit code 2',
  async (way, text) => {
    const file = toolsFile(way, text);
    const script = startScript(new URL('../fixtures/watch-loading.ts', import.meta.url), [file]);
    expect(await script.ended).toEqual({ code: 2, signal: null });
    expect(script.stderr()).toContain(`pawl: The tools file ${file} is still being loaded, after 0.2 s.`);
    expect(script.stderr()).toContain(`pawl: The tools file ${file} was not loaded within 0.4 s: its top level loops`);
  },
);

test('a tools file that waits although nothing can happen is refused at once', async () => {
  toolsFile('idle', 'await new Promise(() => {});');
  const { code, stderr } = await place.run(['worker', '--tools', 'idle.ts']);
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr:
      'the file runs\npawl: The tools file idle.ts cannot be used: its top level waits for a promise that nothing settles.\n',
  });
});

test('Ctrl-C ends `pawl up`, `serve`, `worker` and `mcp` while a tools file blocks them', async () => {
  toolsFile('blocks', WAYS.loop);
  const interrupt = async (command: string, ...options: string[]) => {
    const process = place.start([command, '--tools', 'blocks.ts', ...options]);
    await process.line('the file runs');
    process.signal('SIGINT');
    expect(await process.ended, command).toEqual({ code: null, signal: 'SIGINT' });
  };
  await Promise.all([interrupt('up'), interrupt('serve'), interrupt('worker'), interrupt('mcp', '--workers', '1')]);
});

test('up replaces a worker that blocks while it loads an edited tools file, and ends at Ctrl-C although one blocks', async () => {
  const file = join(place.folder, 'edited.ts');
  const tool = (end: string) =>
    `import { greet } from './tools.ts';\nexport const tools = [greet];\nif (process.send) { ${end} }\n`;
  writeFileSync(file, tool(''));
  const up = place.start(['up', '--port', '0', '--json', '--workers', '1', '--watch', '--tools', 'edited.ts']);
  await up.line('"event":"ready"');
  writeFileSync(file, tool("process.stderr.write('the first edit\\n'); for (;;);"));
  await up.line('the first edit');
  writeFileSync(file, tool(''));
  await up.line('workers are complete again');
  writeFileSync(file, tool("process.stderr.write('the second edit\\n'); for (;;);"));
  await up.line('the second edit');
  up.signal('SIGINT');
  expect(await up.ended).toEqual({ code: 0, signal: null });
});

test('a worker that hangs before its first message is killed and replaced; as the first one it ends the start', async () => {
  const starts = join(place.folder, 'starts');
  const err = new PassThrough();
  const context = {
    err,
    cwd: place.folder,
    launcher: fileURLToPath(new URL('../fixtures/hanging-launcher.ts', import.meta.url)),
    environment: { ...process.env, HANGING_LAUNCHER_STARTS: starts },
  } as unknown as CliContext;
  const options = { count: 1, args: [], drainMs: 0, leaseMs: 1_000, loadLimitMs: 6_000, metricsPort: undefined };
  writeFileSync(starts, '.');
  await expect(new WorkerProcesses(context, options).start()).rejects.toThrow('cannot be started (SIGKILL)');
  rmSync(starts);
  const workers = new WorkerProcesses(context, options);
  await workers.start();
  const [first] = workers.ready;
  process.kill(first?.pid ?? 0, 'SIGKILL');
  const third = await eventually(() => workers.ready.find(({ pid }) => pid !== first?.pid));
  expect(third.pid).not.toBe(first?.pid);
  expect(String(err.read())).toContain('has been silent for');
  await workers.drain();
});
