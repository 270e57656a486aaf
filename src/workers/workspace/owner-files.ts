/**
 * Finds the files that the owner of a workspace runs later (`read-only-paths.ts`) by name: for file tools in a path,
 * for sandboxes in a folder.
 */
import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isPlaceholder } from '../sandbox/placeholders.ts';

/** The limits of a search: folders opened, and depth. It runs before every program. */
const MAX_FOLDERS = 2_000;
const MAX_DEPTH = 8;
const NOT_SEARCHED = new Set(['node_modules']);

/**
 * Whether one of `patterns` names the absolute `path` or a folder above it. A name that leads to a repository is
 * git's, too.
 */
export function isOwnerFile(path: string, patterns: readonly string[], isFolder: boolean): boolean {
  const names = path.toLowerCase().split('/').filter(Boolean);
  if (!isFolder && names.at(-1) === '.git' && patterns.some((pattern) => pattern.startsWith('.git/'))) return true;
  return patterns.some((pattern) => {
    const wanted = pattern.toLowerCase().split('/');
    return names.some((_, from) => begins(names.slice(from), wanted));
  });
}

function begins(names: readonly string[], [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return true;
  if (first === '**') return begins(names, rest) || (names.length > 0 && begins(names.slice(1), [first, ...rest]));
  const [name, ...further] = names;
  return name !== undefined && (first === '*' || first === name) && begins(further, rest);
}

export interface OwnerFiles {
  /** Real paths of files and folders. */
  readonly present: readonly string[];
  /** The first missing name on the way to each of the others: directly in the root, or in a repository. */
  readonly absent: readonly string[];
}

/** Finds the owner's files below a folder, given by its real path. In a very large folder, deep ones are not found. */
export async function findOwnerFiles(root: string, patterns: readonly string[]): Promise<OwnerFiles> {
  const present = new Set<string>();
  const absent = new Set<string>();
  const wanted = patterns.map((pattern) => pattern.split('/'));
  const heads = new Set(wanted.map(([head = '']) => head.toLowerCase()));
  let folders = 0;
  const look = async (folder: string): Promise<readonly Dirent[]> => {
    folders += 1;
    if (folders > MAX_FOLDERS) return [];
    return readdir(folder, { withFileTypes: true }).catch(() => []);
  };
  const follow = async (folder: string, [first, ...rest]: readonly string[], mayBeMissing: boolean): Promise<void> => {
    if (first === undefined) return void present.add(folder);
    const entries = await look(folder);
    if (first === '**') await follow(folder, rest, false);
    const anyName = first === '*' || first === '**';
    const found = entries.filter(({ name }) => anyName || name.toLowerCase() === first.toLowerCase());
    if (found.length === 0 && !anyName && mayBeMissing) absent.add(join(folder, first));
    for (const entry of found) {
      const path = join(folder, entry.name);
      if (entry.isDirectory() && !anyName && isPlaceholder(path)) absent.add(path);
      else if (entry.isDirectory())
        await follow(path, first === '**' ? [first, ...rest] : rest, mayBeMissing && !anyName);
      // A `.git` that is a file decides which repository lies there.
      else if (!anyName) present.add(path);
    }
  };
  const search = async (folder: string, depth: number): Promise<void> => {
    const entries = await look(folder);
    const isHead = ({ name }: Dirent) => heads.has(name.toLowerCase());
    for (const pattern of wanted) {
      const [head = ''] = pattern;
      const isHere = entries.some(({ name }) => name.toLowerCase() === head.toLowerCase());
      if (isHere || depth === 0) await follow(folder, pattern, true);
    }
    if (depth === MAX_DEPTH) return;
    for (const entry of entries)
      if (entry.isDirectory() && !isHead(entry) && !NOT_SEARCHED.has(entry.name))
        await search(join(folder, entry.name), depth + 1);
  };
  await search(root, 0);
  return { present: [...present], absent: [...absent] };
}
