import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { createWorld } from './helpers/world.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The modules that a file which imports Pawl loads, ours by their paths and libraries by their names. */
function loadedBy(specifier: string): readonly string[] {
  const script = `
    import { registerHooks } from 'node:module';
    const loaded = [];
    registerHooks({ load: (url, context, next) => { loaded.push(url); return next(url, context); } });
    await import(${JSON.stringify(specifier)});
    console.log(JSON.stringify(loaded));`;
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', script];
  return JSON.parse(execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' })) as string[];
}

test('a file that imports Pawl to define a tool loads neither a client nor a worker, and no library of Redis', () => {
  const loaded = loadedBy('pawl');
  expect(loaded.some((url) => url.endsWith('/src/shared/tools/tool.ts'))).toBe(true);
  const heavy =
    /\/(?:ioredis|bullmq)\/|\/src\/(?:producer\/client|workers\/worker|shared\/store\/redis\/connection)\.ts$/;
  expect(loaded.filter((url) => heavy.test(url))).toEqual([]);
});

/** How many lines of the level info a program writes that connects and ends. */
function infoLines(folder: string, options: object, environment: Readonly<Record<string, string>>): number {
  const script = `
    import { connect } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url))};
    await (await connect(${JSON.stringify(options)})).close();`;
  const { LOG_LEVEL: _, ...inherited } = process.env;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...inherited, ...environment },
  });
  expect(status, stderr).toBe(0);
  return stderr.split('\n').filter((line) => line.includes('"level":30')).length;
}

test('a program of one’s own hears warnings, and more when an option, the environment or the file asks for it', async () => {
  const world = await createWorld();
  onTestFinished(() => world[Symbol.asyncDispose]());
  const folder = mkdtempSync(join(tmpdir(), 'pawl-log-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  // Of the promise that is asked for here each process tells as information.
  const environment = { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix, PAWL_DURABILITY: 'waitaof' };
  expect(infoLines(folder, {}, environment)).toBe(0);
  expect(infoLines(folder, { logLevel: 'info' }, environment)).toBeGreaterThan(0);
  expect(infoLines(folder, {}, { ...environment, LOG_LEVEL: 'info' })).toBeGreaterThan(0);
  writeFileSync(join(folder, 'pawl.config.json'), JSON.stringify({ logLevel: 'info' }));
  expect(infoLines(folder, {}, environment)).toBeGreaterThan(0);
});

test('the first call of a worker or of a session does not wait until Ajv is loaded', async () => {
  const world = await createWorld();
  onTestFinished(() => world[Symbol.asyncDispose]());
  const options = JSON.stringify({ redisUrl: world.redisUrl, prefix: world.prefix });
  const script = `
    import { createRequire } from 'node:module';
    import { setImmediate } from 'node:timers/promises';
    import { connect, startWorker } from 'pawl';
    const isLoaded = () => Object.keys(createRequire(import.meta.url).cache).some((file) => file.includes('/ajv/'));
    const pawl = await connect(${options});
    const connected = isLoaded();
    if (process.argv[1] === 'worker') await startWorker({ ...${options}, tools: [], tiers: ['read-only'] });
    else await pawl.openSession();
    await setImmediate();
    process.stdout.write(JSON.stringify({ connected, idle: isLoaded() }), () => process.exit());`;
  for (const what of ['session', 'worker']) {
    const args = ['--input-type=module', '--eval', script, what];
    const printed = execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
    expect(JSON.parse(printed), what).toEqual({ connected: false, idle: true });
  }
});

test('`pawl` exports at most 100 names', () => {
  const source = readFileSync(join(ROOT, 'src', 'index.ts'), 'utf8');
  const lists = [...source.matchAll(/^export (?:type )?\{(?<names>[^}]*)\}/gm)].map(
    ({ groups }) => groups?.['names'] ?? '',
  );
  const names = lists.flatMap((list) => list.split(',')).filter((name) => name.trim() !== '');
  expect(names.length).toBeGreaterThan(50);
  expect(names.length).toBeLessThanOrEqual(100);
});

/** What programs hand around, by the type that has it. */
const HANDED_AROUND = {
  Pawl: [
    ...[
      'approvals',
      'questions',
      'registry',
      'skills',
      'fleetMetrics',
      'openSession',
      'session',
      'submit',
      'read',
      'follow',
    ],
    ...['result', 'output', 'outputStream', 'cancel', 'resolve', 'audit', 'catalogue', 'publishedFor', 'serveTools'],
    ...['list', 'read', 'backlog', 'flush', 'requestCancel'].map((method) => `calls.${method}`),
    ...['list', 'setState', 'close'].map((method) => `sessions.${method}`),
    ...['list', 'history', 'set'].map((method) => `circuits.${method}`),
    ...['read', 'set'].map((method) => `reliability.${method}`),
    ...['shards.list', 'shards.set', 'workers.drain'],
    ...['list', 'listBrief', 'show', 'similarTo', 'decide'].map((method) => `approvals.${method}`),
    ...['list', 'show', 'reply'].map((method) => `questions.${method}`),
    ...['list', 'read', 'history', 'put', 'patch', 'remove', 'rollback'].map((method) => `registry.${method}`),
    ...['list', 'put', 'remove', 'triggeredBy'].map((method) => `skills.${method}`),
  ],
  Session: [
    'events',
    'record',
    'call',
    'submit',
    'compensate',
    'callWithReask',
    'toolsFor',
    'decode',
    'cancel',
    'reply',
  ],
  ToolContext: [
    ...['workspace', 'changes', 'processes', 'terminals', 'memory', 'channel', 'agents', 'fetch', 'progress', 'log'],
    ...['workspace.commit', 'workspace.search', 'processes.run', 'memory.search', 'channel.ask'],
  ],
  ConnectOptions: ['log', 'hooks', 'toolsets', 'onEvent'],
  StartWorkerOptions: ['log', 'tools', 'toolSettings', 'hooks', 'onEvent'],
  AnyTool: ['inputSchema', 'retry', 'circuit'],
  ApprovalRequest: ['amendment'],
  CallRecord: ['request', 'outcome'],
  HookEvent: ['tool'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** Programs of the guides, each by a word that only it has, with what they take for granted. */
const OF_GUIDES = [
  { guide: 'testing.md', word: 'Approve', given: "declare const transfer: import('pawl').AnyTool;" },
  {
    guide: 'dynamic-tools.md',
    word: 'serveTools',
    given: `
      declare const pawl: import('pawl').Pawl;
      declare const inputSchema: Readonly<Record<string, unknown>>;
      declare const editor: { open(file: string, signal: AbortSignal): Promise<string> };`,
  },
];

function ofGuide({ guide, word, given }: (typeof OF_GUIDES)[number]): string {
  const text = readFileSync(join(ROOT, 'docs', guide), 'utf8');
  const programs = [...text.matchAll(/```ts\n(?<program>[\s\S]*?)```/g)].map(({ groups }) => groups?.['program'] ?? '');
  const program = programs.find((found) => found.includes(word));
  expect(program, `a program with ${word} in ${guide}`).toBeDefined();
  return `export {};${given}\n${program}`;
}

function runCompiler(...options: readonly string[]): void {
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const { status, stdout } = spawnSync(process.execPath, [compiler, ...options], { cwd: ROOT, encoding: 'utf8' });
  expect(status, stdout).toBe(0);
}

/** The package with its types alone, as in a project that uses it. */
function install(project: string): void {
  const installed = join(project, 'node_modules', 'pawl');
  mkdirSync(installed, { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(installed, 'node_modules'));
  const manifest = execFileSync(process.execPath, [join(ROOT, 'scripts', 'pack.mjs'), 'manifest'], {
    encoding: 'utf8',
  });
  writeFileSync(join(installed, 'package.json'), manifest);
  const options = ['--noCheck', '--emitDeclarationOnly', '--outDir', join(installed, 'dist')];
  runCompiler('-p', 'tsconfig.build.json', ...options);
}

test('a strict project compiles programs of the guides, and declarations of all that programs hand around', () => {
  const project = mkdtempSync(join(tmpdir(), 'pawl-types-'));
  onTestFinished(() => rmSync(project, { recursive: true, force: true }));
  install(project);
  writeFileSync(join(project, 'package.json'), '{ "type": "module" }');
  const functions = Object.entries(HANDED_AROUND).flatMap(([type, members]) =>
    members.map((member) => `export const ${type}_${member.replace('.', '_')} = (it: ${type}) => it.${member};`),
  );
  const types = `import type { ${Object.keys(HANDED_AROUND).join(', ')} } from 'pawl';`;
  const files = [[types, ...functions].join('\n'), ...OF_GUIDES.map(ofGuide)].map((program, number) => {
    const file = join(project, `program-${number}.ts`);
    writeFileSync(file, program);
    return file;
  });
  runCompiler(
    ...['--ignoreConfig', '--module', 'nodenext', '--target', 'es2024', '--lib', 'es2024,esnext.disposable'],
    ...['--types', 'node', '--typeRoots', join(ROOT, 'node_modules', '@types'), '--skipLibCheck', '--strict'],
    ...[
      '--exactOptionalPropertyTypes',
      '--noUncheckedIndexedAccess',
      '--declaration',
      '--outDir',
      join(project, 'out'),
    ],
    ...files,
  );
});
