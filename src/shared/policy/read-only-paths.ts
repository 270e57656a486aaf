/** The files of a workspace that calls leave as they are. */
import { words } from '../util/text/words.ts';

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
    paths: words(`
      .git/hooks .git/config .git/config.worktree .git/commondir
      .git/modules/**/hooks .git/modules/**/config .git/modules/**/config.worktree .git/modules/**/commondir
      .git/worktrees/*/config.worktree .git/worktrees/*/commondir .git/worktrees/*/gitdir
      .git/rebase-merge .git/modules/**/rebase-merge .git/worktrees/*/rebase-merge
      .git/sequencer .git/modules/**/sequencer .git/worktrees/*/sequencer
      .git/sl/config .hg/hgrc .hg/hgrc-not-shared .hg/sharedpath .sl/config .sl/sharedpath .jj/repo/config.toml
      .jj/workspace-config.toml .pijul/config _darcs/prefs/defaults .repo/repo .gclient
    `),
    runBy: 'git, Mercurial, Sapling, Jujutsu, Pijul, Darcs, repo and gclient, at any command: a shell prompt suffices',
  },
  {
    paths: [
      ...['.husky', '.githooks'],
      ...words('yml yaml toml json jsonc').flatMap((extension) =>
        ['lefthook', 'lefthook-local'].flatMap((name) => [
          `${name}.${extension}`,
          `.${name}.${extension}`,
          `.config/${name}.${extension}`,
        ]),
      ),
      ...words(`
        .lefthook .lefthook-local .pre-commit-config.yaml .pre-commit-config.yml prek.toml .overcommit.yml
        hk.pkl .config/hk.pkl hk.local.pkl .config/hk.local.pkl
        captainhook.json captainhook.config.json grumphp.yml grumphp.yml.dist
      `),
    ],
    runBy: 'git hooks, at a commit, a checkout or a push',
  },
  {
    paths: words(`
      .envrc mise.toml .mise.toml mise.local.toml .mise.local.toml .mise/config.toml .mise/config.local.toml
      mise/config.toml mise/config.local.toml .config/mise.toml .config/mise.local.toml .config/mise .miserc.toml
      .tool-versions .direnv .prototools .autoenv.zsh .shadowenv.d bin/hermit bin/hermit.hcl bin/activate-hermit
    `),
    runBy: 'direnv, mise, asdf, proto, zsh-autoenv, Shadowenv and Hermit, when a shell enters the folder',
  },
  {
    paths: words(`
      .vscode *.code-workspace .vs .idea .fleet .theia .nova .zed .bsp .helix .exrc .nvimrc .nvim.lua .lazy.lua
      .vimrc .gvimrc .vim/coc-settings.json hie.yaml .devcontainer .devcontainer.json .dir-locals.el .dir-locals-2.el
      *.sublime-project .project .externalToolBuilders .factorypath .settings .kateproject .lvimrc .local.vimrc
    `),
    runBy: 'editors, when they open the folder: tasks, paths of programs, commands of containers on the host',
  },
  {
    paths: words(`
      rust-analyzer.toml .rust-analyzer.toml .luarc.json .luarc.jsonc .solargraph.yml .phpactor.json .phpactor.yml
      .sourcekit-lsp omnisharp.json .merlin
    `),
    runBy: 'language servers, when an editor opens the folder: commands and plugins',
    isReadInSandbox: true,
  },
  {
    paths: words(`
      .claude .cursor .codex .gemini .windsurf .kiro .roo .qwen .factory .opencode opencode.json opencode.jsonc
      .continue .junie .amazonq .aider.conf.yml crush.json .crush.json .mcp.json .github/hooks .kilocode .trae
      .openhands .amp .pi .cline .clinerules/hooks .agents/hooks.json .agents/mcp_config.json .augment .tabnine
      .iflow .codebuddy .qoder .grok .vibe .github/copilot .github/lsp.json lsp.json gptme.toml
    `),
    runBy: 'other coding agents, at their start: hooks, commands, MCP servers',
  },
  {
    paths: words(`
      .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs pnpm-workspace.yaml bunfig.toml .mvn .cargo/config
      .cargo/config.toml rust-toolchain.toml rust-toolchain global.json .corepack.env ansible.cfg
    `),
    runBy:
      'npm, Yarn, pnpm, Bun, Corepack, Maven, Cargo, rustup, .NET and Ansible, at any command: other programs in place of their own',
  },
  {
    paths: ['tools/bazel', '.bazelrc', '.bazelversion', '.bazeliskrc'],
    runBy: 'Bazelisk and Bazel, at any command: another program in place of Bazel, or of its Java',
    isReadInSandbox: true,
  },
  {
    paths: words(`
      .Rprofile .Renviron .RData .ghci .irbrc irbrc irb.rc _irbrc $irbrc .pryrc .psysh.php .ocamlinit .iex.exs
      .octaverc startup.m .latexmkrc latexmkrc .gdbinit .lldbinit .pdbrc .rdbgrc .byebugrc .perldb .jdbrc jdb.ini
      .erlang .nrepl.edn .matlab7rc.sh
    `),
    runBy:
      'interpreters of R, Haskell, Ruby, PHP, OCaml, Elixir, Erlang, Clojure, Octave and MATLAB, latexmk, and debuggers, when they start in the folder',
    isReadInSandbox: true,
  },
  {
    paths: ['.pawl', ...words('json ts mts cts js mjs cjs').map((extension) => `pawl.config.${extension}`)],
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
