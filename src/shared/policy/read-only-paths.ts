/**
 * Files that the owner of a workspace later runs without looking at them again: git hooks and settings, editor tasks, settings of package
 * managers and shells. A path stands for that name at any depth and everything below it; `*` is one name, `**` any number of names.
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

/** In a list of its own, an operator includes all of these as `default`. */
export function readOnlyPathsOf(setting: readonly string[] | undefined): readonly string[] {
  if (setting === undefined) return DEFAULT_READ_ONLY_PATHS;
  return setting.flatMap((path) =>
    path === 'default' ? DEFAULT_READ_ONLY_PATHS : [path.replaceAll(/^\/+|\/+$/g, '')],
  );
}
