/**
 * Finds the files that the owner of a workspace runs later (`read-only-paths.ts`) by name: for file tools in a path,
 * for sandboxes in a folder.
 */
import { type Dirent, existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import { isPlaceholder } from '../sandbox/placeholders.ts';

/** The limits of a search, in folders. It runs before every program. */
const MAX_FOLDERS = 10_000;
const MAX_FOLDERS_OF_REPOSITORIES = 2_000;
const CONCURRENCY = 64;
const NOT_SEARCHED = new Set(['node_modules', '.git', '.hg']);
const GIT_OBJECTS = /\/objects\/(?:[0-9a-f]{2}|pack|info)$/;

/** File systems that ignore case take `ſ` for `s`, too. */
export const foldCase = (name: string): string => name.toUpperCase().toLowerCase();
const namesOf = (path: string): readonly string[] => foldCase(path).split('/').filter(Boolean);

/**
 * Whether one of `patterns` names the absolute `path` or a folder above it, in the workspace with this real root. The
 * root itself may lie in such a folder, as worktrees of agents do, but not in a repository's own. A name that leads to
 * a repository is git's, too.
 */
export function isOwnerFile(path: string, root: string, patterns: readonly string[], isFolder: boolean): boolean {
  const names = namesOf(path);
  const depth = namesOf(root).length;
  if (patterns.some((pattern) => pattern.startsWith('.git/'))) {
    if (!isFolder && (names.at(-1) === '.git' || basename(path) === BARE_HEAD)) return true;
    if (BARE_CONTENT.some((part) => liesInBareRepository(path, part))) return true;
  }
  // As `.git`, this names the repository if it is a file.
  if (
    !isFolder &&
    names.at(-1) === 'repo' &&
    names.at(-2) === '.jj' &&
    patterns.some((each) => each.startsWith('.jj/'))
  )
    return true;
  return patterns.some((pattern) => {
    const parts = pattern.toLowerCase().split('/');
    const isGits = NOT_SEARCHED.has(parts[0] ?? '');
    // The root may lie on the way to the file.
    const isBelowRoot = (from: number) => isGits || from + parts.length > depth;
    return names.some((_, from) => isBelowRoot(from) && startsWithPattern(names.slice(from), parts));
  });
}

/** Whether a folder, named from the folder of the workspaces, is the owner's. Agents have worktrees in such folders. */
export function isOwnerFolder(folder: string, patterns: readonly string[]): boolean {
  const names = namesOf(folder);
  return patterns.some((pattern) => {
    const parts = pattern.toLowerCase().split('/');
    return names.some((_, from) => {
      const [next, ...below] = names.slice(from + parts.length);
      return startsWithPattern(names.slice(from), parts) && !(next === 'worktrees' && below.length > 0);
    });
  });
}

/** The rests of a pattern below a folder whose path ends with the pattern's first names. */
function restsBelow(folder: string, parts: readonly string[]): readonly (readonly string[])[] {
  const names = namesOf(folder);
  return parts.slice(1).flatMap((_, index) => {
    const first = parts.slice(0, index + 1);
    const isMatch =
      !first.includes('**') && names.length >= first.length && startsWithPattern(names.slice(-first.length), first);
    return isMatch ? [parts.slice(index + 1)] : [];
  });
}

/** Git takes any folder with these names for a repository, and runs what its settings say. A folder with a `.git` is none of them. */
export const BARE_HEAD = 'HEAD';
const BARE_CONTENT = ['config', 'config.worktree', 'hooks', 'commondir', 'rebase-merge', 'sequencer'];

/** `commondir` names another folder in which the objects and references are. */
function isBareRepository(has: (name: string) => boolean): boolean {
  return has(BARE_HEAD) && (has('commondir') || (has('objects') && has('refs')));
}

function liesInBareRepository(path: string, part: string): boolean {
  const index = `${path}/`.indexOf(`/${part}/`);
  return index > 0 && isBareRepository((name) => existsSync(join(path.slice(0, index), name)));
}

function startsWithPattern(names: readonly string[], [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return true;
  if (first === '**')
    return startsWithPattern(names, rest) || (names.length > 0 && startsWithPattern(names.slice(1), [first, ...rest]));
  const [name, ...remaining] = names;
  return name !== undefined && matchesName(name, first) && startsWithPattern(remaining, rest);
}

/** `*` is any name, and `*.x` any name with this end. */
function matchesName(name: string, pattern: string): boolean {
  return pattern.startsWith('*') ? name.endsWith(pattern.slice(1)) : name === pattern;
}

export interface FoundOwnerFiles {
  /** Real paths of files and folders. */
  readonly present: readonly string[];
  /** Folders with too many others to search them for a pattern with `**`. */
  readonly tooLarge: readonly string[];
  /** The first missing name on the way to each of the others: directly in the root, or in a repository. */
  readonly absent: readonly string[];
  /** Folders that git takes for a repository, without one of their own. */
  readonly bareRepositories: ReadonlySet<string>;
  /** All folders that were searched. */
  readonly folders: ReadonlySet<string>;
  /** Whether the search reached every folder. */
  readonly isComplete: boolean;
}

/**
 * Finds the owner's files below a folder, given by its real path. The deepest part of a very large folder is not
 * searched: the search goes level by level, so that the limit never hides folders near the root. The `known` folders
 * are searched in any case: a program could make many new ones.
 */
export async function findOwnerFiles(
  root: string,
  patterns: readonly string[],
  known: ReadonlySet<string> = new Set(),
): Promise<FoundOwnerFiles> {
  const search = new OwnerFileSearch(known);
  const patternParts = patterns.map((pattern) => pattern.split('/'));
  const isGit = patterns.some((pattern) => pattern.startsWith('.git/'));
  const searchFolder = async (folder: string): Promise<readonly string[]> => {
    const entries = await search.list(folder);
    const present = new Set(entries.map(({ name }) => foldCase(name)));
    for (const pattern of patternParts)
      if (folder === root || present.has((pattern[0] ?? '').toLowerCase()))
        await search.matchPattern(folder, pattern, true);
    if (folder === root)
      for (const rest of patternParts.flatMap((parts) => restsBelow(root, parts)))
        await search.matchPattern(root, rest, true);
    if (isGit) await search.matchBareRepository(folder, folder === root);
    search.forget(folder);
    return entries
      .filter((entry) => entry.isDirectory() && !NOT_SEARCHED.has(entry.name))
      .map(({ name }) => join(folder, name));
  };
  let level: readonly string[] = [root];
  let remainingFolders = MAX_FOLDERS;
  for (;;) {
    const unknown = level.filter((folder) => !known.has(folder));
    const searched = [...level.filter((folder) => known.has(folder)), ...unknown.slice(0, remainingFolders)];
    if (searched.length === 0) break;
    const next: string[] = unknown.slice(remainingFolders);
    remainingFolders = Math.max(0, remainingFolders - unknown.length);
    for (let start = 0; start < searched.length; start += CONCURRENCY)
      for (const matches of await Promise.all(searched.slice(start, start + CONCURRENCY).map(searchFolder)))
        next.push(...matches);
    level = next;
  }
  const isComplete = search.isComplete && level.length === 0;
  const { present, tooLarge, absent, bareRepositories, folders } = search;
  return { present: [...present], tooLarge: [...tooLarge], absent: [...absent], bareRepositories, folders, isComplete };
}

class OwnerFileSearch {
  readonly present = new Set<string>();
  readonly tooLarge = new Set<string>();
  readonly absent = new Set<string>();
  readonly bareRepositories = new Set<string>();
  readonly folders = new Set<string>();
  /** Whether every folder could be read. */
  isComplete = true;
  readonly #known: ReadonlySet<string>;
  readonly #listed = new Map<string, Promise<readonly Dirent[]>>();

  constructor(known: ReadonlySet<string>) {
    this.#known = known;
  }

  /** Lists a folder once for all patterns. */
  list(folder: string): Promise<readonly Dirent[]> {
    this.folders.add(folder);
    return getOrInsert(this.#listed, folder, () =>
      readdir(folder, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') this.isComplete = false;
        return [];
      }),
    );
  }

  forget(folder: string): void {
    this.#listed.delete(folder);
  }

  async matchPattern(folder: string, [first, ...rest]: readonly string[], recordMissing: boolean): Promise<void> {
    if (first === undefined) return void this.present.add(folder);
    if (first === '**') return this.#matchAnywhere(folder, rest);
    const entries = await this.list(folder);
    const anyName = first.startsWith('*');
    const matching = entries.filter(({ name }) => matchesName(foldCase(name), first.toLowerCase()));
    if (matching.length === 0 && !anyName && recordMissing) this.absent.add(join(folder, first));
    for (const entry of matching) {
      const path = join(folder, entry.name);
      if (entry.isDirectory() && !anyName && isPlaceholder(path)) this.absent.add(path);
      else if (entry.isDirectory()) await this.matchPattern(path, rest, recordMissing && !anyName);
      // A `.git` that is a file decides which repository lies there.
      else if (!anyName || rest.length === 0) this.present.add(path);
    }
  }

  async matchBareRepository(folder: string, isRoot: boolean): Promise<void> {
    const names = (await this.list(folder)).map(({ name }) => name);
    if (isRoot && !names.includes('.git')) await this.matchPattern(folder, [BARE_HEAD], true);
    if (!isBareRepository((name) => names.includes(name))) return;
    this.bareRepositories.add(folder);
    for (const part of BARE_CONTENT) await this.matchPattern(folder, [part], true);
  }

  /** Searches all folders below. If there are too many new ones, the whole folder becomes read-only. */
  async #matchAnywhere(top: string, pattern: readonly string[]): Promise<void> {
    const folders = [top];
    let remainingFolders = MAX_FOLDERS_OF_REPOSITORIES;
    for (const folder of folders) {
      await this.matchPattern(folder, pattern, false);
      for (const entry of await this.list(folder)) {
        const path = join(folder, entry.name);
        if (!entry.isDirectory() || GIT_OBJECTS.test(path)) continue;
        if (!this.#known.has(path)) remainingFolders -= 1;
        if (remainingFolders >= 0 || this.#known.has(path)) folders.push(path);
      }
    }
    if (remainingFolders < 0) this.tooLarge.add(top);
  }
}
