/** Folders in which no session may work, and the owners of the others. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { forbiddenRoot, tenantRoot } from '../../../src/shared/policy/workspace-root.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { read } from '../../../src/workers/tools/read.ts';
import { shell } from '../../../src/workers/tools/shell.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { addWorkspaceFolder } from '../../../src/workers/workspace/workspace-roots.ts';

import { temporaryFolder, testContext } from '../../helpers/context.ts';
import { startRig } from '../../producer/http/rig.ts';

const FORBIDDEN = [
  '/',
  '/proc',
  '/proc/1/root',
  '/proc/self',
  '/sys',
  '/sys/fs/cgroup',
  '/dev',
  '/dev/shm',
  '/run',
  '/tmp',
  '/var',
  '/etc',
  '/etc/ssh',
  '/usr/bin',
  '/usr/libexec/git-core',
  '/usr/share/bash-completion/completions',
  '/usr/local/share',
  '/usr/local/etc',
  '/usr/lib64',
  '/lib32',
  '/var/spool/cron/crontabs',
  '/var/log',
  '/var/cache/apt',
  '/var/backups',
  '/var/lib/dpkg/info',
  '/var/lib/docker/volumes',
  '/var/lib/../spool/./cron/',
  '/nix/store',
  '/snap/core',
  '/Library/LaunchDaemons',
  '/private/etc',
  '/private/tmp',
  '/Volumes',
  '/home',
  '/home/ada',
  '/root',
  '/usr/../',
  '//tmp/',
  userInfo().homedir,
];

describe('no workspace', () => {
  test.each(FORBIDDEN)('is %s, for files or for programs', async (root) => {
    const ctx = testContext({ workspaceRoot: root });
    const denied = { code: 'PERMISSION_DENIED' };
    await expect(ctx.workspace.read('x')).rejects.toMatchObject(denied);
    await expect(ctx.workspace.list('.')).rejects.toMatchObject(denied);
    await expect(ctx.workspace.write('x', '')).rejects.toMatchObject(denied);
    await expect(ctx.processes.run({ argv: ['true'] })).rejects.toMatchObject(denied);
    if (!existsSync(root)) return;
    const link = join(temporaryFolder(), 'link');
    symlinkSync(root, link);
    await expect(testContext({ workspaceRoot: link }).workspace.list('.')).rejects.toMatchObject(denied);
    await expect(testContext({ workspaceRoot: link }).processes.run({ argv: ['true'] })).rejects.toMatchObject(denied);
  });

  test('is a folder with credentials in it, a folder below one, or a link to one', () => {
    const home = temporaryFolder();
    for (const folder of ['.ssh', '.config/gh', '.docker/contexts', 'project'])
      mkdirSync(join(home, folder), { recursive: true });
    symlinkSync('.ssh', join(home, 'link'));
    const readEach = `
      const { openWorkspace } = await import(process.argv[1]);
      for (const root of process.argv.slice(2))
        console.log(await openWorkspace(root).list('.').then(() => 'open', ({ code }) => code));`;
    const module = new URL('../../../src/workers/workspace/workspace.ts', import.meta.url).href;
    const roots = ['project', '.ssh', '.config/gh', '.docker/contexts', 'link'].map((name) => join(home, name));
    const answers = execFileSync(process.execPath, ['--input-type=module', '-e', readEach, module, ...roots], {
      encoding: 'utf8',
      env: { ...process.env, HOME: home },
    });
    expect(answers.trim().split('\n')).toEqual(['open', ...Array(4).fill('PERMISSION_DENIED')]);
  });

  test('shows the credentials that programs and agents keep in a home folder', () => {
    const home = temporaryFolder();
    const names =
      `.claude.json .claude/.credentials.json .codex/auth.json .config/github-copilot/apps.json .oci/config .fly/config.yml
      .config/doctl/config.yaml .config/stripe/config.toml .config/configstore/snyk.json .local/share/com.vercel.cli/auth.json
      .config/.wrangler/config/default.toml .pulumi/credentials.json .databrickscfg .snowsql/config .kaggle/kaggle.json .s3cfg .terraformrc
      .cache/huggingface/token .config/pypoetry/auth.toml .nuget/NuGet/NuGet.Config .sbt/.credentials .config/helm/registry/config.json
      .mcp-auth/mcp-remote/tokens.json .openclaw/openclaw.json .config/goose/secrets.yaml .local/share/uv/credentials/credentials.toml
      .modal.toml .supabase/access-token .cloudflared/cert.pem .dbt/profiles.yml .pg_service.conf .tsh/keys/a .local/share/fish/fish_history
      .config/Code/User/globalStorage/state.vscdb .local/share/gem/credentials .config/solana/id.json .mylogin.cnf .mysql_history .kube/config .pgpass .m2/settings.xml
      .config/borg/keys/a .gsutil/credstore .local/share/jupyter/runtime/a.json .vnc/passwd .config/aerc/accounts.conf .openai/auth.json
      .davfs2/secrets .irb_history .local/share/zsh/history .electrum/wallets/a .circleci/cli.yml .offlineimaprc`.split(
        /\s+/,
      );
    const shownNames = ['.claude/worktrees/one', '.config/app/settings', '.config/Code/User/settings.json'];
    for (const name of [...names, ...shownNames]) {
      mkdirSync(dirname(join(home, name)), { recursive: true });
      writeFileSync(join(home, name), '');
    }
    const module = new URL('../../../src/workers/workspace/protected-paths.ts', import.meta.url).href;
    const script = `
      const { liesIn } = await import(process.argv[2]);
      const hidden = (await import(process.argv[1])).credentials();
      console.log(process.argv.slice(3).filter((name) => !hidden.some((path) => liesIn(path, name))).join('\\n'));`;
    const paths = new URL('../../../src/shared/util/file-path.ts', import.meta.url).href;
    const all = [...names, ...shownNames].map((name) => join(realpathSync(home), name));
    const env = { ...process.env, HOME: home };
    const shown = execFileSync(process.execPath, ['--input-type=module', '-e', script, module, paths, ...all], { env });
    expect(String(shown).trim().split('\n')).toEqual(all.slice(-shownNames.length));
  });

  test('is a home folder by the name to which a link leads', () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'real/project'), { recursive: true });
    symlinkSync('real', join(folder, 'home'));
    const module = new URL('../../../src/workers/workspace/workspace-roots.ts', import.meta.url).href;
    const script = `
      const { forbiddenReason } = await import(process.argv[1]);
      console.log(process.argv.slice(2).map((root) => forbiddenReason(root) === undefined).join(' '));`;
    const roots = ['home', 'real', '', 'real/project'].map((name) => join(folder, name));
    const env = { ...process.env, HOME: join(folder, 'home'), TMPDIR: '/nowhere' };
    const answer = execFileSync(process.execPath, ['--input-type=module', '-e', script, module, ...roots], { env });
    expect(String(answer).trim()).toBe('false false false true');
  });

  test('is a folder whose files its owner runs, in the folder of the workspaces', async () => {
    const ground = temporaryFolder();
    addWorkspaceFolder(ground);
    const refused = ['.git/hooks', '.husky', '.husky/_', 'app/.vscode', '.claude', '.claude/hooks', '.github/hooks'];
    const allowed = ['.claude/worktrees/one', '.github', 'tools', 'app'];
    for (const name of [...refused, ...allowed]) mkdirSync(join(ground, name), { recursive: true });
    symlinkSync('.git/hooks', join(ground, 'link'));
    for (const name of [...refused, 'link']) {
      const ctx = testContext({ workspaceRoot: join(ground, name) });
      await expect(ctx.workspace.list('.'), name).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
      await expect(ctx.processes.run({ argv: ['true'] }), name).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    }
    for (const name of allowed)
      await expect(testContext({ workspaceRoot: join(ground, name) }).workspace.list('.'), name).resolves.toBeDefined();
  });

  test('may be below a home folder, or where temporary files are', () => {
    for (const root of [
      '/home/ada/project',
      '/tmp/project',
      '/srv/project',
      '/var/lib/pawl/workspaces',
      '/usr/src/app',
    ])
      expect(forbiddenRoot(root, [homedir()]), root).toBeUndefined();
  });
});

test('no two tenants share a root, whatever their names are', () => {
  const names = [
    'a',
    'A',
    '../a',
    'a/b',
    'a-b',
    '.',
    '..',
    'é',
    '日本',
    'x'.repeat(256),
    'x'.repeat(255),
    ' a',
    'a\u0000',
  ];
  const roots = names.map((name) => tenantRoot({ workspaceRoot: '/w', dataDir: '.pawl' }, name).toLowerCase());
  expect(new Set(roots).size).toBe(names.length);
  for (const root of roots) expect(root).toMatch(/^\/w\/tenants\/[a-z0-9-]+$/);
});

describe('a tenant', () => {
  const apiTokens = [
    { token: 'agent-of-nobody', role: 'agent' as const },
    { token: 'agent-of-acme', role: 'agent' as const, tenantId: 'acme' },
    { token: 'agent-of-other', role: 'agent' as const, tenantId: 'other' },
    { token: 'admin-of-other', role: 'admin' as const, tenantId: 'other' },
    { token: 'admin-token', role: 'admin' as const },
  ];
  const toolsOfAll = [read, write, shell];

  const start = async () => {
    const workspaceRoot = temporaryFolder();
    const { ask, call, pawl, settings } = await startRig({
      tools: toolsOfAll,
      tiers: TIERS,
      settings: { apiTokens, workspaceRoot },
    });
    const open = (token: string, json: object = {}) => ask('/v1/sessions', { method: 'POST', token, json });
    const run = async (token: string, session: string, tool: string, params: object) => {
      const { body } = await call({ tool, params, session }, { token, wait: 20_000 });
      return body as {
        status: string;
        output?: { content: { stdout?: string; content?: string } };
        error?: { code: string };
      };
    };
    return { workspaceRoot, ask, pawl, open, run, settings };
  };

  test('works in a folder of its own that Pawl makes, and sees no other’s', async () => {
    const { workspaceRoot, open, run, pawl, settings } = await start();
    const acme = (await open('agent-of-acme')).body;
    const other = (await open('agent-of-other')).body;
    const nobody = (await open('agent-of-nobody')).body;
    expect(acme.workspaceRoot).toBe(tenantRoot(settings, 'acme'));
    expect(
      (await run('agent-of-acme', acme.sessionKey, 'write', { path: 'secret.txt', content: 'of acme' })).status,
    ).toBe('success');
    const file = join(acme.workspaceRoot, 'secret.txt');
    const attempts = [file, relative(other.workspaceRoot, file), relative(workspaceRoot, file)];
    for (const [token, session] of [
      ['agent-of-other', other],
      ['agent-of-nobody', nobody],
    ] as const) {
      for (const path of attempts)
        expect((await run(token, session.sessionKey, 'read', { path })).status, path).not.toBe('success');
      if (inject('sandbox') === 'off') continue;
      const script = `${attempts.map((path) => `cat ${path}; echo mine > ${path}`).join('; ')}; ls -R ${workspaceRoot}; true`;
      const { output } = await run(token, session.sessionKey, 'shell', { command: ['sh', '-c', script] });
      expect(output?.content.stdout).not.toContain('secret');
    }
    expect(readFileSync(file, 'utf8')).toBe('of acme');
    // A link in a workspace leads to no other workspace.
    symlinkSync(acme.workspaceRoot, join(other.workspaceRoot, 'link'));
    const linked = await open('agent-of-other', { workspaceRoot: 'link' });
    expect((await run('agent-of-other', linked.body.sessionKey, 'read', { path: 'secret.txt' })).status).not.toBe(
      'success',
    );
    for (const path of [acme.workspaceRoot, dirname(acme.workspaceRoot), '/']) {
      const link = join(workspaceRoot, `link-${path.length}`);
      symlinkSync(path, link);
      const { body, status } = await open('agent-of-nobody', { workspaceRoot: link });
      expect(status, path).toBe(201);
      const below = relative(path, file);
      expect((await run('agent-of-nobody', body.sessionKey, 'read', { path: below })).status, path).not.toBe('success');
      const { output } = await run('agent-of-nobody', body.sessionKey, 'shell', { command: ['cat', below] });
      expect(output?.content.stdout ?? '', path).not.toContain('of acme');
    }
    // The worker does not trust a session record just because its producer has the keys.
    const forged = await pawl.openSession({ tenantId: 'other', workspaceRoot: acme.workspaceRoot });
    expect((await forged.call('read', { path: 'secret.txt' })).error?.code).toBe('PERMISSION_DENIED');
    const unnamed = await pawl.openSession({ workspaceRoot: acme.workspaceRoot });
    expect((await unnamed.call('read', { path: 'secret.txt' })).error?.code).toBe('PERMISSION_DENIED');
  });

  test('and other HTTP clients that open sessions can name no root outside of their own', async () => {
    const { open, settings, workspaceRoot } = await start();
    const outside = temporaryFolder();
    const acme = tenantRoot(settings, 'acme');
    for (const [token, root] of [
      ['agent-of-acme', workspaceRoot],
      ['agent-of-acme', outside],
      ['agent-of-acme', '..'],
      ['agent-of-other', acme],
      ['admin-of-other', acme],
      ['admin-of-other', outside],
      ['agent-of-nobody', acme],
      ['agent-of-nobody', outside],
      ['admin-token', acme],
      ...FORBIDDEN.map((each) => ['admin-token', each] as const),
      ...FORBIDDEN.map((each) => ['agent-of-nobody', each] as const),
    ] as const)
      expect((await open(token, { workspaceRoot: root })).status, `${token} ${root}`).toBe(403);
    for (const [token, root] of [
      ['agent-of-acme', acme],
      ['agent-of-acme', 'sub'],
      ['agent-of-nobody', workspaceRoot],
      ['admin-token', outside],
    ] as const)
      expect((await open(token, { workspaceRoot: root })).status, `${token} ${root}`).toBe(201);
  });

  test('without PAWL_WORKSPACE_ROOT, an agent works in the server’s folder and names no other', async () => {
    const { ask } = await startRig({ settings: { apiTokens, workspaceRoot: undefined } });
    const open = (json: object) => ask('/v1/sessions', { method: 'POST', token: 'agent-of-nobody', json });
    expect((await open({})).body.workspaceRoot).toBe(process.cwd());
    expect((await open({ workspaceRoot: process.cwd() })).status).toBe(201);
    for (const root of [temporaryFolder(), join(process.cwd(), 'src'), dirname(process.cwd()), ...FORBIDDEN])
      expect((await open({ workspaceRoot: root })).status, root).toBe(403);
  });
});
