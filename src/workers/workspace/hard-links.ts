/**
 * Other names in a workspace of the files of Pawl's code: hard links, as pnpm makes them between its store and all projects. A program that
 * writes to one of them in place would change the code as well.
 */
import type { Dirent, Stats } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { statsOf } from './protected-paths.ts';

/** More mounts would take longer than most programs. */
const MAX_MOUNTS = 200;

const identityOf = ({ dev, ino }: Stats): string => `${dev}:${ino}`;
const isLinked = (stats: Stats | undefined): boolean => stats?.isFile() === true && stats.nlink > 1;

/** By root. They are cached, because programs in the sandbox cannot make further links to these files. */
const found = new Map<string, { readonly key: string; readonly paths: Promise<readonly string[]> }>();
/** By path and its last change. */
const holders = new Map<string, { readonly changedAtMs: number; readonly holds: Promise<boolean> }>();

/** The paths below `root` that must be read-only, so that no program changes `code`: files, or the packages that hold them. */
export async function hardLinksTo(code: readonly string[], root: string): Promise<readonly string[]> {
  const linked = await Promise.all(code.map(async (path) => ((await holdsLinks(path)) ? [path] : [])));
  const names = linked.flat();
  if (names.length === 0) return [];
  const key = names.map((path) => `${path} ${statsOf(path)?.mtimeMs}`).join('\n');
  const cached = found.get(root);
  if (cached?.key === key) return cached.paths;
  const paths = search(names, root);
  found.set(root, { key, paths });
  return paths;
}

async function search(code: readonly string[], root: string): Promise<readonly string[]> {
  // The code itself is read-only anyway.
  const candidates = await linksBelow(root, new Set(code));
  if (candidates.size === 0) return [];
  const identities = new Set<string>();
  for (const path of code) for (const identity of (await linksBelow(path)).values()) identities.add(identity);
  const links = [...candidates].flatMap(([path, identity]) => (identities.has(identity) ? [path] : []));
  const packages = new Set(links.map((path) => packageOf(root, path)));
  return [...(packages.size <= MAX_MOUNTS ? packages : new Set(links.map((path) => installationOf(root, path))))];
}

/** The package in `node_modules` that holds a file; elsewhere the file itself. */
function packageOf(root: string, path: string): string {
  const [, folder] = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path.slice(root.length)) ?? [];
  return folder === undefined ? path : `${root}${folder}`;
}

/** The outermost `node_modules` that holds a file; elsewhere the folder directly in the root, such as a store of packages. */
function installationOf(root: string, path: string): string {
  const [folder = ''] = /^.*?\/node_modules(?=\/)|^\/[^/]+/.exec(path.slice(root.length)) ?? [];
  return `${root}${folder}`;
}

/** Whether a file is linked, or a folder's own files and packages are: an installation links all of its files, or none. */
async function holdsLinks(path: string): Promise<boolean> {
  const stats = statsOf(path);
  if (!stats?.isDirectory()) return isLinked(stats);
  const cached = holders.get(path);
  if (cached?.changedAtMs === stats.mtimeMs) return cached.holds;
  const holds = readdir(path).then(
    (names) =>
      names.some((name) => [name, join(name, 'package.json')].some((each) => isLinked(statsOf(join(path, each))))),
    () => false,
  );
  holders.set(path, { changedAtMs: stats.mtimeMs, holds });
  return holds;
}

/** Linked files by path, with what identifies them. */
async function linksBelow(
  path: string,
  without: ReadonlySet<string> = new Set(),
): Promise<ReadonlyMap<string, string>> {
  const links = new Map<string, string>();
  const folders: string[] = [];
  const add = async (file: string): Promise<void> => {
    const stats = await lstat(file).catch(() => undefined);
    if (stats !== undefined && isLinked(stats)) links.set(file, identityOf(stats));
    else if (stats?.isDirectory()) folders.push(file);
  };
  await add(path);
  for (const folder of folders) {
    const entries: readonly Dirent[] = await readdir(folder, { withFileTypes: true }).catch(() => []);
    const below = entries
      .map((entry) => ({ entry, path: join(folder, entry.name) }))
      .filter((each) => !without.has(each.path));
    folders.push(...below.filter(({ entry }) => entry.isDirectory()).map((each) => each.path));
    await Promise.all(below.filter(({ entry }) => entry.isFile()).map((each) => add(each.path)));
  }
  return links;
}
