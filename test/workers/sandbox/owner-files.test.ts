/** Calls cannot change the files that the workspace's owner runs later. */
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';
import { OWNER_FILES, readOnlyPathsOf } from '../../../src/shared/policy/read-only-paths.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { pathsNamedIn } from '../../../src/workers/workspace/named-files.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';
import { expectUnchangeable, files, git, hasSandbox, run, stateOf } from './boundary-checks.ts';

const confined = test.skipIf(!hasSandbox);

test.each([';', ';"', ';a/', 'exec ', '; '])('a hook that a call wrote holds up no other call: %j', async (part) => {
  const root = temporaryFolder();
  files(root, { '.husky/commit-msg': part.repeat(65_536 / part.length) });
  expect(await cpuMsOf(() => pathsNamedIn([root], readOnlyPathsOf(undefined)))).toBeLessThan(1_000);
});

describe('what the owner of a workspace runs later', () => {
  confined('is left as it is in a repository, its worktrees and its submodules', async () => {
    const other = temporaryFolder();
    git(other, 'init', '-q');
    git(other, 'commit', '-q', '--allow-empty', '-m', 'first');
    const root = temporaryFolder();
    git(root, 'init', '-q');
    git(root, 'commit', '-q', '--allow-empty', '-m', 'first');
    git(root, 'worktree', 'add', '-q', 'tree');
    git(root, 'submodule', '--quiet', 'add', other, 'sub');
    mkdirSync(join(root, 'nested'));
    git(join(root, 'nested'), 'init', '-q');
    files(root, { '.vscode/launch.json': '{}', '.envrc': 'mine', 'packages/app/.npmrc': 'mine' });
    await expectUnchangeable(root, [
      '.git/hooks/pre-commit',
      '.git/config',
      '.git/modules/sub/hooks/post-checkout',
      '.git/modules/sub/config',
      '.git/worktrees/tree/commondir',
      'tree/.git',
      'sub/.git',
      'nested/.git/hooks/pre-push',
      'nested/.git/config',
      '.vscode/tasks.json',
      '.vscode/launch.json',
      '.husky/pre-commit',
      '.envrc',
      '.npmrc',
      'packages/app/.npmrc',
    ]);
    const commit = 'git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second && git status --short';
    expect(await run(root, `touch a && git add a && ${commit}`)).toMatchObject({ exitCode: 0 });
    expect(String(git(root, 'log', '--oneline')).split('\n')).toHaveLength(3);
    expect(await run(root, 'echo elsewhere > .git/commondir')).toMatchObject({ exitCode: 0 });
    expect(readdirSync(join(root, '.git'))).not.toContain('commondir');
  });

  const paths = OWNER_FILES.flatMap((each) => each.paths).filter((path) => !path.includes('*'));
  const readInSandbox = OWNER_FILES.flatMap(({ paths, isReadInSandbox }) => (isReadInSandbox ? paths : []));
  const isVisible = (path: string) => /^(?:[^.]|\.(?:agents|clinerules|config|github|vim)\/)/.test(path);
  const inEveryList = [...new Set([...paths.filter(isVisible), ...readInSandbox])];

  confined('cannot be begun where there is none', async () => {
    const root = temporaryFolder();
    const hidden = paths.filter((path) => !inEveryList.includes(path));
    await expectUnchangeable(root, ['.git', ...hidden, '.devcontainer/devcontainer.json']);
    expect(readdirSync(root).filter((name) => name.startsWith('.') && !name.endsWith('.tmp'))).toEqual([]);
  });

  confined('is left as it is where it is there', async () => {
    const root = temporaryFolder();
    files(root, {
      'lefthook.yml': 'mine',
      'mise.toml': 'mine',
      'rust-toolchain.toml': 'mine',
      '.pre-commit-config.yaml': 'mine',
      '.claude/settings.json': '{}',
      '.cargo/config.toml': 'mine',
      'app/.devcontainer/devcontainer.json': '{}',
      'app/.tool-versions': 'mine',
    });
    await expectUnchangeable(root, [
      'lefthook.yml',
      'mise.toml',
      'rust-toolchain.toml',
      '.pre-commit-config.yaml',
      '.claude/settings.json',
      '.cargo/config.toml',
      '.cargo/config',
      'app/.devcontainer/devcontainer.json',
      'app/.tool-versions',
    ]);
  });

  confined('is left as it is where the settings of git, Yarn or direnv name it', async () => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    files(root, {
      '.git/config': `[core]\n\thooksPath = scripts/hooks ; a comment\n[include]\n\tpath = ../.gitconfig\n[alias]\n\tlint = "!tools/lint.sh --all"
[includeIf "gitdir:x"] path = ../missing.gitconfig\n[branch "main"]\n\tremote = origin\n[include]\n\tpath = ~/${relative(homedir(), root)}/home.gitconfig\n`,
      '.gitconfig': '[include]\npath = deep.gitconfig\n',
      'deep.gitconfig': '[filter "x"]\nclean = sh tools/clean.sh\n',
      'scripts/hooks/pre-commit': 'mine',
      'tools/lint.sh': 'mine',
      'tools/clean.sh': 'mine',
      '.yarnrc.yml': 'yarnPath: .yarn/releases/yarn-4.cjs\nplugins:\n  - path: .yarn/plugins/a.cjs\n',
      '.yarn/releases/yarn-4.cjs': 'mine',
      '.yarn/plugins/a.cjs': 'mine',
      '.envrc':
        'source_env ..\nsource_env src\nsource_env_if_exists .envrc.local\nsource "config/env.sh" # a comment\n[ -f x ] && . ./more.sh; export A=notes.txt\ndotenv\ndotenv_if_exists .env.local\nuse flake ./nix#dev --impure; use nix\nuse devenv\neval "$(devbox generate direnv --print-envrc)"\n',
      '.git/hooks/pre-commit':
        '#!/bin/sh\n# see docs/hooks.md\nset -e\nexec ./scripts/check.sh "$@"\nprettier --check src/a.ts\n',
      '.git/hooks/pre-push.sample': './scripts/sample.sh\n',
      '.husky/commit-msg': 'node tools/message.mjs $1 && node_modules/.bin/lint src/a.ts\n',
      '.pre-commit-config.yaml':
        'repos:\n- repo: local\n  hooks:\n  - entry: python3 ci/lint.py\n    files: src/a.ts\n',
      'scripts/check.sh': 'mine',
      'scripts/sample.sh': '',
      'tools/message.mjs': 'mine',
      'ci/lint.py': 'mine',
      'node_modules/.bin/lint': '',
      'docs/hooks.md': '',
      'my.code-workspace': '{}',
      'config/env.sh': 'mine',
      'src/a.ts': '',
      'nested/.git/config': '[core]\nhooksPath = hooks-of-mine\n',
      'nested/hooks-of-mine/pre-push': 'mine',
      origin: 'a file that is no program',
    });
    await expectUnchangeable(root, [
      '.gitconfig',
      'deep.gitconfig',
      'scripts/hooks/new-hook',
      'scripts/hooks/pre-commit',
      'tools/lint.sh',
      'tools/clean.sh',
      '.yarn/releases/yarn-4.cjs',
      '.yarn/plugins/a.cjs',
      'nested/hooks-of-mine/pre-push',
      'missing.gitconfig',
      'config/env.sh',
      '.envrc.local',
      'more.sh',
      '.env',
      '.env.local',
      'nix/flake.nix',
      'shell.nix',
      'devenv.nix',
      'devbox.json',
      'scripts/check.sh',
      'tools/message.mjs',
      'ci/lint.py',
      'my.code-workspace',
      'home.gitconfig',
    ]);
    const ctx = testContext({ workspaceRoot: root });
    for (const path of [
      'notes.txt',
      'scripts/other.sh',
      'tools/new.sh',
      'nested/new.ts',
      '.yarn/install-state.gz',
      'src/new.ts',
      'src/a.ts',
      'docs/hooks.md',
      'scripts/sample.sh',
      'node_modules/.bin/lint',
    ])
      await expect(write.run(write.parse({ path, content: 'fine' }), ctx), path).resolves.toBeDefined();
    expect(
      await run(root, 'echo fine > scripts/more.sh && echo fine > a.txt && git status --short > /dev/null'),
    ).toMatchObject({
      exitCode: 0,
    });
  });

  confined('is left as it is where a link leads to it, in its place or among hooks', async () => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    files(root, {
      'scripts/commit.sh': 'mine',
      'env/dev': 'mine',
      'editor/tasks.json': '{}',
      'a/b': '',
      '.husky/x': '',
      '.claude/x': '',
    });
    const links = {
      '.git/hooks/pre-commit': '../../scripts/commit.sh',
      '.git/hooks/pre-push': '../../scripts/missing.sh',
      '.husky/pre-push': '../scripts/push.sh',
      '.envrc': 'env/dev',
      '.vscode': 'editor',
      '.mcp.json': '.mcp.json',
      'a/.npmrc': '../missing',
      '.claude/CLAUDE.md': '../AGENTS.md',
    };
    for (const [path, target] of Object.entries(links)) symlinkSync(target, join(root, path));
    await expectUnchangeable(root, [
      'scripts/commit.sh',
      'scripts/missing.sh',
      'scripts/push.sh',
      'env/dev',
      'editor/tasks.json',
      'editor/settings.json',
    ]);
    await testContext({ workspaceRoot: root }).workspace.write('AGENTS.md', 'free');
    // No mount protects a link itself.
    await run(root, 'rm -f .envrc .vscode; mkdir .vscode; echo evil > .envrc; echo evil > missing; echo fine > fine');
    for (const path of ['.envrc', '.vscode', 'missing']) expect(existsSync(join(root, path)), path).toBe(false);
    expect(existsSync(join(root, 'fine'))).toBe(true);
  });

  const makeAll = (names: readonly string[]) =>
    names.map((name) => `mkdir -p $(dirname '${name}') && echo evil > '${name}'`).join('; ');

  confined('is renamed when a program makes it under a name that everybody sees', async () => {
    const root = temporaryFolder();
    const { stdout, stderr, exitCode } = await run(root, `ls; ${makeAll(inEveryList)}`);
    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 0 });
    expect(stderr).toContain('Pawl renamed');
    const folders = [
      '.agents',
      '.clinerules',
      '.config',
      '.github',
      '.vim',
      'mise',
      'tools',
      'bin',
      '_darcs',
      '_darcs/prefs',
    ];
    const names = readdirSync(root, { recursive: true }).map((name) => String(name).replace(/\.aside-.*/, ''));
    const ctx = testContext({ workspaceRoot: root });
    expect(names.toSorted()).toEqual([...inEveryList, ...folders].toSorted());
    for (const name of ['.config/other.toml', '.github/workflows/ci.yml', 'mise/tasks/build'])
      await ctx.workspace.write(name, 'free');
    for (const name of inEveryList) expect(existsSync(join(root, name)), name).toBe(false);
    for (const name of inEveryList)
      await expect(ctx.workspace.write(name, 'evil'), name).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  confined('is not made in folders below either: file tools refuse it, and what programs make is renamed', async () => {
    const root = temporaryFolder();
    files(root, { 'packages/a/index.ts': '', 'packages/a/.npmrc': 'mine', 'packages/b/.vscode/tasks.json': 'mine' });
    const before = stateOf(root);
    const notGit = paths.filter((path) => !path.startsWith('.git/'));
    const ctx = testContext({ workspaceRoot: root });
    for (const name of notGit)
      for (const folder of ['packages/b', 'new'])
        await expect(ctx.workspace.write(`${folder}/${name}/x`, 'evil'), name).rejects.toMatchObject({
          code: 'PERMISSION_DENIED',
        });
    const made = notGit.filter((name) => name !== '.npmrc').map((name) => `packages/a/${name}`);
    const further = [
      'deep/er/.envrc',
      'deep/.vscode/inner/.envrc',
      'deep/.VSCode/tasks.json',
      // What it holds looks like a mark of Pawl's own.
      'marked/.vscode/.pawl-host\\ 1\\ ab',
      'marked/.vscode/tasks.json',
    ];
    const links = 'mkdir links && ln -s ../deep links/.husky && ln -s ../deep/none links/.envrc';
    const { stderr } = await run(root, `${makeAll([...made, ...further])}; ${links}`);
    expect(stderr).toMatch(/"packages\/a\/[^"]+" is now "packages\/a\/[^"]+\.aside-/);
    expect(stderr).toMatch(/and \d+ more/);
    const left = readdirSync(root, { recursive: true }).map((name) => `/${name}/`.toLowerCase());
    for (const name of notGit) {
      const found = left.filter((path) => path.includes(`/${name.toLowerCase()}/`));
      expect(
        found.filter((path) => !/^\/packages\/(a\/\.npmrc|b\/\.vscode)\//.test(path)),
        name,
      ).toEqual([]);
    }
    expect(stateOf(root)).toMatchObject(before);
  });

  confined('is left as it is in a repository without a folder of its own', async () => {
    const root = temporaryFolder();
    const bare = [
      'printf "[core]\\nfsmonitor=evil" > config',
      'mkdir -p objects refs',
      'echo ref: refs/heads/x > HEAD',
    ];
    await run(root, bare.join('; '));
    expect(readdirSync(root).map((name) => name.replace(/\.aside-.*/, ''))).toEqual([
      'HEAD',
      'config',
      'objects',
      'refs',
    ]);
    expect(() => git(root, 'rev-parse')).toThrow();
    const ctx = testContext({ workspaceRoot: root });
    const denied = { code: 'PERMISSION_DENIED' };
    for (const path of ['HEAD', 'deep/folder/HEAD'])
      await expect(ctx.workspace.write(path, 'ref: refs/heads/x'), path).rejects.toMatchObject(denied);
    git(root, 'init', '-q', '--bare', 'mine.git');
    await expectUnchangeable(root, ['mine.git/config', 'mine.git/hooks/pre-receive']);
    for (const path of ['config', 'head/hooks/config', 'src/head/refs']) await ctx.workspace.write(path, 'free');
  });

  confined('is found beside any number of other folders', async () => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    const names = [
      '.envrc',
      '.husky/pre-push',
      '.git/modules/sub/hooks/x',
      'z/z/.git/hooks/x',
      'a/b/c/d/e/f/g/h/i/.envrc',
    ];
    files(root, Object.fromEntries(names.map((name) => [name, 'mine'])));
    await run(root, '(cd .git/modules && mkdir $(seq 1 2500)); mkdir x && cd x && mkdir $(seq 1 2500)');
    expect(readdirSync(join(root, 'x'))).toHaveLength(2500);
    await run(root, names.map((name) => `echo evil > ${name}`).join('\n'));
    for (const name of names) expect(readFileSync(join(root, name), 'utf8'), name).toBe('mine');
  });

  confined(
    'is renamed in the folders that were there, however many new ones a program makes',
    { timeout: 120_000, tags: ['slow'] },
    async () => {
      const root = temporaryFolder();
      files(root, { 'packages/a/index.ts': '', '.git/modules/sub/config': 'mine' });
      const modules =
        'cd .git/modules && (mkdir x && cd x && seq 1 2100 | xargs mkdir); mkdir sub/hooks && echo evil > sub/hooks/post-checkout';
      await run(root, modules);
      expect(readdirSync(join(root, '.git/modules/sub'))).not.toContain('hooks');
      const { stderr } = await run(
        root,
        '(mkdir x && cd x && seq 1 10100 | xargs mkdir); echo evil > packages/a/.envrc',
      );
      expect(readdirSync(join(root, 'packages/a')).map((name) => name.replace(/\.aside-.*/, '.aside'))).toEqual([
        '.envrc.aside',
        'index.ts',
      ]);
      expect(stderr).toContain('could not search all folders');
    },
  );

  confined('is not renamed where no search reached it before', { timeout: 120_000, tags: ['slow'] }, async () => {
    const root = temporaryFolder();
    files(root, { 'y/y/y/.envrc': 'mine' });
    for (let number = 0; number < 10_100; number += 1) mkdirSync(join(root, 'x', String(number)), { recursive: true });
    expect(await run(root, 'rm -rf x; mkdir y/y/z; echo evil > y/y/z/.envrc')).toMatchObject({ exitCode: 0 });
    expect(readdirSync(join(root, 'y/y/y'))).toEqual(['.envrc']);
    expect(readdirSync(join(root, 'y/y/z'))).not.toContain('.envrc');
  });

  confined.each([
    ['.hg', 'hgrc'],
    ['.cargo', 'config.toml'],
    ['.git', 'hooks/pre-commit'],
    ['.git/worktrees/one', 'commondir'],
    ['.jj', 'repo/config.toml'],
    ['tools', 'bazel'],
    ['.github', 'hooks/a.json'],
  ])('is left as it is where the workspace is the folder %s', async (folder, path) => {
    const root = join(temporaryFolder(), folder);
    mkdirSync(root, { recursive: true });
    await expectUnchangeable(root, [path]);
    await run(root, `mkdir -p ${dirname(path)}; echo evil > ${path}; echo fine > other`);
    expect(existsSync(join(root, path))).toBe(false);
    expect(existsSync(join(root, 'other'))).toBe(true);
  });

  confined('stays where it is an empty folder', async () => {
    const root = temporaryFolder();
    const folders = ['.vscode', '.cargo', '.husky', 'pawl.config.ts'].map((name) => join(root, name));
    for (const folder of folders) {
      mkdirSync(folder);
      utimesSync(folder, new Date(0), new Date(0));
    }
    await run(root, 'for f in .vscode .cargo/config .husky pawl.config.ts; do echo evil > $f/x; echo evil > $f; done');
    for (const folder of folders) expect(readdirSync(folder), folder).toEqual([]);
  });
});
