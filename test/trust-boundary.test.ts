/** A worker protects what its settings and the options of Node name, wherever that lies in the workspace. */
import { existsSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { resolveSettings } from '../src/shared/config/resolve-settings.ts';
import { protectProcess } from '../src/trust-boundary.ts';
import { makePlaceholders } from '../src/workers/sandbox/placeholders.ts';
import { findBoundary } from '../src/workers/workspace/boundary.ts';
import {
  protectCode,
  protectedCode,
  protectedFiles,
  protectFile,
  shareCode,
} from '../src/workers/workspace/protected-paths.ts';
import { temporaryFolder, testContext } from './helpers/context.ts';

const denied = { code: 'PERMISSION_DENIED' };

/** A workspace with this file, protected as a worker in its folder with these settings and options of Node protects it. */
function protectedWorkspace(path: string, nodeOptions: string, settings: (root: string) => object) {
  const root = temporaryFolder();
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), 'mine');
  mkdirSync(join(root, 'node_modules/@app'), { recursive: true });
  symlinkSync('../../packages/trace', join(root, 'node_modules/@app/trace'));
  const options = { dataDir: join(root, '.pawl'), ...settings(root) };
  protectProcess(resolveSettings({ options }), root, { NODE_OPTIONS: nodeOptions });
  return testContext({ workspaceRoot: root }).workspace;
}

const none = () => ({});

test.each([
  ['prod.env', '--env-file=prod.env', none],
  ['config/app.env', '--max-old-space-size=4096 --env-file config/app.env', none],
  ['prod.env', '--env-file-if-exists=./prod.env', none],
  ['my vars.env', '--env-file="my vars.env"', none],
  ['audit-of-mine/2026.jsonl', '', (root: string) => ({ audit: { folder: join(root, 'audit-of-mine') } })],
  ['memory/table.lance', '', (root: string) => ({ memory: { uri: join(root, 'memory') } })],
  ['blobs/a', '', (root: string) => ({ blobStore: `file:${join(root, 'blobs')}` })],
  [
    'tls/my key.pem',
    '',
    (root: string) => ({ redisUrl: `rediss://one:1,two:2?ca=${root}/ca.pem&key=${root}/tls/my%20key.pem` }),
  ],
  ['tls/ca.pem', '', () => ({ boardRedisUrl: 'rediss://one:1?ca=tls/ca.pem' })],
  ['secrets/key', '', (root: string) => ({ connectors: { secrets: { folders: [join(root, 'secrets')] } } })],
] as const)('%s is hidden from calls with NODE_OPTIONS=%s', async (path, nodeOptions, settings) => {
  const workspace = protectedWorkspace(path, nodeOptions, settings);
  await expect(workspace.read(path)).rejects.toMatchObject(denied);
  await expect(workspace.write(path, 'evil')).rejects.toMatchObject(denied);
});

test.each([
  ['hook.mjs', '--import=./hook.mjs', none],
  ['hook.mjs', '--experimental_loader ./hook.mjs', none],
  ['node.json', '--experimental-config-file=node.json', none],
  ['tsconfig.json', '--import tsx', none],
  ['node.config.json', '--experimental-default-config-file', none],
  ['packages/trace/index.js', '--import @app/trace', none],
  [
    'hooks.mjs',
    `--import "data:text/javascript,import{register}from'module';register('./hooks.mjs','file:///')"`,
    none,
  ],
  ['hooks.mjs', '--import data:text/javascript,register(%22./hooks.mjs%22)', none],
  ['hooks.mjs', "--import data:text/javascript,register('./hooks.mjs')//100%", none],
  ['bin/secret', '', (root: string) => ({ connectors: { secrets: { programs: [join(root, 'bin/secret')] } } })],
  ['skills/a/SKILL.md', '', (root: string) => ({ skillFolders: [join(root, 'skills')] })],
] as const)('%s is read-only for calls with NODE_OPTIONS=%s', async (path, nodeOptions, settings) => {
  const workspace = protectedWorkspace(path, nodeOptions, settings);
  await expect(workspace.read(path)).resolves.toBeDefined();
  await expect(workspace.write(path, 'evil')).rejects.toMatchObject(denied);
  await expect(workspace.write('src/other.ts', 'fine')).resolves.toBeDefined();
});

test.each([
  ['NODE_PATH', 'lib::/srv', 'lib/bufferutil.js'],
  ['LD_LIBRARY_PATH', ':ours:', 'ours/libm.so.6'],
  ['LD_PRELOAD', './hook.so other.so', 'hook.so'],
  ['LD_LIBRARY_PATH', '/usr/lib;ours', 'ours/libm.so.6'],
  ['LD_AUDIT', './audit.so', 'audit.so'],
  ['APT_CONFIG', 'apt.conf', 'apt.conf'],
  ['DOCKER_CONFIG', '.docker', '.docker/cli-plugins/docker-x'],
  ['NODE_COMPILE_CACHE', '.compiled', '.compiled/v24/a'],
  ['NODE_EXTRA_CA_CERTS', 'certs/ca.pem', 'certs/ca.pem'],
  ['SSL_CERT_DIR', './certs', 'certs/new.pem'],
  ['OPENSSL_CONF', 'openssl.cnf', 'openssl.cnf'],
])('what %s=%s names is read-only for calls', async (name, value, path) => {
  const root = temporaryFolder();
  protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, { [name]: value });
  const { workspace } = testContext({ workspaceRoot: root });
  await expect(workspace.write(path, 'evil')).rejects.toMatchObject(denied);
  await expect(workspace.write('src/other.ts', 'fine')).resolves.toBeDefined();
});

test('what Yarn’s Plug’n’Play loads is read-only for calls', async () => {
  const root = temporaryFolder();
  mkdirSync(join(root, '.yarn/cache'), { recursive: true });
  for (const path of ['.pnp.cjs', '.pnp.data.json', '.yarn/cache/bullmq.zip']) writeFileSync(join(root, path), '');
  const environment = {
    NODE_OPTIONS: `--require ${join(root, '.pnp.cjs')} --experimental-loader file://${root}/.pnp.loader.mjs`,
  };
  protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, environment);
  const { workspace } = testContext({ workspaceRoot: root });
  for (const path of [
    '.pnp.cjs',
    '.pnp.data.json',
    '.pnp.loader.mjs',
    '.yarn/cache/bullmq.zip',
    '.yarn/unplugged/a/a.js',
  ])
    await expect(workspace.write(path, 'evil'), path).rejects.toMatchObject(denied);
  await expect(workspace.write('.yarn/install-state.txt', 'fine')).resolves.toBeDefined();
});

test.each(['.', '..', ':', ''])('NODE_PATH=%s does not close the whole workspace', async (value) => {
  const root = temporaryFolder();
  const options = { dataDir: join(root, '.pawl') };
  protectProcess(resolveSettings({ options }), root, { NODE_PATH: value, LD_LIBRARY_PATH: value, SSL_CERT_DIR: value });
  await expect(testContext({ workspaceRoot: root }).workspace.write('a.txt', 'fine')).resolves.toBeDefined();
});

test('the cache of programs and compiled code is read-only for calls, where the home folder is a workspace', async () => {
  const root = temporaryFolder();
  vi.stubEnv('HOME', root);
  try {
    protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, {});
  } finally {
    vi.unstubAllEnvs();
  }
  const { workspace } = testContext({ workspaceRoot: root });
  for (const path of ['.cache/pawl/redis/linux-x64/redis-server', '.cache/pawl/compiled/a'])
    await expect(workspace.write(path, 'evil')).rejects.toMatchObject(denied);
  await expect(workspace.write('.cache/pip/a', 'fine')).resolves.toBeDefined();
});

test('a link to a file with secrets, and to skills, is left as it is, and so is what it leads to', async () => {
  const root = realpathSync(temporaryFolder());
  for (const folder of ['real', 'docs/skill', 'own/c', 'links']) mkdirSync(join(root, folder), { recursive: true });
  for (const file of ['real/keys', 'docs/skill/SKILL.md', 'docs/other.md']) writeFileSync(join(root, file), 'mine');
  symlinkSync('real/keys', join(root, 'keys'));
  symlinkSync('own', join(root, 'skills'));
  symlinkSync('../docs/skill', join(root, 'own/b'));
  symlinkSync('../../docs/other.md', join(root, 'own/c/SKILL.md'));
  const options = { dataDir: join(root, '.pawl'), skillFolders: ['skills'] };
  protectProcess(resolveSettings({ options }), root, { PAWL_SIGNING_KEYS_FILE: join(root, 'keys') });
  const { workspace } = testContext({ workspaceRoot: root });
  const kept = ['keys', 'real/keys', 'skills', 'own/new/SKILL.md', 'own/b', 'docs/skill/SKILL.md', 'docs/other.md'];
  for (const path of kept) await expect(workspace.write(path, 'evil'), path).rejects.toMatchObject(denied);
  for (const path of ['keys', 'real/keys']) await expect(workspace.read(path), path).rejects.toMatchObject(denied);
  await expect(workspace.write('docs/third.md', 'fine')).resolves.toBeDefined();
});

test('a link in the folder of the worker leads no session out of it', async () => {
  const root = temporaryFolder();
  const outside = temporaryFolder();
  mkdirSync(join(root, 'sub'));
  symlinkSync(outside, join(root, 'link'));
  protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, {});
  const list = (workspaceRoot: string) => testContext({ workspaceRoot }).workspace.list('.');
  await expect(list(join(root, 'link'))).rejects.toMatchObject(denied);
  for (const allowed of [root, join(root, 'sub'), outside]) await expect(list(allowed)).resolves.toBeDefined();
});

test('what another process of the data folder loads is read-only', async () => {
  const root = realpathSync(temporaryFolder());
  const codeOf = (pid: number) => join(root, '.pawl/code', `${hostname()}-${pid}.json`);
  const noProcess = 2 ** 30;
  mkdirSync(join(root, '.pawl/code'), { recursive: true });
  writeFileSync(codeOf(process.ppid), JSON.stringify([join(root, 'hooks.ts')]));
  writeFileSync(codeOf(noProcess), JSON.stringify([join(root, 'old.ts')]));
  const { workspace } = testContext({ workspaceRoot: root });
  shareCode(join(root, '.pawl'));
  await expect(workspace.write('hooks.ts', 'evil')).rejects.toMatchObject(denied);
  await expect(workspace.write('old.ts', 'fine')).resolves.toBeDefined();
  expect(existsSync(codeOf(process.pid))).toBe(true);
  expect(existsSync(codeOf(noProcess))).toBe(false);
});

test.each(['.PAWL/signing-key', 'PAWL.CONFIG.JSON', 'Keys', 'Hook.mjs', 'Node_Modules/zod/index.js'])(
  '%s, which is a protected name where a file system ignores case, is refused',
  async (path) => {
    const root = realpathSync(temporaryFolder());
    writeFileSync(join(root, 'keys'), 'kid:key');
    protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, {
      NODE_OPTIONS: '--import=./hook.mjs',
      PAWL_SIGNING_KEYS_FILE: join(root, 'keys'),
    });
    const { workspace } = testContext({ workspaceRoot: root });
    await expect(workspace.write(path, 'evil')).rejects.toMatchObject(denied);
    if (/pawl|keys/i.test(path)) await expect(workspace.read(path)).rejects.toMatchObject(denied);
  },
);

test('protected names that differ in case alone are all protected', () => {
  const root = realpathSync(temporaryFolder());
  const names = [join(root, 'tools.ts'), join(root, 'Tools.ts')];
  for (const name of names) {
    protectCode(name);
    protectFile(name);
  }
  expect(protectedCode()).toEqual(expect.arrayContaining(names));
  expect(protectedFiles()).toEqual(expect.arrayContaining(names));
});

test('two programs run at once in the folder of the worker: the second mounts no mark of the first', async () => {
  const root = temporaryFolder();
  protectProcess(resolveSettings({ options: { dataDir: join(root, '.pawl') } }), root, {});
  const { absent } = await findBoundary(root);
  const { paths, remove } = await makePlaceholders(absent);
  expect(paths).toContain(join(root, 'pawl.config.json'));
  const { readOnly } = await findBoundary(root);
  await remove();
  expect(readOnly).toEqual([]);
});
