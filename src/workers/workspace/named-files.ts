/**
 * Finds what the settings of git, Yarn and direnv name: hooks, included files, programs of filters and aliases, Yarn's own program and its
 * plugins. Calls cannot change the settings, so they may not change these either.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, type Stats, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { liesIn } from '../../shared/util/file-path.ts';

/** The most files that a repository's configuration may include, and the most bytes of one that are read. A call may have made them. */
const MAX_INCLUDES = 20;
const MAX_BYTES = 64 * 1_024;
const YARN_SETTINGS = ['.yarnrc.yml', '.yarnrc'];
const DIRENV_SETTINGS = '.envrc';
/** direnv asks its user about a changed `.envrc`, and not about what that sources. */
const SOURCED = /(?:^|[\s;&|])(?:source_env|source_env_if_exists|source|\.)\s+["']?(?<path>[^\s"';&|#$`]+)/gm;

/**
 * The paths, existing or not, that these settings in the folders name, also by their real paths. `readOnly` are the patterns of the
 * owner's files: settings that calls may change name nothing.
 */
export function pathsNamedIn(folders: readonly string[], readOnly: readonly string[]): readonly string[] {
  const hasGit = readOnly.some((pattern) => pattern.startsWith('.git/'));
  const yarnSettings = YARN_SETTINGS.filter((name) => readOnly.includes(name));
  const hasDirenv = readOnly.includes(DIRENV_SETTINGS);
  return folders.flatMap((folder) => {
    const read = new Set<string>();
    const named = [
      ...(hasGit ? configsOf(folder).flatMap((config) => pathsIn(config, folder, read)) : []),
      ...yarnSettings.flatMap((name) => filesIn(textOf(join(folder, name)), folder)),
      ...(hasDirenv ? sourcedIn(textOf(join(folder, DIRENV_SETTINGS)), folder) : []),
    ];
    const real = named.filter((path) => attempt(() => statSync(path)) !== undefined).map((path) => realpathSync(path));
    // A whole working tree is none of git's instructions.
    return [...named, ...real].filter((path) => !liesIn(path, folder));
  });
}

/** The folder and all above it. */
export function foldersAbove(folder: string): readonly string[] {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...foldersAbove(parent)];
}

function configsOf(folder: string): readonly string[] {
  const link = join(folder, '.git');
  const stats: Stats | undefined = attempt(() => statSync(link));
  if (stats === undefined) return [];
  // In a worktree and in a submodule, `.git` is a file that names the folder.
  const [, named = ''] = stats.isFile() ? (/^gitdir:\s*(.*)/.exec(textOf(link)) ?? []) : [];
  const own = stats.isFile() ? resolve(folder, named.trim()) : link;
  const common = resolve(own, textOf(join(own, 'commondir')).trim() || '.');
  return [join(common, 'config'), join(own, 'config.worktree')];
}

/** `read` are the files that were read before this one. */
function pathsIn(config: string, folder: string, read: Set<string>): readonly string[] {
  if (read.size >= MAX_INCLUDES || read.has(config)) return [];
  read.add(config);
  return entriesOf(textOf(config)).flatMap(({ section, key, value }) => {
    if (section === 'core' && key === 'hookspath') return [resolve(folder, value)];
    if (!section.startsWith('include') || key !== 'path') return filesIn(value, folder);
    const included = resolve(dirname(config), value);
    return [included, ...pathsIn(included, folder, read)];
  });
}

/** Existing or not. Of a folder, direnv loads `.envrc`, which is read-only anyway. */
function sourcedIn(text: string, folder: string): readonly string[] {
  const paths = [...text.matchAll(SOURCED)].map(({ groups }) => resolve(folder, groups?.['path'] ?? ''));
  return paths.filter((path) => attempt(() => statSync(path))?.isDirectory() !== true);
}

/** The files that a command line or a list names; its other words are no paths. */
function filesIn(text: string, folder: string): readonly string[] {
  const words = text.split(/[\s'"!=;|&()<>,]+/).filter(Boolean);
  return words.map((word) => resolve(folder, word)).filter((path) => attempt(() => statSync(path))?.isFile() === true);
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

/** Empty for what is no file: to open a pipe could wait for ever. */
function textOf(file: string): string {
  return attempt(() => readSmallFile(file)) ?? '';
}

function readSmallFile(file: string): string {
  const handle = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(handle);
    return stats.isFile() && stats.size <= MAX_BYTES ? readFileSync(handle, 'utf8') : '';
  } finally {
    closeSync(handle);
  }
}

/** Undefined for a file that does not exist, or that cannot be read: git cannot read it either. */
function attempt<Value>(read: () => Value): Value | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
