/**
 * Finds what the settings of git, Yarn and direnv name: hooks, included files, programs of filters and aliases, Yarn's own program and its
 * plugins; and what links in place of the owner's files, or among hooks, lead to. Calls cannot change the settings and the links, so they
 * may not change these either.
 */
import { existsSync, lstatSync, readdirSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { readSmallFile } from './small-file.ts';

/** The most files that a repository's configuration may include, scripts of hooks, and bytes of one file. A call may have made them. */
const MAX_INCLUDES = 20;
const MAX_SCRIPTS = 200;
const MAX_BYTES = 64 * 1_024;
const YARN_SETTINGS = ['.yarnrc.yml', '.yarnrc'];
const DIRENV_SETTINGS = '.envrc';
/** direnv asks its user about a changed `.envrc`, and not about what that sources. */
const SOURCED =
  /(?:^|[\s;&|(])(?<command>source_env(?:_if_exists)?|dotenv(?:_if_exists)?|use[ \t_]+(?:flake|nix|devenv|devbox|flox|guix)|devbox(?=[ \t]+(?:generate|shellenv))|source|\.)(?![^\s;&|#])(?:[ \t]+(?!-)["']?(?<path>[^\s"';&|#$`]+))?/gm;
/** Folders of hooks, in which a link stands for a hook. */
const HOOK_FOLDERS = ['.husky', '.githooks'];
const HOOK_SETTINGS = /^\.?(?:lefthook|pre-commit-config|captainhook|grumphp)\b/;
/** The programs of a hook, by a path; behind an interpreter, too. What package managers install is none. */
const STARTED =
  /(?:^|[;&|({!]|\b(?:exec|env|(?:ba|z|da)?sh|node|tsx|bun|python3?|ruby|perl|php|source|then|do|else)[ \t]|(?:entry|run|script|action)"?:[ \t])[ \t]*["']?(?![\w./-]{0,200}(?:node_modules|\.venv|vendor)\/)(?<path>\.{0,2}\/[\w./-]{1,200}|[\w.-]{1,100}\/[\w./-]{1,200})/gm;

/**
 * The paths, existing or not, that these settings in the folders name, also by their real paths. `readOnly` are the patterns of the
 * owner's files: settings that calls may change name nothing.
 */
export function pathsNamedIn(folders: readonly string[], readOnly: readonly string[]): readonly string[] {
  const firstNames = new Set(readOnly.map(firstNameOf));
  return folders.flatMap((folder) => {
    // Most folders hold none of the owner's files. One that cannot be listed may.
    const present = orUndefined(() => readdirSync(folder));
    if (present === undefined ? !existsSync(folder) : !present.some((name) => firstNames.has(name))) return [];
    const hasGit = readOnly.some((pattern) => pattern.startsWith('.git/'));
    const git = hasGit ? gitFoldersOf(folder) : undefined;
    const read = new Set<string>();
    const namedByGit = git === undefined ? [] : configsOf(git).flatMap((config) => pathsIn(config, folder, read));
    const named = [
      ...namedByGit,
      ...linkTargets(
        folder,
        present === undefined ? readOnly : readOnly.filter((name) => present.includes(firstNameOf(name))),
      ),
      ...YARN_SETTINGS.filter((name) => readOnly.includes(name)).flatMap((name) =>
        filesIn(textOf(join(folder, name)), folder),
      ),
      ...(readOnly.includes(DIRENV_SETTINGS) ? sourcedIn(textOf(join(folder, DIRENV_SETTINGS)), folder) : []),
    ];
    const hooks = [
      ...(git === undefined ? [] : [join(git.common, 'hooks'), ...namedByGit]),
      ...HOOK_FOLDERS.filter((name) => readOnly.includes(name)).map((name) => join(folder, name)),
    ].flatMap((each) => [...linkTargets(each, linksIn(each)), ...scriptsIn(hooksIn(each), folder)]);
    const settings = (present ?? []).filter((name) => HOOK_SETTINGS.test(name) && readOnly.includes(name));
    const scripts = scriptsIn(
      settings.map((name) => join(folder, name)),
      folder,
    );
    const real = named
      .filter((path) => orUndefined(() => statSync(path)) !== undefined)
      .map((path) => realpathSync(path));
    // A whole working tree is none of git's instructions.
    return [...named, ...real, ...hooks, ...scripts].filter((path) => !liesIn(path, folder));
  });
}

function firstNameOf(pattern: string): string {
  return pattern.split('/', 1)[0] ?? '';
}

/** The folder and all above it. */
export function foldersAbove(folder: string): readonly string[] {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...foldersAbove(parent)];
}

/** The targets, existing or not, of the names in a folder that are links or lie in one. */
function linkTargets(folder: string, names: readonly string[]): readonly string[] {
  return names.flatMap((name) => {
    const path = join(folder, name);
    if (!isLink(join(folder, firstNameOf(name))) && !isLink(path)) return [];
    return (
      orUndefined(() => realpathSync(path)) ??
      orUndefined(() => resolve(realpathSync(dirname(path)), readlinkSync(path))) ??
      []
    );
  });
}

function linksIn(folder: string): readonly string[] {
  const entries = orUndefined(() => readdirSync(folder, { withFileTypes: true })) ?? [];
  return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
}

/** The files in a folder of hooks. Git's samples do not run. */
function hooksIn(folder: string): readonly string[] {
  const names = orUndefined(() => readdirSync(folder)) ?? [];
  return names.filter((name) => !name.endsWith('.sample')).map((name) => join(folder, name));
}

/** The files that hooks run, from the folder of the repository. */
function scriptsIn(hooks: readonly string[], folder: string): readonly string[] {
  const named = hooks.flatMap((hook) =>
    [...textOf(hook).matchAll(STARTED)].map(({ groups }) => groups?.['path'] ?? ''),
  );
  const paths = [...new Set(named)].slice(0, MAX_SCRIPTS).map((path) => resolve(folder, path));
  return paths.filter((path) => orUndefined(() => statSync(path))?.isFile() === true);
}

function isLink(path: string): boolean {
  return orUndefined(() => lstatSync(path, { throwIfNoEntry: false }))?.isSymbolicLink() === true;
}

interface GitFolders {
  readonly own: string;
  readonly common: string;
}

function gitFoldersOf(folder: string): GitFolders | undefined {
  const link = join(folder, '.git');
  const stats: Stats | undefined = orUndefined(() => statSync(link));
  if (stats === undefined) return undefined;
  // In a worktree and in a submodule, `.git` is a file that names the folder.
  const [, named = ''] = stats.isFile() ? (/^gitdir:\s*(.*)/.exec(textOf(link)) ?? []) : [];
  const own = stats.isFile() ? resolve(folder, named.trim()) : link;
  return { own, common: resolve(own, textOf(join(own, 'commondir')).trim() || '.') };
}

function configsOf({ own, common }: GitFolders): readonly string[] {
  return [join(common, 'config'), join(own, 'config.worktree')];
}

/** `read` are the files that were read before this one. */
function pathsIn(config: string, folder: string, read: Set<string>): readonly string[] {
  if (read.size >= MAX_INCLUDES || read.has(config)) return [];
  read.add(config);
  return entriesOf(textOf(config)).flatMap(({ section, key, value }) => {
    if (section === 'core' && key === 'hookspath') return [resolve(folder, withHome(value))];
    if (!section.startsWith('include') || key !== 'path') return filesIn(value, folder);
    const included = resolve(dirname(config), withHome(value));
    return [included, ...pathsIn(included, folder, read)];
  });
}

/** The files of other tools whose commands direnv runs. */
const USED: Readonly<Record<string, readonly string[]>> = {
  nix: ['shell.nix', 'default.nix'],
  devenv: ['devenv.nix', 'devenv.yaml', 'devenv.lock', 'devenv.local.nix'],
  devbox: ['devbox.json', 'devbox.lock'],
  flox: ['.flox/env.json', '.flox/env/manifest.toml', '.flox/env/manifest.lock'],
  guix: ['guix.scm', 'manifest.scm'],
};

/** Existing or not. Of a folder, direnv loads `.envrc`, which is read-only anyway. */
function sourcedIn(text: string, folder: string): readonly string[] {
  const names = [...text.matchAll(SOURCED)].flatMap(({ groups = {} }) => {
    const { command = '', path } = groups;
    if (command.endsWith('flake')) return ['flake.nix', 'flake.lock'].map((name) => join(withHome(path ?? '.'), name));
    const used = Object.entries(USED).find(([name]) => command.endsWith(name))?.[1] ?? [];
    if (path !== undefined && !command.endsWith('devbox')) return [withHome(path), ...used];
    return command.startsWith('dotenv') ? ['.env'] : used;
  });
  const paths = names.map((name) => resolve(folder, name));
  return paths.filter((path) => orUndefined(() => statSync(path))?.isDirectory() !== true);
}

/** Git and shells take `~` for the home folder. */
function withHome(path: string): string {
  return path.replace(/^~(?=\/)/, homedir());
}

/** The files that a command line or a list names; its other words are no paths. */
function filesIn(text: string, folder: string): readonly string[] {
  const words = text.split(/[\s'"!=;|&()<>,]+/).filter(Boolean);
  return words
    .map((word) => resolve(folder, withHome(word)))
    .filter((path) => orUndefined(() => statSync(path))?.isFile() === true);
}

interface Entry {
  readonly section: string;
  readonly key: string;
  readonly value: string;
}

/** A name and its value, up to a comment that stands outside of quotes. */
const ENTRY = /^\s*([\w-]+)\s*=\s*((?:"(?:[^"\\]|\\.)*"|\\.|[^"\\#;])*)/;

/** Reads the form that `git help config` describes, as far as paths need it. */
function entriesOf(text: string): readonly Entry[] {
  let section = '';
  const entries: Entry[] = [];
  for (const line of text.replaceAll(/\\\r?\n/g, '').split(/\r?\n/)) {
    const head = /^\s*\[\s*([\w.-]+)[^\]]*\]/.exec(line);
    section = head?.[1]?.toLowerCase() ?? section;
    const [, key = '', value = ''] = ENTRY.exec(line.slice(head?.[0].length ?? 0)) ?? [];
    if (key !== '') entries.push({ section, key: key.toLowerCase(), value: value.trim().replaceAll(/\\(.)|"/g, '$1') });
  }
  return entries;
}

/** Empty for what is no small file. */
function textOf(file: string): string {
  return readSmallFile(file, MAX_BYTES) ?? '';
}
