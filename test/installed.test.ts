/** @module-tag slow */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, globSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryFolder } from './helpers/context.ts';
import { createWorld } from './helpers/world.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PACKED = ['package.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts', 'src', 'bin', 'schemas'];

/** An empty project in which the package is installed as npm packs it. Packing changes the checkout's package.json, so a copy is packed. */
function install(): string {
  const copy = temporaryFolder();
  for (const path of [...PACKED, 'dashboards/page', 'examples/demo'])
    cpSync(join(ROOT, path), join(copy, path), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  const project = temporaryFolder();
  writeFileSync(join(project, 'package.json'), '{ "type": "module" }');
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  execFileSync(process.execPath, [join(copy, 'scripts/pack.mjs'), 'prepare']);
  execFileSync('npm', ['pack', ...quiet, '--pack-destination', project], { cwd: copy });
  const [archive = ''] = globSync('*.tgz', { cwd: project });
  execFileSync('npm', ['install', ...quiet, '--omit=dev', `./${archive}`], { cwd: project });
  return project;
}

test('the README’s program compiles and runs where the package alone is installed', { timeout: 300_000 }, async () => {
  const project = install();
  const [, program = ''] = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(ROOT, 'README.md'), 'utf8')) ?? [];
  for (const name of ['program.ts', 'program.js']) writeFileSync(join(project, name), program);
  const run = (...args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: project, encoding: 'utf8', env });
    expect(status, stdout + stderr).toBe(0);
    return stdout;
  };
  await using world = await createWorld();
  const env = { ...process.env, REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix };
  const types = [
    '--lib',
    'es2023,esnext.disposable',
    '--types',
    'node',
    '--typeRoots',
    join(ROOT, 'node_modules/@types'),
  ];
  const compile = [join(ROOT, 'node_modules/typescript/bin/tsc'), '--ignoreConfig', '--noEmit', '--strict', ...types];
  run(...compile, '--module', 'nodenext', 'program.ts');
  run(...compile, '--module', 'esnext', '--moduleResolution', 'bundler', 'program.ts');
  expect(run('program.js')).toBe('success true\n');
  expect(run('program.ts')).toBe('success true\n');
  expect(run('node_modules/pawl/bin/pawl.mjs', 'tools', 'ls')).toContain('get_weather');
});
