/**
 * The files that make up a user's program: its entries, their imports, and the names that decide what an import finds.
 * Node looks for packages in every folder above a file, so a `node_modules` that does not exist yet counts, too.
 */
import { existsSync, lstatSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { liesIn } from '../../shared/util/file-path.ts';

/** Literal specifiers of files: `from './x'`, `import './x'`, `import('./x')`, `require('./x')`, `new URL('./x', …)`, `fork('./x')`. */
const SPECIFIER =
  /\b(?:from|import(?:\.meta\.resolve)?|require(?:\.resolve)?|register|URL|Worker|fork)\s*\(?\s*(['"`])((?:\.{1,2}\/|\/|file:)[^'"`\n]+)\1/g;
const EXTENSIONS = ['.js', '.json', '.node', '.ts', '.mjs', '.cjs', '.mts', '.cts'];
const INDEX_FILES = ['package.json', ...EXTENSIONS.map((extension) => `index${extension}`)];
const MAX_FILES = 5_000;
const MAX_BYTES = 4 * 1_024 * 1_024;

/**
 * Returns absolute paths of files and names, existing or not. An entry may be an import's specifier, without an extension.
 * The imports of files in `completeFolders`, which are protected as a whole and import nothing from elsewhere, are not followed.
 */
export function codeNames(entries: readonly string[], completeFolders: readonly string[] = []): readonly string[] {
  const names = new Set<string>();
  const visited = new Set<string>();
  const pending = [...entries];
  for (let file = pending.pop(); file !== undefined && visited.size < MAX_FILES; file = pending.pop()) {
    const resolved = resolve(file);
    const { resolvedPath: path = resolved, triedNames } = resolveAsNode(resolved);
    for (const name of triedNames) names.add(name);
    if (visited.has(path)) continue;
    visited.add(path);
    names.add(path);
    for (const link of linksOnPath(path)) names.add(link);
    const real = existsSync(path) ? realpathSync(path) : path;
    names.add(real);
    if (completeFolders.some((folder) => liesIn(folder, real))) continue;
    for (const name of packageLookupNames(real)) names.add(name);
    for (const specifier of specifiersIn(real)) {
      const target = specifier.startsWith('file:') ? pathOf(specifier) : resolve(dirname(real), specifier);
      if (target !== undefined) pending.push(target);
    }
  }
  return [...names];
}

/** The links on a path, each with the real path of its folder. */
export function linksOnPath(path: string): readonly string[] {
  const parent = dirname(path);
  if (parent === path) return [];
  const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true;
  return [...linksOnPath(parent), ...(isLink ? [join(realpathSync(parent), basename(path))] : [])];
}

/** The names at which Node looks for packages and for a module's type. */
export function packageLookupNames(file: string): readonly string[] {
  const names: string[] = [];
  let hasPackageJson = false;
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    names.push(join(folder, 'node_modules'));
    if (!hasPackageJson) names.push(join(folder, 'package.json'));
    hasPackageJson ||= existsSync(join(folder, 'package.json'));
    if (dirname(folder) === folder) return names;
  }
}

function specifiersIn(file: string): readonly string[] {
  if (file.includes('/node_modules/')) return [];
  try {
    if (!/\.[cm]?[jt]s$/.test(file) || statSync(file).size > MAX_BYTES) return [];
    return [...readFileSync(file, 'utf8').matchAll(SPECIFIER)].map((match) => match[2] ?? '');
  } catch {
    return [];
  }
}

function pathOf(url: string): string | undefined {
  try {
    return fileURLToPath(url);
  } catch {
    return undefined;
  }
}

/** Resolves a file as Node does. `before` are the names that Node would have preferred. */
function resolveAsNode(target: string): { readonly resolvedPath?: string; readonly triedNames: readonly string[] } {
  const triedNames: string[] = [];
  const isFolder = statSync(target, { throwIfNoEntry: false })?.isDirectory() === true;
  const inside = isFolder ? INDEX_FILES.map((name) => join(target, name)) : [];
  for (const candidate of [target, ...EXTENSIONS.map((extension) => target + extension), ...inside]) {
    if (statSync(candidate, { throwIfNoEntry: false })?.isFile() === true && !candidate.endsWith('package.json'))
      return { resolvedPath: candidate, triedNames };
    if (candidate !== target || !isFolder) triedNames.push(candidate);
  }
  return { triedNames };
}
