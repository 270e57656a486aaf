/**
 * Calls cannot change the code that Pawl runs, nor the files that the workspace's owner runs later, by any tool or
 * name.
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { protectToolCode } from '../../../src/cli/processes/protect-tool-code.ts';
import { OWNER_FILES, readOnlyPathsOf } from '../../../src/shared/policy/read-only-paths.ts';
import { detectIsolation, openProcesses, prepareProgram } from '../../../src/workers/context/processes.ts';
import { startTree } from '../../../src/workers/sandbox/process-tree.ts';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { edit } from '../../../src/workers/tools/edit.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { codeNames } from '../../../src/workers/workspace/code-files.ts';
import {
  protectCode,
  protectFile,
  protectFolder,
  protectOwnerFiles,
} from '../../../src/workers/workspace/protected-paths.ts';
import { attempts } from '../../helpers/attempts.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

const confined = test.skipIf(!(await detectIsolation()).includes('bubblewrap'));

function files(root: string, contents: Readonly<Record<string, string>>): void {
  for (const [path, content] of Object.entries(contents)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
}

/** Every name below a folder with its content, as a later program could see them. */
function stateOf(folder: string): Readonly<Record<string, string>> {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
  return Object.fromEntries(
    entries.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      if (entry.isSymbolicLink()) return [path, `-> ${readlinkSync(path)}`];
      return [path, entry.isFile() ? `${lstatSync(path).mode.toString(8)} ${readFileSync(path, 'utf8')}` : 'folder'];
    }),
  );
}

async function run(root: string, script: string) {
  const processes = openProcesses({
    root,
    callId: 'call',
    signal: new AbortController().signal,
    env: process.env,
    sandbox: 'bubblewrap',
  });
  return processes.run({ argv: ['sh', '-c', script], timeoutMs: 20_000 });
}

async function expectUnchangeable(root: string, paths: readonly string[]): Promise<void> {
  const about = (state: Readonly<Record<string, string>>) =>
    Object.fromEntries(
      Object.entries(state).filter(([name]) =>
        paths.some((path) => name === join(root, path) || name.startsWith(`${join(root, path)}/`)),
      ),
    );
  const before = about(stateOf(root));
  const ctx = testContext({ workspaceRoot: root });
  const denied = { code: 'PERMISSION_DENIED' };
  for (const path of paths) {
    const below = `${path}/below.txt`;
    for (const each of [path, below, join(root, path), `.//${path}`]) {
      await expect(write.run(write.parse({ path: each, content: 'evil' }), ctx), each).rejects.toMatchObject(denied);
      const patch = `*** Begin Patch\n*** Add File: ${each}\n+evil\n*** End Patch`;
      await expect(async () => applyPatch.run(applyPatch.parse({ patch }), ctx), each).rejects.toThrow();
    }
    const isFile = before[join(root, path)]?.startsWith('100') === true;
    if (isFile) {
      const old_string = readFileSync(join(root, path), 'utf8');
      const change = edit.parse({ path, old_string, new_string: 'evil' });
      await expect(edit.run(change, ctx), path).rejects.toMatchObject(denied);
      const remove = `*** Begin Patch\n*** Delete File: ${path}\n*** End Patch`;
      await expect(applyPatch.run(applyPatch.parse({ patch: remove }), ctx), path).rejects.toMatchObject(denied);
    }
    expect(about(stateOf(root)), path).toEqual(before);
  }
  await run(root, paths.map(attempts).join('\n'));
  expect(about(stateOf(root))).toEqual(before);
}

describe('what Pawl runs and loads', () => {
  confined('is left as it is, with all that it imports and all names that decide what an import finds', async () => {
    const root = temporaryFolder();
    files(root, {
      'tools.ts':
        "import { one } from './lib/one.ts';\nimport 'pkg';\nexport const later = () => import('./plugin.ts');",
      'lib/one.ts': "const two = require('./two');\nexport const one = 1;",
      'lib/two/index.js': 'require(`../data.json`);',
      'lib/data.json': '{}',
      'plugin.ts': "export * from './deep/plugged.ts';",
      'deep/plugged.ts': 'export {};',
      'node_modules/pkg/index.js': 'export {};',
      'node_modules/.bin/tool': '#!/bin/sh',
      'package.json': '{"type":"module"}',
      'notes.txt': 'free',
    });
    for (const name of codeNames([join(root, 'tools.ts')])) protectCode(name);
    await expectUnchangeable(root, [
      'tools.ts',
      'lib/one.ts',
      'lib/two/index.js',
      'lib/data.json',
      'plugin.ts',
      'deep/plugged.ts',
      'node_modules/pkg/index.js',
      'node_modules/.bin/tool',
      'node_modules/new/index.js',
      'package.json',
      // These names do not exist, and Node would prefer them to the rest.
      'lib/two.js',
      'lib/node_modules/pkg/index.js',
      'lib/two/package.json',
      'deep/package.json',
    ]);
    await write.run(write.parse({ path: 'notes.txt', content: 'changed' }), testContext({ workspaceRoot: root }));
    expect((await run(root, 'echo x > lib/free.txt && echo y >> notes.txt && cat tools.ts')).exitCode).toBe(0);
    expect(readFileSync(join(root, 'notes.txt'), 'utf8')).toBe('changedy\n');
  });

  confined('is left as it is by other names: links of both kinds', async () => {
    const root = temporaryFolder();
    files(root, { 'tools.ts': 'mine', 'sub/keep.txt': '' });
    linkSync(join(root, 'tools.ts'), join(root, 'sub', 'hard.ts'));
    symlinkSync('../tools.ts', join(root, 'sub', 'soft.ts'));
    for (const name of codeNames([join(root, 'tools.ts')])) protectCode(name);
    const ctx = testContext({ workspaceRoot: root });
    for (const path of ['sub/hard.ts', 'sub/soft.ts'])
      await expect(write.run(write.parse({ path, content: 'evil' }), ctx), path).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
      });
    await run(
      root,
      'echo evil > sub/hard.ts; echo evil > sub/soft.ts; dd if=/dev/zero of=sub/hard.ts conv=notrunc count=1',
    );
    expect(readFileSync(join(root, 'tools.ts'), 'utf8')).toBe('mine');
  });

  test('is no workspace', async () => {
    const root = temporaryFolder();
    files(root, { 'node_modules/pkg/index.js': '' });
    protectCode(join(root, 'node_modules'));
    const ctx = testContext({ workspaceRoot: join(root, 'node_modules', 'pkg') });
    await expect(ctx.workspace.list('.')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });
});

describe('what the owner of a workspace runs later', () => {
  const git = (folder: string, ...args: string[]) =>
    execFileSync('git', ['-c', 'protocol.file.allow=always', '-c', 'user.name=a', '-c', 'user.email=a@b', ...args], {
      cwd: folder,
      stdio: 'pipe',
    });

  confined('is left as it is in a repository, its worktrees and its submodules', { timeout: 60_000 }, async () => {
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
  const inEveryList = [...paths.filter((path) => !path.startsWith('.')), ...readInSandbox];

  confined('cannot be begun where there is none', async () => {
    const root = temporaryFolder();
    const hidden = paths.filter((path) => path.startsWith('.') && !readInSandbox.includes(path));
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

  confined('is left as it is where the settings of git or Yarn name it', async () => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    files(root, {
      '.git/config': `[core]\n\thooksPath = scripts/hooks ; a comment\n[include]\n\tpath = ../.gitconfig\n[alias]\n\tlint = "!tools/lint.sh --all"
[includeIf "gitdir:x"] path = ../missing.gitconfig\n[branch "main"]\n\tremote = origin\n`,
      '.gitconfig': '[include]\npath = deep.gitconfig\n',
      'deep.gitconfig': '[filter "x"]\nclean = sh tools/clean.sh\n',
      'scripts/hooks/pre-commit': 'mine',
      'tools/lint.sh': 'mine',
      'tools/clean.sh': 'mine',
      '.yarnrc.yml': 'yarnPath: .yarn/releases/yarn-4.cjs\nplugins:\n  - path: .yarn/plugins/a.cjs\n',
      '.yarn/releases/yarn-4.cjs': 'mine',
      '.yarn/plugins/a.cjs': 'mine',
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
    ]);
    const ctx = testContext({ workspaceRoot: root });
    for (const path of ['scripts/other.sh', 'tools/new.sh', 'nested/new.ts', '.yarn/install-state.gz', 'src/new.ts'])
      await expect(write.run(write.parse({ path, content: 'fine' }), ctx), path).resolves.toBeDefined();
    expect(
      await run(root, 'echo fine > scripts/more.sh && echo fine > a.txt && git status --short > /dev/null'),
    ).toMatchObject({
      exitCode: 0,
    });
  });

  confined('is renamed when a program makes it under a name that everybody sees', async () => {
    const root = temporaryFolder();
    expect(await run(root, `ls; for name in ${inEveryList.join(' ')}; do echo evil > $name; done`)).toMatchObject({
      exitCode: 0,
      stdout: '',
    });
    expect(readdirSync(root).map((name) => name.replace(/\.aside-.*/, ''))).toEqual(inEveryList.toSorted());
    expect(readdirSync(root).filter((name) => inEveryList.includes(name))).toEqual([]);
    const ctx = testContext({ workspaceRoot: root });
    for (const name of inEveryList)
      await expect(ctx.workspace.write(name, 'evil'), name).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
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

  confined('is found beside any number of other folders', { timeout: 60_000 }, async () => {
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

  test('is not the whole workspace, where that lies in a folder of such a name', async () => {
    const root = join(temporaryFolder(), '.claude', 'worktrees', 'one');
    mkdirSync(root, { recursive: true });
    const { workspace } = testContext({ workspaceRoot: root });
    await workspace.write('src/free.ts', 'free');
    const denied = { code: 'PERMISSION_DENIED' };
    await expect(workspace.write('.claude/settings.json', '{}')).rejects.toMatchObject(denied);
    const git = join(temporaryFolder(), '.git', 'hooks');
    mkdirSync(git, { recursive: true });
    await expect(testContext({ workspaceRoot: git }).workspace.write('pre-commit', 'evil')).rejects.toMatchObject(
      denied,
    );
  });

  test('stands in the documentation, with what runs it', () => {
    const page = readFileSync('docs/security.md', 'utf8');
    for (const { paths, runBy } of OWNER_FILES) {
      expect(page).toContain(`| ${runBy} |`);
      for (const path of paths) expect(page, path).toContain(`\`${path}\``);
    }
  });
});

/** Makes system calls that each must be refused. */
const NEVER = `def never(*numbers):
 libc = ctypes.CDLL(None, use_errno=True)
 for number in numbers:
  libc.syscall(number, b'user', b'name', b'text', 4, -3)
  if ctypes.get_errno() != 1:
   raise SystemExit(str(number))
 raise PermissionError()`;

describe('programs in the sandbox', () => {
  confined.each([
    ['a socket by path is reached', "socket.socket(socket.AF_UNIX).connect('SOCKET')"],
    ['a socket to the host of a machine is made', 'socket.socket(40, socket.SOCK_STREAM)'],
    ['a namespace of users is made', 'os.unshare(os.CLONE_NEWUSER)'],
    ['a file gets the set-user-ID bit', "os.chmod('own', 0o4755)"],
    ['a file gets the set-group-ID bit', "os.fchmod(os.open('own', os.O_RDONLY), 0o2755)"],
    ['a file is made with the set-user-ID bit', "os.umask(0); os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755)"],
    // The calls `add_key`, `request_key`, `keyctl`, `perf_event_open`, `bpf` and `userfaultfd`.
    [
      'the keys of the kernel, or the kernel itself, are reached',
      `never(${process.arch === 'arm64' ? '217, 218, 219, 241, 280, 282' : '248, 249, 250, 298, 321, 323'})`,
    ],
  ])('cannot do it: %s', async (_what, line) => {
    const root = temporaryFolder();
    const socket = join(root, 'docker.sock');
    const server = (await import('node:net')).createServer().listen(socket);
    await new Promise((resolve) => server.once('listening', resolve));
    try {
      files(root, { own: '' });
      chmodSync(join(root, 'own'), 0o755);
      const script = `import ctypes, os, socket\n${NEVER}\nif not hasattr(os, 'unshare'):\n os.CLONE_NEWUSER = 0x10000000\n os.unshare = lambda flags: ctypes.CDLL(None, use_errno=True).unshare(flags) and (_ for _ in ()).throw(PermissionError())\nsocket.socketpair()\nprint('began')\ntry:\n ${line.replace('SOCKET', socket)}\nexcept PermissionError:\n print('denied')`;
      files(root, { 'try.py': script });
      expect((await run(root, 'python3 try.py')).stdout).toBe('began\ndenied\n');
      expect(lstatSync(join(root, 'own')).mode & 0o6000).toBe(0);
    } finally {
      server.close();
    }
  });

  confined('do not see credentials of the machine and of home folders', async () => {
    const root = temporaryFolder();
    expect((await run(root, 'cat /etc/shadow /etc/gshadow; ls -A ~/.ssh')).stdout).toBe('');
  });
});

describe('a folder that is replaced by a link while its sandbox is set up', () => {
  confined.each([
    ['the workspace itself', 'ws/sub', 'ws/sub', '../outside'],
    ['a folder on the way to the workspace', 'ws/sub/root', 'ws/sub', '../outside'],
    ['a folder with a file of the owner', 'ws', 'ws/sub', '../outside'],
    ['the same, by an absolute link', 'ws', 'ws/sub', undefined],
  ])(
    'lets no program start, and no file outside of it be written or renamed: %s',
    async (_what, root, replaced, link) => {
      const base = realpathSync(temporaryFolder());
      const outside = { 'outside/.envrc': '', 'outside/mise.toml': '', 'outside/root/mise.toml': '' };
      files(base, { 'ws/sub/.envrc': '', 'ws/sub/root/notes.txt': '', ...outside });
      const request = {
        argv: ['sh', '-c', 'echo ran; echo evil > evil; echo evil > sub/evil'] as [string, string, string],
      };
      const options = { root: join(base, root), callId: 'call', env: process.env, sandbox: 'bubblewrap' } as const;
      const filesOutside = () =>
        Object.entries(stateOf(join(base, 'outside'))).filter(([, state]) => state !== 'folder');
      const before = filesOutside();
      const { sandbox, launch, environment } = await prepareProgram(options, request);
      renameSync(join(base, replaced), join(base, 'aside'));
      symlinkSync(link ?? join(base, 'outside'), join(base, replaced));
      const streams = { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' } as const;
      const signal = new AbortController().signal;
      const tree = startTree(sandbox, { launch, environment, name: 'sh', streams, timeoutMs: 10_000, signal });
      await expect(tree.ended).rejects.toMatchObject({ code: 'PROCESS_NOT_STARTED', retriable: true });
      expect(filesOutside()).toEqual(before);
    },
  );
});

describe('a protected name that is a link in the workspace', () => {
  confined.each([
    ['the folder of packages', { 'packages/dep/index.js': '' }, ['packages', 'node_modules'], "import 'dep';"],
    ['a folder of an import', { 'real/part.ts': '' }, ['real', 'lib'], "import './lib/part.ts';"],
    ['an imported file', { 'real/part.ts': '' }, ['real/part.ts', 'part.ts'], "import './part.ts';"],
    ['the file that says what modules are', { 'real.json': '{}' }, ['real.json', 'package.json'], ''],
  ] as const)('lets no program run: %s', async (_what, contents, [target, link], source) => {
    const root = realpathSync(temporaryFolder());
    files(root, { ...contents, 'tools.ts': source });
    symlinkSync(target, join(root, link));
    expect((await run(root, 'echo ran')).stdout).toBe('ran\n');
    protectToolCode(['tools.ts'], [], {}, root);
    await expect(run(root, `rm ${link}`)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining(`the link ${join(root, link)}, which a program could replace`),
    });
    const ctx = testContext({ workspaceRoot: root });
    await expect(ctx.workspace.write(link, 'evil')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  confined.each([
    ['the configuration', (root: string) => protectFile(join(root, 'own'))],
    ['the data folder', (root: string) => protectFolder(join(root, 'own'))],
  ])('lets no program run: %s', async (_what, protect) => {
    const root = realpathSync(temporaryFolder());
    files(root, { 'real/a': '' });
    symlinkSync('real', join(root, 'own'));
    protect(root);
    await expect(run(root, 'rm own')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  confined('may lie in a folder that no program can change', async () => {
    const root = realpathSync(temporaryFolder());
    files(root, { 'tools.ts': "import 'dep';", 'node_modules/.store/dep/index.js': '' });
    symlinkSync('.store/dep', join(root, 'node_modules/dep'));
    protectToolCode(['tools.ts'], [], {}, root);
    protectCode(join(root, 'node_modules/dep'));
    expect((await run(root, 'rm -f node_modules/dep; echo ran')).stdout).toBe('ran\n');
    expect(readlinkSync(join(root, 'node_modules/dep'))).toBe('.store/dep');
  });
});

test('the setting readOnlyPaths adds or removes protected paths', async () => {
  const root = temporaryFolder();
  onTestFinished(() => protectOwnerFiles(readOnlyPathsOf(undefined)));
  const write = (path: string) => testContext({ workspaceRoot: root }).workspace.write(path, 'x');
  const denied = { code: 'PERMISSION_DENIED' };
  protectOwnerFiles(readOnlyPathsOf(['default', '/Makefile']));
  for (const path of ['.envrc', 'Makefile', 'sub/Makefile'])
    await expect(write(path), path).rejects.toMatchObject(denied);
  protectOwnerFiles(readOnlyPathsOf(['.husky']));
  await write('.envrc');
  await expect(write('.husky/pre-commit')).rejects.toMatchObject(denied);
});

test('a tools file is not reached through a link that calls can replace', () => {
  const root = realpathSync(temporaryFolder());
  files(root, { 'real/tools.ts': '' });
  symlinkSync('real/tools.ts', join(root, 'tools.ts'));
  symlinkSync('real', join(root, 'linked'));
  for (const file of ['tools.ts', 'linked/tools.ts'])
    expect(() => protectToolCode([file], [], {}, root), file).toThrow(/reached through the link/);
  expect(() => protectToolCode(['real/tools.ts'], [], {}, root)).not.toThrow();
});
