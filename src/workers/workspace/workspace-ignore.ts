/** Applies the ignore files of a workspace to its searches. */
import { constants } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { type IgnoreRule, ignoreRules, pathBytes } from './ignore-rules.ts';
import { entryPath, type Folder, inFolder, statEntry, withLocation } from './safe-path.ts';

/** The largest ignore file. Every path is compared with every line of it. */
export const MAX_IGNORE_BYTES = 128 * 1024;
/** The files in order of precedence; of two files of one name, the deeper folder's counts. Both as in ripgrep. */
const IGNORE_FILES = ['.rgignore', '.ignore', '.gitignore', '.git/info/exclude'] as const;

const IGNORE_ENTRIES = IGNORE_FILES.map((name) => ({ name: name.split('/')[0] ?? '' }));
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** Like Git, no symbolic link is followed. */
const OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;

/** An ignore file of one folder, whose patterns are relative to it. */
export interface IgnoreLevel {
  readonly name: (typeof IGNORE_FILES)[number];
  /** The folder's path from the root. */
  readonly folder: string;
  /** The path from the ignore file's folder to the root, where that folder is above the root. */
  readonly pathToRoot?: string;
  /** The last rule that matches decides. */
  readonly rules: readonly IgnoreRule[];
  /** A rule begins with "!". */
  readonly hasNegation: boolean;
}

/** Whether the ignore files exclude a path from the root; undefined when no rule mentions it. */
export function isIgnored(path: string, isDirectory: boolean, levels: readonly IgnoreLevel[]): boolean | undefined {
  const name = pathBytes(basename(path));
  for (const file of IGNORE_FILES) {
    for (const { folder, pathToRoot = '', rules } of levels.filter((level) => level.name === file).reverse()) {
      const below = pathBytes(folder === '' ? join(pathToRoot, path) : path.slice(folder.length + 1));
      const rule = rules.findLast(
        (each) => (isDirectory || !each.foldersOnly) && each.test(each.isPath ? below : name),
      );
      if (rule !== undefined) return !rule.isNegated;
    }
  }
  return undefined;
}

/** Whether the ignore files of the folders above exclude a folder, or one on the way to it. */
export function isBelowIgnored(path: string, levels: readonly IgnoreLevel[]): boolean {
  for (let folder = path; folder !== '' && folder !== '.'; folder = dirname(folder)) {
    const above = levels.filter((level) => level.folder === '' || folder.startsWith(level.folder + sep));
    if (isIgnored(folder, true, above) === true) return true;
  }
  return false;
}

/**
 * Reads the ignore files of the folders above the root, up to the repository that it lies in. There are none if the root is a repository,
 * or if they exclude the root itself.
 */
export async function readLevelsAboveRoot(root: string): Promise<readonly IgnoreLevel[]> {
  const repository = await repositoryOf(root);
  if (repository === undefined || repository === root) return [];
  const path = relative(repository, root);
  const names = path.split(sep);
  let levels: readonly IgnoreLevel[] = [];
  for (const index of names.keys()) {
    const above = names.slice(0, index).join(sep);
    const folder = join(repository, above);
    const handle = await open(folder, O_RDONLY | O_DIRECTORY).catch(() => undefined);
    if (handle === undefined) continue;
    try {
      levels = await withIgnoreFile({ handle, path: folder }, above, IGNORE_ENTRIES, levels);
    } finally {
      await handle.close();
    }
  }
  if (isBelowIgnored(path, levels)) return [];
  return levels.map((level) => ({ ...level, folder: '', pathToRoot: relative(join(repository, level.folder), root) }));
}

async function repositoryOf(folder: string): Promise<string | undefined> {
  if ((await lstat(join(folder, '.git')).catch(() => undefined)) !== undefined) return folder;
  return dirname(folder) === folder ? undefined : repositoryOf(dirname(folder));
}

/** Reads the ignore files of the root, and of the folders between it and `path`. */
export async function readParentLevels(
  root: string,
  path: string,
  aboveRoot: readonly IgnoreLevel[],
): Promise<readonly IgnoreLevel[]> {
  const names = path === '' ? [] : path.split(sep);
  let levels = aboveRoot;
  for (const index of names.keys()) {
    const above = names.slice(0, index).join(sep);
    levels = await withLocation(root, above || '.', 'keep', (location) =>
      inFolder(location, above, (folder) => withIgnoreFile(folder, above, IGNORE_ENTRIES, levels)),
    );
  }
  return levels;
}

/** Adds a folder's own ignore files to the levels above. It opens only the files among `entries`. */
export async function withIgnoreFile(
  folder: Folder,
  folderPath: string,
  entries: readonly { readonly name: string }[],
  above: readonly IgnoreLevel[],
): Promise<readonly IgnoreLevel[]> {
  const names = new Set(entries.map((each) => each.name));
  // As in Git, the rules of a repository end where another one begins within it.
  const isRepository = folderPath !== '' && names.has('.git') && (await statEntry(folder, '.git')) !== undefined;
  let levels = isRepository ? above.filter(({ name }) => !name.startsWith('.git')) : above;
  for (const name of IGNORE_FILES) {
    const content = names.has(name.split('/')[0] ?? '') ? await readIgnoreFile(folder, name) : undefined;
    if (content === undefined) continue;
    const rules = ignoreRules(content);
    levels = [...levels, { name, folder: folderPath, rules, hasNegation: rules.some((each) => each.isNegated) }];
  }
  return levels;
}

/** One character for each byte; undefined when there is no such file. */
async function readIgnoreFile(folder: Folder, path: string): Promise<string | undefined> {
  const [name = '', ...rest] = path.split('/');
  const handle = await open(entryPath(folder, name), OPEN_FILE).catch(() => undefined);
  if (handle === undefined) return undefined;
  try {
    const isFolder = (await handle.stat()).isDirectory();
    if (rest.length > 0 && isFolder)
      return await readIgnoreFile({ handle, path: join(folder.path, name) }, rest.join('/'));
    const content = await readSmallFile(handle);
    if (rest.length === 0) return content?.toString('latin1');
    return content && (await readFromRepository(folder.path, content.toString(), rest.join('/')));
  } finally {
    await handle.close();
  }
}

/**
 * The `.git` of a worktree or a submodule is a file that names the folder of its repository. What all worktrees of a repository share lies in
 * another folder.
 */
async function readFromRepository(folder: string, link: string, path: string): Promise<string | undefined> {
  const [, named] = /^gitdir: (.+)$/m.exec(link) ?? [];
  if (named === undefined) return undefined;
  const repository = resolve(folder, named);
  const shared = (await readSmallFileAt(join(repository, 'commondir')))?.toString().trim() ?? '';
  return (await readSmallFileAt(resolve(repository, shared, path)))?.toString('latin1');
}

async function readSmallFileAt(path: string): Promise<Buffer | undefined> {
  const handle = await open(path, OPEN_FILE).catch(() => undefined);
  try {
    return handle && (await readSmallFile(handle));
  } finally {
    await handle?.close();
  }
}

async function readSmallFile(handle: FileHandle): Promise<Buffer | undefined> {
  const stats = await handle.stat();
  return stats.isFile() && stats.size <= MAX_IGNORE_BYTES ? handle.readFile() : undefined;
}
