/** Files that programs of the workspace's owner run later by themselves: hooks, settings that name commands, start scripts. */
interface OwnerFiles {
  readonly paths: readonly string[];
  /** The program, and when it runs what the files say. `docs/security.md` has the same table. */
  readonly runBy: string;
  /** Programs in the sandbox read these files too, and fail on a folder in their place. */
  readonly isReadInSandbox?: true;
}

/**
 * The files that calls leave as they are. A path stands for that name at any depth and everything below it; `*` is one name, `*.x` one with this end, `**` any
 * number of names. Files that a person runs by name are not listed: agents are asked to write those.
 */
export const OWNER_FILES: readonly OwnerFiles[] = [
  {
    paths: [
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
      ...['rebase-merge', 'sequencer'].flatMap((name) => [
        `.git/${name}`,
        `.git/modules/**/${name}`,
        `.git/worktrees/*/${name}`,
      ]),
      '.git/sl/config',
      '.hg/hgrc',
      '.hg/hgrc-not-shared',
      '.hg/sharedpath',
      '.sl/config',
      '.sl/sharedpath',
      '.jj/repo/config.toml',
      '.jj/workspace-config.toml',
    ],
    runBy: 'git, Mercurial, Sapling and Jujutsu, at any command: a shell prompt suffices',
  },
  {
    paths: [
      '.husky',
      '.githooks',
      ...['yml', 'yaml', 'toml', 'json', 'jsonc'].flatMap((extension) =>
        ['lefthook', 'lefthook-local'].flatMap((name) => [
          `${name}.${extension}`,
          `.${name}.${extension}`,
          `.config/${name}.${extension}`,
        ]),
      ),
      '.lefthook',
      '.lefthook-local',
      '.pre-commit-config.yaml',
      '.pre-commit-config.yml',
      'prek.toml',
      '.overcommit.yml',
      ...['hk.pkl', 'hk.local.pkl'].flatMap((name) => [name, `.config/${name}`]),
      'captainhook.json',
      'captainhook.config.json',
      'grumphp.yml',
      'grumphp.yml.dist',
    ],
    runBy: 'git hooks, at a commit, a checkout or a push',
  },
  {
    paths: [
      '.envrc',
      'mise.toml',
      '.mise.toml',
      'mise.local.toml',
      '.mise.local.toml',
      '.mise/config.toml',
      '.mise/config.local.toml',
      'mise/config.toml',
      'mise/config.local.toml',
      '.config/mise.toml',
      '.config/mise.local.toml',
      '.config/mise',
      '.miserc.toml',
      '.tool-versions',
      '.direnv',
    ],
    runBy: 'direnv, mise and asdf, when a shell enters the folder',
  },
  {
    paths: [
      '.vscode',
      '*.code-workspace',
      '.vs',
      '.idea',
      '.fleet',
      '.theia',
      '.nova',
      '.zed',
      '.bsp',
      '.helix',
      '.exrc',
      '.nvimrc',
      '.nvim.lua',
      '.lazy.lua',
      '.vimrc',
      '.gvimrc',
      '.vim/coc-settings.json',
      'hie.yaml',
      '.devcontainer',
      '.devcontainer.json',
    ],
    runBy: 'editors, when they open the folder: tasks, paths of programs, commands of containers on the host',
  },
  {
    paths: [
      '.claude',
      '.cursor',
      '.codex',
      '.gemini',
      '.windsurf',
      '.kiro',
      '.roo',
      '.qwen',
      '.factory',
      '.opencode',
      'opencode.json',
      'opencode.jsonc',
      '.continue',
      '.junie',
      '.amazonq',
      '.aider.conf.yml',
      'crush.json',
      '.crush.json',
      '.mcp.json',
      '.github/hooks',
      '.kilocode',
      '.trae',
      '.openhands',
      '.amp',
      '.pi',
      '.cline',
      '.clinerules/hooks',
      '.agents/hooks.json',
      '.agents/mcp_config.json',
      '.augment',
      '.tabnine',
      '.iflow',
      '.codebuddy',
      '.qoder',
      '.grok',
      '.vibe',
      '.github/copilot',
      '.github/lsp.json',
      'lsp.json',
    ],
    runBy: 'other coding agents, at their start: hooks, commands, MCP servers',
  },
  {
    paths: [
      '.npmrc',
      '.yarnrc',
      '.yarnrc.yml',
      '.pnpmfile.cjs',
      '.pnpmfile.mjs',
      'pnpm-workspace.yaml',
      'bunfig.toml',
      '.mvn',
      '.cargo/config',
      '.cargo/config.toml',
      'rust-toolchain.toml',
      'rust-toolchain',
      'global.json',
    ],
    runBy: 'npm, Yarn, pnpm, Bun, Maven, Cargo, rustup and .NET, at any command: other programs in place of their own',
  },
  {
    paths: ['tools/bazel', '.bazelrc', '.bazelversion', '.bazeliskrc'],
    runBy: 'Bazelisk and Bazel, at any command: another program in place of Bazel, or of its Java',
    isReadInSandbox: true,
  },
  {
    paths: [
      '.Rprofile',
      '.Renviron',
      '.RData',
      '.ghci',
      '.irbrc',
      'irbrc',
      'irb.rc',
      '_irbrc',
      '$irbrc',
      '.pryrc',
      '.psysh.php',
      '.ocamlinit',
      '.iex.exs',
      '.octaverc',
      'startup.m',
      '.latexmkrc',
      'latexmkrc',
      '.gdbinit',
      '.lldbinit',
      '.pdbrc',
      '.rdbgrc',
      '.byebugrc',
      '.perldb',
    ],
    runBy:
      'interpreters of R, Haskell, Ruby, PHP, OCaml, Elixir, Octave and MATLAB, latexmk, and debuggers, when they start in the folder',
    isReadInSandbox: true,
  },
  {
    paths: [
      '.pawl',
      ...['json', 'ts', 'mts', 'cts', 'js', 'mjs', 'cjs'].map((extension) => `pawl.config.${extension}`),
    ],
    runBy: 'Pawl, at any command in the folder: settings, keys, and calls that wait',
  },
];

const DEFAULT_READ_ONLY_PATHS = OWNER_FILES.flatMap(({ paths }) => paths);

/** The paths of the setting `readOnlyPaths`. In a list of its own, an operator includes all built-in ones as `default`. */
export function readOnlyPathsOf(setting: readonly string[] | undefined): readonly string[] {
  if (setting === undefined) return DEFAULT_READ_ONLY_PATHS;
  return setting.flatMap((path) =>
    path === 'default' ? DEFAULT_READ_ONLY_PATHS : [path.replaceAll(/^(?:\*\*\/|\/)+|\/+$/g, '')],
  );
}
