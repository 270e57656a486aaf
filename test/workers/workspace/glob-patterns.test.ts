import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { glob } from '../../../src/workers/tools/glob.ts';
import { grepFiles } from '../../../src/workers/tools/grep-files.ts';
import { testContext } from '../../helpers/context.ts';

/** A workspace of these files, each with the line `needle`. */
function contextWith(paths: readonly string[]) {
  const context = testContext();
  for (const path of paths) {
    const file = join(context.workspace.root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, 'needle\n');
  }
  return context;
}

describe('a glob that names hidden files finds these and no others', () => {
  const files = [
    ...[
      '.github/workflows/ci.yml',
      '.github/workflows/.secret.yml',
      '.gitlab/ci.yml',
      '.env',
      '.env.local',
      '..two/a.yml',
      '...three',
      'src/.env',
    ],
    ...[
      'ci.yml',
      'src/.cache/v1/a.yml',
      'src/.cache/v2/a.yml',
      '.git/config.yml',
      'src/a.yml',
      '.ignored.yml',
      '.v01/a.yml',
      '.c/a.yml',
    ],
  ];
  test.each([
    ['.github/workflows/*.yml', ['.github/workflows/ci.yml']],
    ['./.github/**', ['.github/workflows/ci.yml']],
    ['**/.github/**/*.yml', ['.github/workflows/ci.yml']],
    ['{.github,.gitlab}/**/*.yml', ['.github/workflows/ci.yml', '.gitlab/ci.yml']],
    ['.git{hub,lab}/**', ['.github/workflows/ci.yml', '.gitlab/ci.yml']],
    ['.env', ['.env', 'src/.env']],
    ['.env*', ['.env', '.env.local', 'src/.env']],
    ['..two/*.yml', ['..two/a.yml']],
    ['...three', ['...three']],
    ['\\.env', ['.env', 'src/.env']],
    ['@(.env|.env.local)', ['.env', '.env.local', 'src/.env']],
    ['?(.)env', ['.env', 'src/.env']],
    ['@({src,.c}/*.yml|.e@(nv|x))', ['.c/a.yml', '.env', 'src/a.yml']],
    ['?(.github/workflows/|src/)*.yml', ['.github/workflows/ci.yml', 'ci.yml', 'src/a.yml']],
    ['src/.cache/v{1..2}/*', ['src/.cache/v1/a.yml', 'src/.cache/v2/a.yml']],
    ['.v{01..03}/*', ['.v01/a.yml']],
    ['{src,.{b..d}}/*.yml', ['.c/a.yml', 'src/a.yml']],
    ['.github/workflows/.*', ['.github/workflows/.secret.yml']],
    ['**/*.yml', ['ci.yml', 'src/a.yml']],
    ['.git/*', []],
    ['.ignored.yml', []],
  ])('%s', async (pattern, expected) => {
    const ctx = contextWith(files);
    writeFileSync(join(ctx.workspace.root, '.gitignore'), '.ignored.yml\n');
    expect((await glob.run(glob.parse({ pattern }), ctx)).output.files.sort()).toEqual(expected);
    const found = await grepFiles.run(grepFiles.parse({ pattern: 'needle', include: pattern }), ctx);
    expect(found.output.files.sort()).toEqual(expected);
  });
});

test.each([
  '{1..99999999}',
  '{1..9\\9999999}',
  '{a,b}'.repeat(30),
  '*a'.repeat(10),
  '*a{/x,*a*a*a*a}',
  '+(a|aa)+(a|aa)b',
  '{{1..900},{1..900}}',
  `${'**/a/'.repeat(12)}b`,
  '{x,**/a/{**,b}/a/**/a/{**/,}/a/*{*,}/b}',
])('a glob that would stop the worker is refused: %s', async (pattern) => {
  await expect(glob.run(glob.parse({ pattern }), contextWith(['src/a.ts']))).rejects.toMatchObject({
    code: 'INVALID_PARAMS',
  });
});

test.each([
  '{src,test}/**/*.{ts,tsx}',
  '*.{t,j}s',
  'src/**/[ab].ts',
  '**/**/**/**/**/src/**/*.ts',
  '{**/*.tsx,**/*.ts,**/*.js,**/*.jsx,**/*.css}',
  '{src/*.ts,a/*.ts,b/*.ts,c/*.ts,d/*.ts}',
  'src/{a,{1..20}}.ts',
])('a glob as people write it is taken: %s', async (pattern) => {
  const { files } = (await glob.run(glob.parse({ pattern }), contextWith(['src/a.ts']))).output;
  expect(files).toContain('src/a.ts');
});

test.each([
  ['./src/**/*.ts', 'src/a.ts'],
  ['app/[id]/*.tsx', 'app/[id]/page.tsx'],
  ['app/\\[id\\]/{page,layout}.tsx', 'app/[id]/page.tsx'],
  ['\\{a,b\\}*.md', '{a,b} c.md'],
  ['[[]id[]]*', '[id] d.md'],
  ['s\\rc\\/a.ts', 'src/a.ts'],
  ['?.ts', '😀.ts'],
  ['[!a].t[a-z]', '😀.ts'],
  ['[é😀-😎]/*', '😃/b.ts'],
  ['\\😃/**', '😃/b.ts'],
  ['?/b.*', '😃/b.ts'],
  ['{src/*.ts,*.md}', 'src/a.ts'],
  ['*, *.md', 'a, b.md'],
  ['*\\,*.md', 'a, b.md'],
  ['@(*.md|*.ts)', 'a, b.md'],
  ['@(a, b.m|c)d', 'a, b.md'],
  ['#c/*', '#c/d.ts'],
])('a glob finds what its author means: %s', async (pattern, file) => {
  const context = contextWith([
    ...['src/a.ts', 'app/[id]/page.tsx', 'app/i/page.tsx', '{a,b} c.md', '[id] d.md', 'a, b.md'],
    ...['😀.ts', '😃/b.ts', '#c/d.ts'],
  ]);
  const { output } = await glob.run(glob.parse({ pattern }), context);
  expect(output.files).toContain(file);
});

const LISTS = ['*.ts,*.tsx', '**/*.ts, src/*.{js,jsx}', '*.ts|*.tsx', '*.ts *.tsx', 'src/*.test.ts;*.js'];

const UNCLOSED = ['src/**/*.{ts,tsx', '[ab.ts', '{a,{b,c}.ts', '*.[!t', 'app/[id/*', '{[}].ts'];

test.each(['/src/*.ts', '../*.ts', 'src/../*.ts', '!*.ts', 'src/', ...LISTS, ...UNCLOSED])(
  'a glob that can match no file is refused with the reason: %s',
  async (pattern) => {
    const refused = { code: 'INVALID_PARAMS', message: expect.stringContaining('matches no file: ') };
    const context = contextWith(['src/a.ts']);
    await expect(glob.run(glob.parse({ pattern }), context)).rejects.toMatchObject(refused);
    const search = grepFiles.run(grepFiles.parse({ pattern: 'a', include: pattern }), context);
    await expect(search).rejects.toMatchObject(refused);
  },
);

test.each([
  ['*', '.env'],
  ['**/*.ts', '.hidden/a.ts'],
  ['.hidden/**', '.hidden/.b/c'],
  ['**/*{.ts,.js}', '.hidden/a.ts'],
  ['{x,.hidden}/*/c', '.hidden/.b/c'],
  ['[.]env', '.env'],
])('a wildcard fits hidden names when they are asked for: %s', async (pattern, file) => {
  const context = contextWith(['.env', '.hidden/a.ts', '.hidden/.b/c']);
  const { output } = await glob.run(glob.parse({ pattern, include_ignored: true }), context);
  expect(output.files).toContain(file);
  // The glob names these files itself.
  const named = pattern === '.hidden/**' ? ['.hidden/a.ts'] : [];
  expect((await glob.run(glob.parse({ pattern }), context)).output.files).toEqual(named);
});

test('a class without the dot excludes the names that begin with one', async () => {
  const params = glob.parse({ pattern: '[!.]*', include_ignored: true });
  expect((await glob.run(params, contextWith(['.env', 'env']))).output.files).toEqual(['env']);
});
