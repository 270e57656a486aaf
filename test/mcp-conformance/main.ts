/**
 * `npm run conformance [-- SCENARIO…]`: the MCP conformance suite against a server, a Redis and workers in processes of their own.
 * With names, these scenarios alone; without, all that both revisions require, the tasks and the headers, and the tasks again while
 * workers are killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const SUITE = '@modelcontextprotocol/conformance@0.2.0-alpha.12';
const REQUIREMENTS = ['2025-11-25', '2026-07-28'];
const SCENARIOS = [
  'tasks-lifecycle',
  'tasks-capability-negotiation',
  'tasks-dispatch-and-envelope',
  'tasks-wire-fields',
  'tasks-mrtr-input',
  'tasks-mrtr-composition',
  'tasks-request-headers',
  'tasks-request-state-removal',
  'tasks-required-task-error',
  'tasks-status-notifications',
  'http-header-validation',
];
/** Killed and replaced this often while the tasks run once more. */
const KILL_EVERY_MS = 1_500;

const dataDir = mkdtempSync(join(tmpdir(), 'pawl-conformance-'));
const env = {
  ...process.env,
  PAWL_DATA_DIR: dataDir,
  PAWL_LOCK_DURATION_MS: '1000',
  PAWL_STALLED_INTERVAL_MS: '500',
};

async function start(file: string): Promise<{ readonly child: ChildProcess; readonly firstLine: string }> {
  const child = spawn(process.execPath, [fileURLToPath(new URL(file, import.meta.url))], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const firstLine of createInterface({ input: child.stdout })) return { child, firstLine };
  throw new Error(`${file} did not start`);
}

function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (child.exitCode !== null || child.signalCode !== null) resolve();
  else child.once('exit', () => resolve());
  child.kill(signal);
  return promise;
}

function suite(url: string, ...args: readonly string[]): Promise<boolean> {
  console.log(`\n=== ${args.join(' ')}`);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  spawn('npx', ['--yes', SUITE, 'server', '--url', `${url}/mcp`, ...args], { stdio: 'inherit', cwd: dataDir }).once(
    'exit',
    (code) => resolve(code === 0),
  );
  return promise;
}

const failed: string[] = [];
const run = async (what: string, url: string, ...args: string[]) => {
  if (!(await suite(url, ...args))) failed.push(what);
};

const server = await start('server.ts');
let worker = await start('worker.ts');
const spare = await start('worker.ts');
const url = server.firstLine;
try {
  const named = process.argv.slice(2);
  if (named.length === 0) for (const date of REQUIREMENTS) await run(date, url, '--requirements', date);
  for (const scenario of named.length === 0 ? SCENARIOS : named) await run(scenario, url, '--scenario', scenario);
  if (named.length === 0) {
    let over = false;
    const killing = (async () => {
      while (!over) {
        await new Promise((resolve) => setTimeout(resolve, KILL_EVERY_MS));
        await end(worker.child, 'SIGKILL');
        worker = await start('worker.ts');
      }
    })();
    for (const scenario of SCENARIOS) await run(`${scenario} while workers die`, url, '--scenario', scenario);
    over = true;
    await killing;
  }
} finally {
  await Promise.all([server, worker, spare].map(({ child }) => end(child, 'SIGTERM')));
  rmSync(dataDir, { recursive: true, force: true });
}
console.log(failed.length === 0 ? '\nAll passed.' : `\nFailed: ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
