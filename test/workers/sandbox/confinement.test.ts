import { spawnSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { detectIsolation, openProcesses, type ProcessesOptions } from '../../../src/workers/context/processes.ts';
import { protectFile, protectFolder } from '../../../src/workers/workspace/protected-paths.ts';
import { addWorkspaceFolder } from '../../../src/workers/workspace/workspace-roots.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';
import { eventually } from '../../helpers/signal.ts';
import { run } from './boundary-checks.ts';

const available = await detectIsolation();
const confined = test.skipIf(!available.includes('bubblewrap'));

function sh(script: string, options: Partial<ProcessesOptions> = {}) {
  return run(options.root ?? temporaryFolder(), script, options);
}

describe('in the sandbox (A11)', () => {
  confined('only the workspace can be written, and temporary files are the run’s own', async () => {
    const root = temporaryFolder();
    const outside = temporaryFolder();
    writeFileSync(join(outside, 'secret'), 'secret');
    const result = await sh(
      `echo in > file; echo out > ${outside}/out; echo out > /etc/pawl-out; echo x > /tmp/pawl-private; cat /tmp/pawl-private; cat ${outside}/secret; ls /tmp`,
      { root },
    );
    expect(readFileSync(join(root, 'file'), 'utf8')).toBe('in\n');
    expect([existsSync(join(outside, 'out')), existsSync('/etc/pawl-out'), existsSync('/tmp/pawl-private')]).toEqual([
      false,
      false,
      false,
    ]);
    expect(result.stdout).toMatch(/^x\n/);
    expect(result.stdout).not.toContain('secret');
  });

  confined.each([
    'mount -o remount,rw /',
    'mount -t tmpfs none /etc',
    'chroot / true',
    'umount /tmp',
    'cat /proc/sys/kernel/panic > /proc/sys/kernel/panic',
    'echo x > /proc/1/mem',
    'mknod /tmp/disk b 8 0',
    'nsenter -t 1 -m true',
    'hostname pawned',
    'ulimit -c 1',
    'ls /proc/1/root/proc/self/fd/ && kill -9 1 && sleep 0.2 && kill -0 1 && exit 1',
  ])('%s does not get out', async (script) => {
    const result = await sh(script);
    expect(result.exitCode).not.toBe(0);
  });

  confined(
    'no descriptor of the worker is inherited: a folder would lead out, a terminal to another session',
    async () => {
      const root = temporaryFolder();
      const outside = temporaryFolder();
      const at = (module: string) => JSON.stringify(new URL(`../../../src/workers/${module}`, import.meta.url).href);
      const worker = `import { openProcesses } from ${at('context/processes.ts')};
import { openPseudoTerminal } from ${at('sandbox/pseudo-terminal.ts')};
openPseudoTerminal();
const signal = new AbortController().signal;
const processes = openProcesses({ root: ${JSON.stringify(root)}, callId: 'call', signal, env: process.env, sandbox: 'bubblewrap' });
const script = 'readlink /proc/self/fd/*; echo evil > /proc/self/fd/40/escaped';
console.log((await processes.run({ argv: ['sh', '-c', script], timeoutMs: 100_000 })).stdout);
process.exit(0);`;
      writeFileSync(join(outside, 'worker.mjs'), worker);
      const folder = openSync(outside, 'r');
      const stdio = ['ignore', 'pipe', 'pipe', ...Array<'ignore'>(37).fill('ignore'), folder] as const;
      const { stdout, stderr } = spawnSync(process.execPath, [join(outside, 'worker.mjs')], { stdio: [...stdio] });
      closeSync(folder);
      expect(readdirSync(outside)).toEqual(['worker.mjs']);
      const open = String(stdout).trim().split('\n');
      expect(open.length, String(stderr)).toBeGreaterThan(3);
      expect(open.filter((target) => !/^(?:\/dev\/null|pipe:.*|socket:.*|\/proc\/.*)$/.test(target))).toEqual([]);
    },
  );

  confined('no other process is seen, and none can be signalled', async () => {
    const result = await sh(
      `ls /proc | grep -c '^[0-9]'; kill -0 ${process.pid} 2>/dev/null && readlink /proc/${process.pid}/exe`,
    );
    expect(Number(result.stdout.split('\n')[0])).toBeLessThan(10);
    expect(result.stdout).not.toContain(process.execPath);
  });

  confined('there is no network unless it is granted', async () => {
    const heard: number[] = [];
    const server = createServer((socket) => {
      heard.push(1);
      socket.destroy();
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    const knock = `${process.execPath} -e "require('net').connect(${port}, '127.0.0.1').on('error', () => process.exit(9)).on('close', () => process.exit(0))"`;
    expect((await sh(knock)).exitCode).toBe(9);
    expect(heard).toEqual([]);
    expect((await sh(knock, { network: true })).exitCode).toBe(0);
    expect(heard).toEqual([1]);
  });

  confined('a process that takes memory without end is stopped, and the worker is not', async () => {
    const result = await sh(
      `${process.execPath} -e "const all = []; for (;;) all.push(Buffer.allocUnsafeSlow(256 * 1024 * 1024))"`,
    );
    expect(result.exitCode).not.toBe(0);
    expect(result.timedOut).toBe(false);
  });
});

test('Pawl’s own folder is hidden from programs and from file tools, also inside the workspace and through links (A11)', async () => {
  const root = temporaryFolder();
  mkdirSync(join(root, '.pawl-data'));
  writeFileSync(join(root, '.pawl-data', 'key'), 'signing key');
  protectFolder(join(root, '.pawl-data'));
  const ctx = testContext({ workspaceRoot: root });
  for (const path of ['.pawl-data/key', './.pawl-data/../.pawl-data/key', join(root, '.pawl-data/key')])
    await expect(ctx.workspace.read(path)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  await expect(ctx.workspace.list('.pawl-data')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  await expect(ctx.workspace.write('.pawl-data/key', 'mine')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  expect((await ctx.workspace.search({ pattern: 'signing', includeIgnored: true })).files).toEqual([]);
  if (available.includes('bubblewrap')) expect((await sh('cat .pawl-data/key', { root })).stdout).toBe('');
});

test('Pawl’s configuration is hidden from programs and from file tools, and neither can change it (A11)', async () => {
  const root = temporaryFolder();
  const config = join(root, 'project', 'pawl.config.json');
  mkdirSync(join(root, 'project'));
  writeFileSync(config, 'admin token');
  protectFile(config);
  protectFile(join(root, 'project', 'pawl.config.ts'));
  const ctx = testContext({ workspaceRoot: root });
  for (const path of ['project/pawl.config.json', 'project/pawl.config.ts']) {
    await expect(ctx.workspace.read(path), path).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    await expect(ctx.workspace.write(path, 'mine'), path).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  }
  expect((await ctx.workspace.search({ pattern: 'admin', includeIgnored: true })).files).toEqual([]);
  if (!available.includes('bubblewrap')) return;
  const { stdout } = await sh(
    'cd project; cat *.json; echo mine > pawl.config.json; rm -f *.json; mv pawl.config.json a; cd ..; mv project b; ls',
    { root },
  );
  expect(stdout).toBe('project\n');
  expect(readFileSync(config, 'utf8')).toBe('admin token');
});

describe('a configuration that is not there (A11)', () => {
  const project = () => {
    const root = temporaryFolder();
    const config = join(root, 'pawl.config.ts');
    protectFile(config);
    return { root, config };
  };

  confined.each([
    'echo evil > pawl.config.ts',
    'echo evil > evil; ln -s evil pawl.config.ts',
    'echo evil > evil; mv -T evil pawl.config.ts',
    'ln -sT not-yet pawl.config.ts',
    'rmdir pawl.config.ts && mkdir pawl.config.ts',
    'mv pawl.config.ts away && echo evil > pawl.config.ts',
    'echo evil > pawl.config.ts/inside',
  ])('cannot be made by a program, while it runs or after: %s', async (script) => {
    const { root, config } = project();
    const running = sh(`${script}; code=$?; touch tried; until [ -e go ]; do sleep 0.01; done; exit $code`, { root });
    await eventually(() => existsSync(join(root, 'tried')));
    expect(statSync(config).isDirectory()).toBe(true);
    writeFileSync(join(root, 'go'), '');
    expect((await running).exitCode).not.toBe(0);
    expect(readdirSync(root).filter((name) => name.includes('config') || name.startsWith('.'))).toEqual([]);
  });

  confined('leaves nothing behind when a program is cut off', async () => {
    const { root } = project();
    const cut = new AbortController();
    const ran = sh('touch began; sleep 100', { root, signal: cut.signal });
    await eventually(() => existsSync(join(root, 'began')));
    cut.abort(new Error('cut'));
    await expect(ran).rejects.toThrow('cut');
    expect(readdirSync(root)).toEqual(['began']);
  });

  confined('cannot be made as long as one of several programs runs, whichever ends first', async () => {
    const { root, config } = project();
    const wait = (name: string) =>
      `touch ${name}; until [ -e go-${name} ]; do sleep 0.01; done; echo evil > pawl.config.ts`;
    const first = sh(wait('first'), { root });
    await eventually(() => existsSync(join(root, 'first')));
    const second = sh(wait('second'), { root });
    await eventually(() => existsSync(join(root, 'second')));
    for (const [name, run] of [
      ['first', first],
      ['second', second],
    ] as const) {
      writeFileSync(join(root, `go-${name}`), '');
      expect((await run).exitCode).not.toBe(0);
    }
    expect(existsSync(config)).toBe(false);
  });

  confined('can be made by its owner once no program runs, and what a killed worker left is no obstacle', async () => {
    const { root, config } = project();
    mkdirSync(config);
    writeFileSync(join(config, `.pawl-${encodeURIComponent(hostname())} 999999999 abc`), '');
    expect((await sh('echo evil > pawl.config.ts', { root })).exitCode).not.toBe(0);
    expect(readdirSync(root)).toEqual([]);
    writeFileSync(config, 'mine');
    expect((await sh('echo evil > pawl.config.ts', { root })).exitCode).not.toBe(0);
    expect(readFileSync(config, 'utf8')).toBe('mine');
  });

  test('stays writable outside of the sandbox', async () => {
    const { root, config } = project();
    expect((await sh('echo mine > pawl.config.ts', { root, sandbox: 'off' })).exitCode).toBe(0);
    expect(readFileSync(config, 'utf8')).toBe('mine\n');
  });
});

test('no workspace is Pawl’s own folder, or lies in it, by whatever name (A11)', async () => {
  const folder = temporaryFolder();
  const own = join(folder, '.pawl-data');
  mkdirSync(join(own, 'redis'), { recursive: true });
  writeFileSync(join(own, 'key'), 'signing key');
  writeFileSync(join(own, 'redis', 'key'), 'signing key');
  symlinkSync(own, join(folder, 'link'));
  protectFolder(own);
  const denied = { code: 'PERMISSION_DENIED' };
  for (const root of [own, join(own, 'redis'), join(folder, 'link'), join(folder, 'link', 'redis')]) {
    const ctx = testContext({ workspaceRoot: root });
    await expect(ctx.workspace.read('key'), root).rejects.toMatchObject(denied);
    await expect(ctx.workspace.list('.'), root).rejects.toMatchObject(denied);
    await expect(ctx.workspace.write('key', 'mine'), root).rejects.toMatchObject(denied);
    await expect(ctx.workspace.search({ pattern: 'signing' }), root).rejects.toMatchObject(denied);
    await expect(sh('cat key', { root }), root).rejects.toMatchObject(denied);
  }
});

test('workspaces that the operator put into Pawl’s own folder can be used, and nothing else of it', async () => {
  const own = temporaryFolder();
  const ground = join(own, 'workspaces');
  mkdirSync(join(ground, 'ada'), { recursive: true });
  writeFileSync(join(ground, 'ada', 'note'), 'buy milk');
  writeFileSync(join(own, 'key'), 'signing key');
  protectFolder(own);
  addWorkspaceFolder(ground);
  expect(String(await testContext({ workspaceRoot: join(ground, 'ada') }).workspace.list('.'))).not.toBe('');
  expect((await sh('cat note', { root: join(ground, 'ada'), sandbox: 'auto' })).stdout).toBe('buy milk');
  await expect(testContext({ workspaceRoot: own }).workspace.read('key')).rejects.toMatchObject({
    code: 'PERMISSION_DENIED',
  });
});

confined('no program can show Pawl’s own folder to the next call by renaming a folder above it (A11)', async () => {
  const root = temporaryFolder();
  const own = join(root, 'project', 'deep', '.pawl-data');
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, 'key'), 'signing key');
  protectFolder(own);
  for (const command of [
    'mv project moved',
    'mv project/deep project/moved',
    'mv project/deep/.pawl-data project/moved',
  ])
    expect((await sh(command, { root })).exitCode, command).not.toBe(0);
  expect((await sh('find . -name key; touch project/deep/new', { root })).stdout).toBe('');
  expect(existsSync(join(own, '..', 'new'))).toBe(true);
});

describe('policy', () => {
  test.skipIf(available.includes('bubblewrap'))('required starts nothing where there is no sandbox', async () => {
    await expect(sh('true', { sandbox: 'required' })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test('off runs programs without a sandbox', async () => {
    const outside = join(temporaryFolder(), 'out');
    expect((await sh(`echo x > ${outside}`, { sandbox: 'off' })).exitCode).toBe(0);
    expect(readFileSync(outside, 'utf8')).toBe('x\n');
  });
});

describe('commands that try to be more than one argument (A11)', () => {
  const words = [
    '; touch pwned',
    '$(touch pwned)',
    '`touch pwned`',
    '| touch pwned',
    '&& touch pwned',
    '\n touch pwned',
    '> pwned',
    '-o pwned',
    '$IFS',
    '$PATH',
    "'; touch pwned; '",
    '"; touch pwned; "',
    '*',
    '\\',
    '%s%n',
  ];
  test.each(words)('%j', async (word) => {
    const root = temporaryFolder();
    const processes = openProcesses({ root, callId: 'call', signal: new AbortController().signal, env: process.env });
    const result = await processes.run({ argv: ['printf', '%s', word] });
    expect(result.stdout).toBe(word);
    expect(existsSync(join(root, 'pwned'))).toBe(false);
  });
});
