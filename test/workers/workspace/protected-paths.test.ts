/** What file tools may not write: the files that the workspace's owner runs later. */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { OWNER_FILES, readOnlyPathsOf } from '../../../src/shared/policy/read-only-paths.ts';
import { protectOwnerFiles } from '../../../src/workers/workspace/protected-paths.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

describe('what the owner of a workspace runs later', () => {
  test.each(
    `.pijul/config _darcs/prefs/defaults .repo/repo/main.py .gclient .prototools .autoenv.zsh .shadowenv.d/500.lisp bin/activate-hermit
    .dir-locals.el a.sublime-project .project .factorypath .settings/a.prefs .lvimrc rust-analyzer.toml .luarc.json .solargraph.yml
    .phpactor.json .sourcekit-lsp/config.json omnisharp.json .merlin gptme.toml .corepack.env ansible.cfg jdb.ini .erlang .nrepl.edn`.split(
      /\s+/,
    ),
  )('is not written by a call: %s', async (path) => {
    const ctx = testContext();
    for (const each of [path, `packages/app/${path}`, path.toUpperCase()])
      await expect(ctx.workspace.write(each, 'evil'), each).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test.each(['.jj/repo', 'deep/.v\u017fcode/tasks.json'])('is not the file %s', async (path) => {
    const { workspace } = testContext();
    await expect(workspace.write(path, 'evil')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
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
