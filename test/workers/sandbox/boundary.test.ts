/** Calls cannot change the code that Pawl runs, by any tool or name, nor reach what lies outside of the sandbox. */
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { protectToolCode } from '../../../src/cli/processes/protect-tool-code.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { codeNames } from '../../../src/workers/workspace/code-files.ts';
import { protectCode, protectFile, protectFolder } from '../../../src/workers/workspace/protected-paths.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';
import { expectUnchangeable, files, hasSandbox, run } from './boundary-checks.ts';

const confined = test.skipIf(!hasSandbox);

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
    // A datagram socket of a pair can send to a path, and connects to one.
    [
      'a pair of datagram sockets is made',
      'socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)',
    ],
    ['a pair of raw sockets is made', 'socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)'],
    ['a socket to the host of a machine is made', 'socket.socket(40, socket.SOCK_STREAM)'],
    ['a socket of the kernel’s cryptography is made', 'socket.socket(38, socket.SOCK_SEQPACKET)'],
    ['a socket of a protocol that no ordinary program uses is made', 'socket.socket(33, socket.SOCK_DGRAM)'],
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
      const script = `import ctypes, os, socket\n${NEVER}\nif not hasattr(os, 'unshare'):\n os.CLONE_NEWUSER = 0x10000000\n os.unshare = lambda flags: ctypes.CDLL(None, use_errno=True).unshare(flags) and (_ for _ in ()).throw(PermissionError())\nsocket.socketpair()\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\nfor family in (2, 10, 16):\n socket.socket(family, socket.SOCK_DGRAM).close()\nprint('began')\ntry:\n ${line.replace('SOCKET', socket)}\nexcept PermissionError:\n print('denied')`;
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

confined.each([
  ['a package of another project', 'node_modules/dep/index.js', ['other/node_modules/dep/index.js']],
  [
    'a package of a scope',
    'node_modules/@scope/dep/lib/part.js',
    ['other/node_modules/.pnpm/dep@1/node_modules/@scope/dep/lib/part.js'],
  ],
  ['a store of packages', 'node_modules/dep/index.js', ['.pnpm-store/v10/files/00/ab']],
  [
    'a large store of packages',
    'node_modules/dep/index.js',
    Array.from({ length: 250 }, (_, number) => `.pnpm-store/v10/files/00/${number}`),
  ],
] as const)('programs change no installed package through a hard link in %s', async (_what, name, links) => {
  const root = realpathSync(temporaryFolder());
  files(root, { [name]: 'good', 'node_modules/dep/package.json': '{}', 'free/node_modules/lib/index.js': 'free' });
  for (const path of [...links, 'other/node_modules/dep/package.json'])
    mkdirSync(dirname(join(root, path)), { recursive: true });
  for (const path of links) linkSync(join(root, name), join(root, path));
  linkSync(join(root, 'node_modules/dep/package.json'), join(root, 'other/node_modules/dep/package.json'));
  protectCode(join(root, 'node_modules'));
  const tries = links.map(
    (path) => `echo evil >> ${path}; ln ${path} made && echo evil >> made; mv ${path} gone && echo evil >> gone`,
  );
  await run(root, `${tries.join('\n')}\necho changed > free/node_modules/lib/index.js`);
  expect(readFileSync(join(root, name), 'utf8')).toBe('good');
  expect(readFileSync(join(root, 'free/node_modules/lib/index.js'), 'utf8')).toBe('changed\n');
});

confined('programs do not make the folders that Pawl hides, where they are not there yet', async () => {
  const root = realpathSync(temporaryFolder());
  protectFolder(join(root, 'state'));
  protectFolder(join(root, 'tenants'));
  const { stdout } = await run(
    root,
    'mkdir state; echo evil > state/key; ln -sT . tenants || ln -s x tenants/acme; echo ran',
  );
  expect(stdout).toBe('ran\n');
  expect(readdirSync(root)).toEqual([]);
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

test('a tools file is not reached through a link that calls can replace', () => {
  const root = realpathSync(temporaryFolder());
  files(root, { 'real/tools.ts': '' });
  symlinkSync('real/tools.ts', join(root, 'tools.ts'));
  symlinkSync('real', join(root, 'linked'));
  for (const file of ['tools.ts', 'linked/tools.ts'])
    expect(() => protectToolCode([file], [], {}, root), file).toThrow(/reached through the link/);
  expect(() => protectToolCode(['real/tools.ts'], [], {}, root)).not.toThrow();
});
