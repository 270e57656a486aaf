/** No file that a Pawl process opens, executes or loads outside of the sandbox can be changed by a call. Recorded by strace. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { detectIsolation } from '../../src/workers/context/processes.ts';
import { attempts } from '../helpers/attempts.ts';
import { temporaryFolder } from '../helpers/context.ts';

const PAWL = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
const hasTracer = spawnSync('strace', ['-qq', '-e', 'trace=none', 'true']).status === 0;
const canShow = hasTracer && (await detectIsolation()).includes('bubblewrap');
if (!canShow) console.warn('skipped: strace or bubblewrap is missing, so the trust boundary is not traced');

const TOOLS = `import { defineTool } from 'pawl';
import { z } from 'zod';
import dep from 'dep';
import { greeting } from './lib/greeting.ts';
import { createRequire } from 'node:module';
createRequire(import.meta.url)('./lib/old');
export const greet = defineTool({
  name: 'greet', version: '1.0.0', description: 'Greets.', tier: 'read-only', input: z.object({}),
  run: async () => ({ output: { greeting, more: (await import('./later.ts')).more } }),
});`;

function project(): string {
  const folder = realpathSync(temporaryFolder());
  const files = {
    'tools.ts': TOOLS,
    'lib/greeting.ts': "export const greeting = 'hello';",
    'lib/old/index.js': 'module.exports = 1;',
    'later.ts': 'export const more = 1;',
    'package.json': '{ "type": "module" }',
    'lib/old/package.json': '{ "type": "commonjs" }',
    'node_modules/dep/package.json': '{ "name": "dep", "version": "1.0.0", "main": "index.js" }',
    'node_modules/dep/index.js': 'module.exports = {};',
    'pawl.config.mjs': "import { logLevel } from './settings.mjs';\nexport default { logLevel };",
    'settings.mjs': "export const logLevel = 'warn';",
    'skills/a/SKILL.md': '---\nname: a\ndescription: A skill.\n---\nDo it.',
    'notes.txt': 'free',
  };
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return folder;
}

interface Traced {
  readonly child: ChildProcess;
  readonly trace: string;
}

function traced(folder: string, args: readonly string[]): Traced {
  const trace = join(temporaryFolder(), 'trace');
  const command = ['-f', '-qq', '-e', 'trace=%file', '-o', trace, process.execPath, PAWL, ...args];
  const child = spawn('strace', command, {
    cwd: folder,
    env: { ...process.env, PAWL_SKILL_FOLDERS: 'skills', NODE_ENV: undefined, REDIS_URL: undefined },
    stdio: ['pipe', 'pipe', 'inherit'],
    detached: true,
  });
  onTestFinished(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-(child.pid ?? 0), 'SIGTERM');
    await once(child, 'exit');
  });
  return { child, trace };
}

async function firstLine({ child }: Traced): Promise<string> {
  let text = '';
  for await (const chunk of child.stdout ?? []) {
    text += String(chunk);
    if (text.includes('\n')) break;
  }
  return text;
}

const look = (path: string) => {
  try {
    return lstatSync(path);
  } catch {
    // Not there, or below a file.
    return undefined;
  }
};

/** Of all that was looked up in the project: files, and names that were not there, but not what only was asked for by a folder's name. */
function lookedUp(trace: string, folder: string): readonly string[] {
  const all = readFileSync(trace, 'utf8').matchAll(/^\d+ +\w+\((?:AT_FDCWD, )?"((?:[^"\\\n]|\\.)+)"/gm);
  // A process in another folder has other files in mind, so that a relative name must be there to count.
  const named = [...all]
    .map(([, name = '']) => ({ isAbsolute: name.startsWith('/'), path: resolve(folder, name) }))
    .filter(({ isAbsolute, path }) => isAbsolute || look(path) !== undefined)
    .map(({ path }) => path);
  const inProject = named.filter((path) => path.startsWith(`${folder}/`) && !path.startsWith(join(folder, '.pawl/')));
  const isUnderFile = (path: string) => look(dirname(path))?.isFile() === true;
  // Names that are only looked at to say that they are not read.
  const isUnread = (path: string) => /pawl\.config\.(?:yaml|yml|toml|jsonc|json5)$/.test(path);
  return [...new Set(inProject)].filter((path) => {
    const isFolder = look(path)?.isDirectory() === true;
    return !isFolder && !isUnderFile(path) && !isUnread(path);
  });
}

/** What stands at these names, and which folders lead to them. */
function stateOf(paths: readonly string[]): unknown {
  return paths.map((path) => {
    const stats = look(path);
    const above = look(dirname(path))?.ino;
    if (stats === undefined) return [path, above];
    return [
      path,
      above,
      stats.ino,
      stats.mode,
      stats.isSymbolicLink() ? readlinkSync(path) : readFileSync(path, 'utf8'),
    ];
  });
}

/** One of each group of commands. */
const COMMANDS = [
  ['mcp'],
  ['tools', 'ls'],
  ['calls', 'ls', '--json'],
  ['doctor'],
  ['call', 'greet', '--after', '1h'],
  ['call', 'greet'],
  ['audit', 'ls'],
  ['dead-letters', 'ls'],
  ['sessions', 'ls'],
  ['plans', 'ls'],
  ['schedules', 'ls'],
  ['workers', 'ls'],
  ['circuits', 'ls'],
  ['shards', 'ls'],
  ['callbacks', 'ls'],
  ['approvals', 'ls'],
  ['questions', 'ls'],
  ['policy', 'explain', 'greet'],
  ['reliability', 'ls'],
];
/** Commands that are traced at a time. */
const AT_ONCE = 5;
/** `demo` makes a world of its own; the others are traced while they run. */
const OTHER_COMMANDS = ['up', 'demo', 'worker', 'serve', 'help'];

test('every command is traced', () => {
  const { stdout } = spawnSync(process.execPath, [PAWL, '--help'], { encoding: 'utf8' });
  const listed = (stdout.split('Commands:')[1] ?? '').split('Exit codes:')[0] ?? '';
  const names = [...listed.matchAll(/^ {2}(?<name>[a-z-]+)/gm)].map(({ groups }) => groups?.['name'] ?? '');
  expect(names.length).toBeGreaterThan(15);
  expect(new Set([...COMMANDS.map(([name]) => name), ...OTHER_COMMANDS])).toEqual(new Set(names));
});

test.skipIf(!canShow)(
  'no call changes what up, worker, serve, mcp, a call and each command open, execute or load in a workspace',
  { tags: 'slow', timeout: 600_000 },
  () => expectUnchanged(COMMANDS),
);

async function expectUnchanged(commands: readonly (readonly string[])[]): Promise<void> {
  const folder = project();
  const up = traced(folder, ['up', '--workers', '1', '--port', '0', '--json', '--tools', 'tools.ts']);
  const { url } = JSON.parse(await firstLine(up)) as { url: string };
  const worker = traced(folder, ['worker', '--json', '--tools', 'tools.ts']);
  const serve = traced(folder, ['serve', '--port', '0', '--json']);
  await Promise.all([firstLine(worker), firstLine(serve)]);
  const ended: Traced[] = [];
  for (let at = 0; at < commands.length; at += AT_ONCE) {
    const some = commands.slice(at, at + AT_ONCE).map((args) => traced(folder, args));
    for (const { child } of some) {
      child.stdin?.end();
      child.stdout?.resume();
    }
    const exits = await Promise.all(some.map(({ child }) => once(child, 'exit')));
    expect(exits.map(([code]) => code)).toEqual(some.map(() => 0));
    ended.push(...some);
  }

  const paths = [...new Set([up, worker, serve, ...ended].flatMap(({ trace }) => lookedUp(trace, folder)))];
  for (const path of ['tools.ts', 'lib/greeting.ts', 'pawl.config.mjs', 'settings.mjs', 'pawl.config.ts', 'later.ts'])
    expect(paths).toContain(join(folder, path));
  const before = stateOf(paths);

  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    return (await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })).json();
  };
  const { sessionKey: session } = (await post('/v1/sessions', {})) as { sessionKey: string };
  const call = async (tool: string, params: object) =>
    (await post('/v1/calls?wait=60000', { tool, params, session })) as { status: string; output?: unknown };
  for (const path of paths) {
    const patch = `*** Begin Patch\n*** Add File: ${path}\n+evil\n*** End Patch`;
    const removal = `*** Begin Patch\n*** Delete File: ${path}\n*** End Patch`;
    const tries = [
      call('write', { path, content: 'evil' }),
      call('write', { path: `${path}/inside`, content: 'evil' }),
      call('apply_patch', { patch }),
      call('apply_patch', { patch: removal }),
    ];
    for (const { status } of await Promise.all(tries)) expect(status, path).not.toBe('success');
  }
  expect(stateOf(paths)).toEqual(before);
  for (const path of paths) {
    const { status } = await call('shell', { command: ['sh', '-c', attempts(path.slice(folder.length + 1))] });
    expect(status, path).toBe('success');
    expect(stateOf(paths), path).toEqual(before);
  }
  // And all else can be changed.
  expect((await call('write', { path: 'notes.txt', content: 'changed' })).status).toBe('success');
  expect((await call('shell', { command: ['sh', '-c', 'echo more >> notes.txt && touch lib/new.txt'] })).status).toBe(
    'success',
  );
  expect(readFileSync(join(folder, 'notes.txt'), 'utf8')).toBe('changedmore\n');
  expect(readdirSync(join(folder, 'lib'))).toContain('new.txt');
}
