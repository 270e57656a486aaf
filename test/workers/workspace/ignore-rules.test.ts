/** Ignore files exclude what Git excludes by them, with and without ripgrep. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type CandidateFinder, ripgrep } from '../../../src/workers/workspace/ripgrep.ts';
import { searchWithin } from '../../../src/workers/workspace/workspace-search.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const walkAlone: CandidateFinder = async () => undefined;
const FOLDERS = 60;
const FILES = [
  ...['a.txt', 'b.log', 'build/a', 'a/b/c', 'foo/a.log', '[x]', 'a*b', 'a?', '{a,b}', '!bang', '#hash'],
  ...['x y', 'end ', 'tab\t', 'é', 'é.md', 'back\\slash', 'a]', '^a', 'debug0', '.hidden/a'],
];
const piece = fc.constantFrom(
  ...['a', 'b', 'x', 'é', '.log', '.txt', 'build', 'foo', 'bang', 'hash', 'debug', ' ', '\t', '*', '*', '**', '***'],
  ...['/', '/', '**/', '/**', '?', '\\', '\\\\', '\\*', '\\[', '{a,b}', '{', '!', '#', '^', ']', '-', '[', '[x]'],
  ...[
    '[!a]',
    '[^a]',
    '[]a]',
    '[!]a]',
    '[!]',
    '[]',
    '[a-c]',
    '[c-a]',
    '[^c-a]',
    '[a\\]b]',
    '[[:alpha:]]',
    '[[:digit:]]',
    '[[:odd:]]',
  ],
  ...['[\\a-c]', '[a-\\c]', '[--0]', '[a-]', '[.-0]', '[--/]', '[/-a]', '[[:punct:]]'],
);
const rule = fc
  .tuple(fc.constantFrom('', '', '', '!', '/'), fc.array(piece, { minLength: 1, maxLength: 4 }))
  .map(([start, pieces]) => start + pieces.join(''))
  // Against its own documentation, Git takes the two stars of "a**/b" for folders.
  .filter((each) => !/[^!/*]\*\*+\//.test(each));
const ignoreFile = fc
  .tuple(
    fc.constantFrom('', '', '\ufeff'),
    fc.array(rule, { minLength: 1, maxLength: 4 }),
    fc.constantFrom('\n', '\r\n'),
  )
  .chain(([mark, rules, end]) => fc.constantFrom('', end).map((last) => mark + rules.join(end) + last));

test('searches exclude what Git excludes, whatever the rules are', async () => {
  const root = temporaryFolder();
  const seed = Date.now();
  const contents = fc.sample(ignoreFile, { numRuns: FOLDERS, seed });
  const write = (path: string, content: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  };
  for (const [index, content] of contents.entries()) {
    write(`${index}/.gitignore`, content);
    for (const file of FILES) write(`${index}/${file}`, '');
  }
  execFileSync('git', ['init', '--quiet', root]);
  write('.git/info/exclude', 'debug*\n');
  const options = ['-C', root, '-c', 'core.excludesFile=/dev/null'];
  const listed = execFileSync('git', [...options, 'ls-files', '-z', '--others', '--exclude-standard'], {
    maxBuffer: 2 ** 24,
  });
  const expected = new Set(listed.toString().split('\0').filter(Boolean));
  expect(expected.size).toBeGreaterThan(FOLDERS);
  for (const finder of [walkAlone, ripgrep]) {
    const search = { glob: '{**/*,**/.*,**/.*/**}', limit: 100_000 };
    const { files } = await searchWithin(root, search, new AbortController().signal, finder);
    const found = new Set(files.map(({ path }) => path));
    const differs = [...found, ...expected].find((path) => !found.has(path) || !expected.has(path));
    const rules = contents[Number(differs?.split('/')[0])];
    expect({ differs, rules }, `seed ${seed}`).toEqual({});
  }
});

test('searches exclude what Git excludes where folders, and repositories in each other, have rules of their own', async () => {
  const root = temporaryFolder();
  const seed = Date.now();
  const options = ['-c', 'core.excludesFile=/dev/null'];
  const folders = ['', 'a', 'a/build', 'a/build/x', 'a/sub', 'a/sub/build', 'a/sub/build/a', 'b', 'b/.dot', 'b/x'];
  const rules = fc.constantFrom(
    ...['*.log', '!a.log', 'build', 'build/', '!build/', '/a.txt', 'a/**/x', '!b.txt', '**/build/**', '*', '!*/'],
    ...['sub/build', '/sub/*', '.dot', '!.dot', '*.txt', '!**/a.txt', 'x/*', '!x/a.log', '/*/x', 'b/x/'],
  );
  const contents = fc.array(fc.array(rules, { minLength: 1, maxLength: 3 }), { minLength: 10, maxLength: 10 });
  for (const [index, files] of fc.sample(contents, { numRuns: 2, seed }).entries()) {
    const tree = join(root, String(index));
    for (const [number, folder] of folders.entries()) {
      mkdirSync(join(tree, folder), { recursive: true });
      for (const name of ['a.log', 'a.txt', 'b.txt']) writeFileSync(join(tree, folder, name), 'needle');
      const own = files[number] ?? [];
      if (number === 0 || own.length > 1) writeFileSync(join(tree, folder, '.gitignore'), own.join('\n'));
    }
    const repositories = ['', 'a/sub', 'b/x'];
    for (const each of repositories) execFileSync('git', ['init', '--quiet', join(tree, each)]);
    writeFileSync(join(tree, '.git/info/exclude'), 'b.txt\n');
    const listed = repositories.map((each) =>
      execFileSync('git', ['-C', join(tree, each), ...options, 'ls-files', '-z', '--others', '--exclude-standard'])
        .toString()
        .split('\0')
        .flatMap((file) => (file === '' ? [] : [join(each, file)])),
    );
    const isThere = (each: string) => each === '' || listed.some((files) => files.includes(`${each}/`));
    const expected = listed.flatMap((files, number) =>
      isThere(repositories[number] ?? '') ? files.filter((file) => !file.endsWith('/')) : [],
    );
    const isIgnored = (folder: string) =>
      spawnSync('git', ['-C', tree, ...options, 'check-ignore', '--quiet', '--no-index', folder]).status === 0;
    for (const path of [
      '.',
      ...folders.slice(1).filter((folder) => !/^(a\/sub|b\/x)/.test(folder) && !isIgnored(folder)),
    ])
      for (const finder of [walkAlone, ripgrep]) {
        const search = { path, pattern: 'needle', glob: '{**/*,**/.*,**/.*/**}', limit: 100_000 };
        const { files } = await searchWithin(tree, search, new AbortController().signal, finder);
        const below = expected.filter(
          (file) => !file.endsWith('.gitignore') && (path === '.' || file.startsWith(`${path}/`)),
        );
        expect(files.map((file) => file.path).sort(), `seed ${seed}, tree ${index} in ${path}`).toEqual(below.sort());
      }
  }
});

test('a workspace within a repository obeys the rules above it, unless they exclude the workspace itself', async () => {
  const repository = temporaryFolder();
  const options = ['-C', repository, '-c', 'core.excludesFile=/dev/null'];
  execFileSync('git', ['init', '--quiet', repository]);
  const write = (path: string, content: string) => {
    mkdirSync(dirname(join(repository, path)), { recursive: true });
    writeFileSync(join(repository, path), content);
  };
  write('.gitignore', 'node_modules\n*.log\n/packages/app/out\n/out\nprivate/\n');
  write('.git/info/exclude', 'secret.txt\n');
  write('packages/.gitignore', '!kept.log\napp/draft.txt\n/draft.txt\n');
  write('packages/app/.gitignore', '!deep/b.log\n');
  const names = [
    'a.txt',
    'a.log',
    'kept.log',
    'draft.txt',
    'secret.txt',
    'out/a.txt',
    'node_modules/x/a.txt',
    'deep/b.log',
  ];
  for (const name of [...names, 'deep/draft.txt', 'deep/out/a.txt']) write(`packages/app/${name}`, 'needle');
  write('private/notes/a.txt', 'needle');
  write('own/.git/HEAD', 'ref: refs/heads/main');
  write('own/a.log', 'needle');
  const found = async (root: string, finder: typeof ripgrep) => {
    const { files } = await searchWithin(
      join(repository, root),
      { pattern: 'needle' },
      new AbortController().signal,
      finder,
    );
    return files.map(({ path }) => path);
  };
  const listed = execFileSync('git', [...options, 'ls-files', '-z', '--others', '--exclude-standard', 'packages/app']);
  const expected = listed
    .toString()
    .split('\0')
    .filter((path) => path !== '' && !path.endsWith('.gitignore'))
    .map((path) => path.slice('packages/app/'.length));
  expect(expected).toHaveLength(5);
  for (const finder of [walkAlone, ripgrep]) {
    expect((await found('packages/app', finder)).sort()).toEqual(expected.sort());
    expect(await found('private/notes', finder)).toEqual(['a.txt']);
    expect(await found('own', finder)).toEqual(['a.log']);
  }
});

test('a worktree and a submodule obey the rules that their repository keeps elsewhere', async () => {
  const root = temporaryFolder();
  const write = (path: string, content: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  };
  const settings = ['user.name=ada', 'user.email=ada@example.com', 'core.excludesFile=/dev/null'];
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', root, ...settings.flatMap((each) => ['-c', each]), ...args]).toString();
  git('init', '--quiet');
  git('commit', '--quiet', '--allow-empty', '--message=first');
  git('worktree', 'add', '--quiet', '--detach', 'trees/one');
  mkdirSync(join(root, '.git/modules'));
  git('init', '--quiet', `--separate-git-dir=${join(root, '.git/modules/sub')}`, 'sub');
  write('sub/.git', 'gitdir: ../.git/modules/sub\n');
  write('.git/info/exclude', 'notes.txt\n');
  write('.git/modules/sub/info/exclude', 'draft.txt\n');
  for (const repository of ['trees/one', 'sub']) {
    for (const name of ['a.txt', 'notes.txt', 'deep/draft.txt']) write(`${repository}/${name}`, 'needle');
    const listed = git('-C', repository, 'ls-files', '-z', '--others', '--exclude-standard')
      .split('\0')
      .filter(Boolean);
    expect(listed).toHaveLength(2);
    for (const finder of [walkAlone, ripgrep]) {
      const search = { pattern: 'needle' };
      const { files } = await searchWithin(join(root, repository), search, new AbortController().signal, finder);
      expect(files.map(({ path }) => path)).toEqual(listed);
    }
  }
});
