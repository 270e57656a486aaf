import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { liesIn } from '../../../src/shared/util/file-path.ts';
import { codeNames } from '../../../src/workers/workspace/code-files.ts';

function program(files: Readonly<Record<string, string>>): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-program-')));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

test('the imports of a program are followed, but not out of a folder that is protected as a whole', () => {
  const root = program({
    'main.ts': `import './near.ts'; import './library/index.ts';`,
    'near.ts': `await import('./far.ts'); new Worker('./worker.ts'); fork("./child.ts"); import.meta.resolve('./found.ts');`,
    'far.ts': '',
    'worker.ts': `register('./loader.ts', import.meta.url);`,
    'child.ts': '',
    'found.ts': '',
    'loader.ts': '',
    'library/index.ts': `import './inside.ts';`,
    'library/inside.ts': '',
  });
  const names = (folders: readonly string[]) =>
    codeNames([join(root, 'main.ts')], folders)
      .filter((name) => name.startsWith(root) && name.endsWith('.ts'))
      .map((name) => name.slice(root.length + 1))
      .toSorted();
  const started = ['child.ts', 'found.ts', 'loader.ts', 'worker.ts'];
  const near = ['far.ts', 'library/index.ts', 'main.ts', 'near.ts', ...started];
  expect(names([])).toEqual([...near, 'library/inside.ts'].toSorted());
  expect(names([join(root, 'library')])).toEqual(near.toSorted());
});

test.each([
  ["import { a } from '#lib/a';", 'lib/a.ts'],
  ["import { a } from '#one';", 'lib/one.node.ts', 'lib/one.ts'],
  ["import { a } from '#other';", 'packages/other/src/index.ts'],
  ["import { a } from 'app/self';", 'lib/self.ts'],
  [
    "import other from 'other';",
    'packages/other/src/index.ts',
    'packages/other/src/deep.ts',
    'packages/other/package.json',
  ],
  ["import other from 'other/extra/one';", 'packages/other/extra/one.ts'],
  [
    "const plain = require('@app/plain');",
    'packages/plain/lib/main.js',
    'packages/plain/lib/main',
    'packages/plain/lib/y.js',
  ],
  ["const plain = require('./packages/plain');", 'packages/plain/lib/main.js', 'packages/plain/lib/y.js'],
  ["const plain = require('@app/plain/lib/y');", 'packages/plain/lib/y.js', 'packages/plain/lib/y'],
  ["new Worker(new URL('jobs/worker.mjs', import.meta.url));", 'jobs/worker.mjs'],
  ["fork(join(import.meta.dirname, 'jobs/worker.mjs'));", 'jobs/worker.mjs'],
  [`fork(\`\${import.meta.dirname}/jobs/worker.mjs\`);`, 'jobs/worker.mjs'],
  ["// don't\nspawn('python3', ['jobs/run.py']);", 'jobs/run.py'],
  ["await import(/* webpackIgnore: true */ './lib/later.ts');", 'lib/later.ts'],
  ["import { later } from './lib/later.js';", 'lib/later.ts'],
  ["import 'dotenv/config';", '.env'],
  ["config({ path: 'settings/prod.env' }); import { config } from 'dotenv';", 'settings/prod.env', '.env'],
  ["process.loadEnvFile('.env.local');", '.env.local'],
  ["process.loadEnvFile('.vars');", '.vars'],
  ["loadEnvFile(new URL('config/vars', import.meta.url));", 'config/vars'],
  ["import { config } from '@dotenvx/dotenvx'; config({ path: ['.env', '.secrets'] });", '.secrets', '.env'],
  ["const addon = require('bindings')('addon');", 'build', 'prebuilds'],
  ["const addon = require('node-gyp-build')(__dirname);", 'build', 'prebuilds'],
])('%s makes what it leads to code', (line, ...expected) => {
  const root = program({
    'main.ts': line,
    'package.json': JSON.stringify({
      name: 'app',
      imports: {
        '#lib/*': './lib/*.ts',
        '#one': [{ node: './lib/one.node.ts' }, './lib/one.ts'],
        '#other': 'other',
        '#loop': '#loop',
      },
      exports: { './self': './lib/self.ts' },
    }),
    'packages/other/package.json': JSON.stringify({
      exports: { '.': { import: './src/index.ts' }, './extra/*': { default: './extra/*.ts' } },
    }),
    'packages/other/src/index.ts': "export * from './deep.ts';",
    'packages/other/src/deep.ts': '',
    'packages/plain/package.json': '{ "main": "./lib/main" }',
    'packages/plain/lib/main.js': "require('./y');",
    'packages/plain/lib/y.js': '',
    'jobs/worker.mjs': '',
    'jobs/run.py': '',
    'lib/later.ts': '',
    'node_modules/@app/none': '',
  });
  symlinkSync('../packages/other', join(root, 'node_modules/other'));
  symlinkSync('../../packages/plain', join(root, 'node_modules/@app/plain'));
  const names = codeNames([join(root, 'main.ts')]);
  expect(names).toEqual(expect.arrayContaining(expected.map((name) => join(root, name))));
});

test.each([
  "await import('./plugins/' + name);",
  `await import(\`./plugins/\${name}.ts\`);`,
  "for (const name of readdirSync(join(import.meta.dirname, 'plugins'))) await import(join(FOLDER, name));",
  "const folder = new URL('./plugins/', import.meta.url);\nfor (const name of await readdir(folder)) await import(new URL(name, folder).href);",
  "for (const file of await glob('./plugins/*.ts', { encoding: 'utf8' })) await import(pathToFileURL(file).href);",
  "readdirSync(path.resolve(__dirname, '..', 'app', 'plugins')).forEach((file) => require(file));",
  "for (const name of readdirSync('plugins')) new Worker(name);",
])('a folder from which a program loads code under computed names is code as a whole: %s', (line) => {
  const root = program({
    'app/main.ts': line,
    'app/plugins/one.ts': "import '../../lib/of-one.ts';",
    'app/plugins/deep/two.d.js': "import '../../../lib/of-two.ts';",
    'app/data/note.txt': '',
    'lib/of-one.ts': '',
    'lib/of-two.ts': '',
    'package.json': '{}',
  });
  const names = codeNames([join(root, 'app/main.ts')]);
  const isCode = (path: string) => names.some((name) => liesIn(name, join(root, path)));
  for (const file of ['app/plugins/one.ts', 'app/plugins/new.ts', 'lib/of-one.ts', 'lib/of-two.ts'])
    expect(isCode(file), file).toBe(true);
  for (const file of ['app/data/note.txt', 'app/other.ts', 'lib/other.ts', 'note.txt'])
    expect(isCode(file), file).toBe(false);
});

test('a folder of code that is a link is code by its own path, too', () => {
  const root = program({ 'app/main.ts': "await import('./plugins/' + name);", 'shared/one.ts': '' });
  symlinkSync('../shared', join(root, 'app/plugins'));
  expect(codeNames([join(root, 'app/main.ts')])).toEqual(
    expect.arrayContaining([join(root, 'app/plugins'), join(root, 'shared')]),
  );
});

test('under a loader that prefers TypeScript, the names that it would prefer are code', () => {
  const root = program({ 'main.ts': "import './lib/util.js';", 'lib/util.js': '' });
  const names = (prefersTypeScript: boolean) => codeNames([join(root, 'main.ts')], [], prefersTypeScript);
  expect(names(false)).not.toContain(join(root, 'lib/util.ts'));
  expect(names(true)).toEqual(expect.arrayContaining([join(root, 'lib/util.ts'), join(root, 'lib/util.tsx')]));
});

test.each([
  "fetch(new URL('/', 'https://example.org'));",
  "const ROOT = fileURLToPath(new URL('./', import.meta.url));",
  "const ROOT = new URL('../', import.meta.url);",
  "const { name } = require('..');",
  "const DATA = new URL('./data/', import.meta.url);",
  "fetch(new URL(`/data`, base), new URL('/tmp', base));",
  "const DATA = join(import.meta.dirname, 'data'); await import('./other.ts'); new Worker(new URL('./job.mjs', import.meta.url));",
  "export const optional = (name) => import(name); const DATA = join(import.meta.dirname, 'data');",
  "await import(name); const ROOT = join(import.meta.dirname, '..'); readdirSync(ROOT); const word = 'data'; fetch(new URL('/data', base));",
])('a folder that a program names is no code as a whole, so that calls can work in it: %s', (line) => {
  const root = program({ 'app/main.ts': line, 'app/data/note.txt': '', 'index.js': '', 'package.json': '{}' });
  const names = codeNames([join(root, 'app/main.ts')]);
  for (const file of ['app/data/note.txt', 'app/other.txt', 'other.txt'])
    expect(
      names.filter((name) => liesIn(name, join(root, file))),
      file,
    ).toEqual([]);
});
