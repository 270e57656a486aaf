/**
 * What the owner of a workspace runs later, without a second look: hooks and settings of git, tasks of editors, settings of package
 * managers and shells. A path stands for that name at any depth and all below it; `*` for one name, `**` for any number of them.
 */
export const DEFAULT_READ_ONLY_PATHS: readonly string[] = [
  '.git/hooks',
  '.git/config',
  '.git/config.worktree',
  '.git/commondir',
  '.git/modules/**/hooks',
  '.git/modules/**/config',
  '.git/modules/**/config.worktree',
  '.git/modules/**/commondir',
  '.git/worktrees/*/config.worktree',
  '.git/worktrees/*/commondir',
  '.git/worktrees/*/gitdir',
  '.vscode/tasks.json',
  '.vscode/settings.json',
  '.vscode/launch.json',
  '.husky',
  '.envrc',
  '.npmrc',
  '.yarnrc',
  '.yarnrc.yml',
  '.pnpmfile.cjs',
];

/** In a list of its own an operator says `default` for all of these. */
export function readOnlyPathsOf(setting: readonly string[] | undefined): readonly string[] {
  if (setting === undefined) return DEFAULT_READ_ONLY_PATHS;
  return setting.flatMap((path) =>
    path === 'default' ? DEFAULT_READ_ONLY_PATHS : [path.replaceAll(/^\/+|\/+$/g, '')],
  );
}
