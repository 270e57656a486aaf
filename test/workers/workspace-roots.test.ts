/** Which folders no session works in, and whose folders they are. */
import { existsSync, symlinkSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { forbiddenRoot, tenantRoot } from '../../src/shared/workspace-root.ts';

import { temporaryFolder, testContext } from '../helpers/context.ts';

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

  test('is forbidden below a home folder, or where temporary files are', () => {
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

test('no two tenants share a root, whatever they are called', () => {
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
