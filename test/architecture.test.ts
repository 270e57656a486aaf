import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { blank, findViolations, type Source } from './helpers/architecture.ts';
import { backwardImports, crowdedFolders, importCycles } from './helpers/folder-order.ts';
import { unusedExports } from './helpers/unused-exports.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

function sourcesOf(folder: string): readonly Source[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.includes('node_modules'))
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }));
}

test('the sources keep the five rules', () => {
  const sources = sourcesOf('src');
  expect(sources.length).toBeGreaterThan(10);
  const lines = findViolations(sources).map(({ rule, at, message }) => `${at} breaks rule ${rule}: ${message}`);
  expect(lines.join('\n')).toBe('');
});

test('no import goes against the order of the folders', () => {
  expect(backwardImports(sourcesOf('src')).join('\n')).toBe('');
});

test('an import against the order of the folders is found', () => {
  const source = (path: string, text: string): Source => ({ path, text });
  expect(
    backwardImports([
      source('src/shared/retries/retry.ts', "import type { Call } from '../calls/call-state.ts';"),
      source('src/shared/calls/call-state.ts', "import { retry } from '../retries/retry.ts';"),
      source('src/workers/queue/job-queue.ts', "import { execute } from '../execution/execute-job.ts';"),
      source('src/workers/attempt/traces.ts', "import type { Hold } from '../circuits/fleet-circuit.ts';"),
    ]),
  ).toEqual([
    'src/shared/retries/retry.ts imports src/shared/calls/call-state.ts',
    'src/workers/attempt/traces.ts imports src/workers/circuits/fleet-circuit.ts',
  ]);
  expect(() => backwardImports([source('src/shared/misc/a.ts', '')])).toThrow(
    /the order of src\/shared\/ does not name/,
  );
});

test('no file stands in an import cycle, types included', () => {
  expect(importCycles(sourcesOf('src'))).toEqual([]);
  const made = [
    { path: 'src/a.ts', text: "import type { B } from './b.ts';" },
    { path: 'src/b.ts', text: "export { c } from './c.ts';" },
    { path: 'src/c.ts', text: "const a = await import('./a.ts');" },
    { path: 'src/d.ts', text: "import './a.ts';" },
  ];
  expect(importCycles(made)).toEqual([['src/a.ts', 'src/b.ts', 'src/c.ts']]);
});

test('no folder has more than 25 files', () => {
  const names = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8', withFileTypes: true });
  const paths = names.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  expect(crowdedFolders(paths, 25)).toEqual([]);
});

/** The Lua scripts that a text names: a name of several words, to leave out files of editors. */
const scriptsNamedIn = (text: string) =>
  [...text.matchAll(/(?<![\w.*-])[a-z]+(?:-[a-z]+)+\.lua\b/g)].map(([name]) => name);

test('every Lua script that a comment, a test or a page names exists', () => {
  const files = ['src', 'test', 'docs'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(?:ts|lua|md)$/.test(name) && !/node_modules|^decisions/.test(name))
      .map((name) => `${folder}/${name}`),
  );
  const scripts = new Set(files.filter((path) => path.endsWith('.lua')).map((path) => basename(path)));
  const missing = files.flatMap((path) =>
    scriptsNamedIn(readFileSync(join(ROOT, path), 'utf8'))
      .filter((name) => !scripts.has(name))
      .map((name) => `${path} names ${name}`),
  );
  expect(missing).toEqual([]);
  const absent = `no-${'such'}.lua`;
  expect(scriptsNamedIn(`${absent} and .nvim-tree.lua`)).toEqual([absent]);
});

test('what a file exports is used in another one, or is for programs that import Pawl', () => {
  const users = ['test', 'bench', 'examples', 'dashboards'].flatMap(sourcesOf);
  const entries = Object.values(manifest.exports).map((path) => path.slice(2));
  expect(unusedExports(sourcesOf('src'), users, entries).join('\n')).toBe('');
  const made = [
    { path: 'src/a.ts', text: 'export const one = 1;\nexport interface Two {}\nexport async function three() {}' },
    { path: 'src/b.ts', text: "import { one } from './a.ts';\nexport const four = one;" },
    { path: 'src/index.ts', text: 'export const five = 5;' },
  ];
  expect(unusedExports(made, [{ path: 'test/a.test.ts', text: 'await three()' }], ['src/index.ts'])).toEqual([
    'src/a.ts exports Two, which no other file uses',
    'src/b.ts exports four, which no other file uses',
  ]);
});

/** The rules that one source breaks, with the lines. */
function broken(path: string, text: string): readonly string[] {
  return findViolations([{ path, text }]).map(({ rule, at }) => `${rule} at ${at.slice(at.lastIndexOf(':') + 1)}`);
}

describe('rule 1: the two sides never meet', () => {
  test.each([
    ['src/producer/client.ts', "import { run } from '../workers/worker.ts';"],
    ['src/workers/http/probe.ts', "export { open } from '../../producer/session.ts';"],
    ['src/workers/worker.ts', "type Client = import('../producer/client.ts').Client;"],
    ['src/workers/worker.ts', "const client = await import('../producer/client.ts');"],
    ['src/workers/worker.ts', "import { LocalRunner } from '../local/runner.ts';"],
    ['src/producer/client.ts', "import { LocalRunner } from '../local/runner.ts';"],
  ])('%s: %s', (path, text) => expect(broken(path, text)).toEqual(['1 at 1']));

  test('runs without a fleet put them together', () => {
    expect(broken('src/local/runner.ts', "import { Executor } from '../workers/execution/execute-job.ts';")).toEqual(
      [],
    );
    expect(broken('src/local/runner.ts', "import { Dispatch } from '../producer/dispatch.ts';")).toEqual([]);
    expect(broken('src/shared/calls/dedupe-store.ts', "import { LocalRunner } from '../../local/runner.ts';")).toEqual([
      '2 at 1',
    ]);
  });

  test('both may import what is shared', () => {
    expect(broken('src/producer/client.ts', "import { claim } from '../shared/store/ledger.ts';")).toEqual([]);
    expect(broken('src/workers/sandbox/main.ts', "import { decide } from '../../shared/retry.ts';")).toEqual([]);
  });
});

describe('rule 2: the rules are pure', () => {
  test.each([
    ['src/shared/retries/retry.ts', "import { ledger } from '../store/calls/ledger.ts';"],
    ['src/shared/retries/retry.ts', "import { readFile } from 'node:fs/promises';"],
    ['src/shared/retries/retry.ts', "import pino from 'pino';"],
    ['src/shared/retries/retry.ts', 'const jitter = Math.random() * 200;'],
    ['src/shared/retries/retry.ts', 'const at = Date.now();'],
    ['src/shared/retries/retry.ts', 'const text = `${new Date()}`;'],
    ['src/shared/retries/retry.ts', 'setTimeout(again, 10);'],
    ['src/shared/store/calls/ledger.ts', "import { open } from '../../../producer/sessions/session.ts';"],
  ])('%s: %s', (path, text) => expect(broken(path, text)).toEqual(['2 at 1']));

  test('they may import each other and schema libraries, and time.ts reads the clock', () => {
    const text =
      "import { z } from 'zod';\nimport Ajv from 'ajv/dist/2020.js';\nimport type { Clock } from './time.ts';";
    expect(broken('src/shared/schema/schema.ts', text)).toEqual([]);
    expect(broken('src/shared/calls/call-id.ts', "import { createHash } from 'node:crypto';")).toEqual([]);
    expect(broken('src/shared/util/time.ts', 'export const now = () => Date.now();')).toEqual([]);
    expect(broken('src/shared/calls/call-state.ts', 'const at = new Date(record.startedAtMs);')).toEqual([]);
  });
});

describe('rule 3: libraries stay where they belong', () => {
  test.each([
    ['src/producer/client.ts', "import type { Redis } from 'ioredis';"],
    ['src/workers/execution/execute-job.ts', "import { Redis } from 'ioredis';"],
    ['src/producer/sessions/session.ts', "import { Queue } from 'bullmq';"],
    ['src/shared/store/calls/ledger.ts', "import { Queue } from 'bullmq';"],
  ])('%s: %s', (path, text) => expect(broken(path, text)).toEqual(['3 at 1']));

  test.each([
    ['src/shared/store/redis/connection.ts', "import { Redis } from 'ioredis';"],
    ['src/shared/store/queues/jobs.ts', "import { Queue } from 'bullmq';"],
    ['src/producer/calls/result-waiters.ts', "import { QueueEvents } from 'bullmq';"],
    ['src/workers/queue/job-queue.ts', "import { Worker } from 'bullmq';"],
  ])('%s may: %s', (path, text) => expect(broken(path, text)).toEqual([]));
});

describe('rule 4: a tool has its context and nothing else', () => {
  test.each([
    ['src/workers/tools/read.ts', "import { jail } from '../capabilities.ts';"],
    ['src/workers/tools/read.ts', "import { ledger } from '../../shared/store/ledger.ts';"],
    ['src/workers/tools/read.ts', "import { readFile } from 'fs/promises';"],
    ['src/workers/tools/shell.ts', "import { spawn } from 'node:child_process';"],
    ['src/workers/tools/web-fetch.ts', 'const answer = await fetch(url);'],
    ['src/workers/tools/read.ts', "import { defineTool } from 'pawl';"],
  ])('%s: %s', (path, text) => expect(broken(path, text)).toEqual(['4 at 1']));

  test('the rules, its neighbours and its own context are open to it', () => {
    const text =
      "import { defineTool } from '../../shared/tool.ts';\nimport { read } from './read.ts';\nctx.fetch(url);";
    expect(broken('src/workers/tools/index.ts', text)).toEqual([]);
  });
});

describe('rule 5: only composition roots touch the process', () => {
  test.each([
    'const url = process.env.REDIS_URL;',
    "const url = process.env['REDIS_URL'];",
    "process.on('SIGTERM', drain);",
    'process.once(`SIGINT`, drain);',
    'process.exit(1);',
    "import { env } from 'node:process';",
    'const text = `at ${process.env.HOME}`;',
  ])('%s', (text) => {
    expect(broken('src/producer/client.ts', text)).toEqual(['5 at 1']);
    expect(broken('src/cli.ts', text)).toEqual([]);
    expect(broken('src/workers/main.ts', text)).toEqual([]);
  });

  test('what is no signal, and no code, is free', () => {
    const text = [
      "process.on('exit', end);",
      'process.exitCode = 1;',
      '// process.exit(1) would lose the log',
      "/* import { Redis } from 'ioredis'; */",
      "const hint = 'set process.env.REDIS_URL';",
      'const quoted = /[\'"`]/.test(text); // process.env',
      'const nested = `a ${inner(`b ${c} process.env.X`)} process.exit(1)`;',
    ];
    expect(broken('src/producer/client.ts', text.join('\n'))).toEqual([]);
  });
});

test('a violation names the file, the line and the way out', () => {
  const text = "// one\n\nimport {\n  Redis,\n} from 'ioredis';\n";
  expect(findViolations([{ path: 'src/producer/client.ts', text }])).toEqual([
    { rule: 3, at: 'src/producer/client.ts:5', message: "'ioredis' is named only under src/shared/store/" },
  ]);
});

test('blanking keeps every character in its place', () => {
  for (const { path, text } of sourcesOf('src')) {
    for (const strings of [true, false]) {
      const result = blank(text, { strings });
      expect(result.length, path).toBe(text.length);
      expect(result.replace(/[^\n]/g, '').length, path).toBe(text.replace(/[^\n]/g, '').length);
    }
  }
});

/** Prints the packages that loading a module loads. */
const LOADED = `
  import { registerHooks } from 'node:module';
  const packages = new Set();
  registerHooks({
    load(url, context, next) {
      packages.add(/.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1] ?? /^node:https?$/.exec(url)?.[0]);
      return next(url, context);
    },
  });
  await import(process.argv[1]);
  console.log(JSON.stringify([...packages]));
`;

/** What a start must not load, by what starts. An import of node:http loads its WebSocket too, which costs 40 ms. */
const NOT_AT_START: Readonly<Record<string, readonly string[]>> = {
  'src/cli.ts': ['zod', 'ajv', 'ioredis', 'bullmq', 'pino', 'express', 'node:http'],
  'src/index.ts': ['ajv', 'ioredis', 'bullmq', 'pino', 'diff', 'yaml', 'express', 'node:http'],
  'src/cli/commands/call.ts': ['bullmq', 'pino', 'express', 'prom-client', 'node:http'],
  'src/producer/client.ts': ['pino', 'diff', 'express', 'prom-client', '@opentelemetry/api', 'node:http'],
  'src/workers/worker.ts': [
    '@modelcontextprotocol/client',
    'linkedom',
    'diff',
    'yaml',
    'express',
    'prom-client',
    'node:http',
  ],
};

test.each(Object.entries(NOT_AT_START))('loading %s does not wait for %j', (path, unwanted) => {
  const args = ['--input-type=module', '--eval', LOADED, join(ROOT, path)];
  const loaded = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as readonly string[];
  expect(loaded).toContain(path === 'src/cli.ts' ? 'commander' : 'zod');
  expect(loaded.filter((name) => unwanted.includes(name))).toEqual([]);
});
