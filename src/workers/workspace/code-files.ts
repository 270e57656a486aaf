/**
 * The files that make up a user's program: its entries, their imports, and the names that decide what an import finds.
 * Node looks for packages in every folder above a file, so a `node_modules` that does not exist yet counts, too.
 */
import { existsSync, lstatSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { addonFolders, codeIn, foldersOfComputedCode, isFolder, LITERAL, MAX_FILES } from './computed-code.ts';
import { readSmallFile } from './small-file.ts';

/** Literal specifiers: `from 'x'`, `import 'x'`, `import('x')`, `require('x')`, `new URL('./x', …)`, `fork('./x')`, `"extends": "./x"`. */
const SPECIFIER =
  /\b(?:from|import(?:\.meta\.resolve)?|require(?:\.resolve)?|register|URL|Worker|fork|extends"\s*:)\s*\(?\s*(?:\/\*[^*]*\*\/\s*)*(['"`])([^'"`\n]+)\1/g;
/** Other literals that may name a file of code: `new URL('x.mjs', …)`, `join(import.meta.dirname, 'x.mjs')`, `spawn('node', ['x.mjs'])`. */
const CODE_LITERAL = /(['"`])(?:\$\{[^}`\n]*\}\/?)?([^'"`\n$]+\.(?:[cm]?[jt]s|node|wasm|sh|py))\1/g;
/** Signs of a program that reads variables from files, and the names of such files. */
const READS_ENV = /(['"`])(?:@dotenvx\/)?dotenv(?:x|-flow|-safe)?(?:\/config)?\1|\b(?:loadEnvFile|parseEnv)\(/;
const ENV_LITERAL = /(['"`])([^'"`\n$]*\.env(?:\.[\w-]+)*)\1/g;
const ENV_ARGUMENTS = /\b(?:loadEnvFile\(|parseEnv\(|path\s*:)[^;\n]{1,200}/g;
const OTHER_LANGUAGE = /\.(?:py|rb|php|sh|jar)$/;
const EXTENSIONS = ['.js', '.json', '.node', '.ts', '.mjs', '.cjs', '.mts', '.cts', '.tsx'];
const INDEX_FILES = ['package.json', ...EXTENSIONS.map((extension) => `index${extension}`)];
const MAX_BYTES = 4 * 1_024 * 1_024;

/**
 * Returns absolute paths of files and names, existing or not. An entry may be an import's specifier, without an extension.
 * The imports of files in `completeFolders`, which are protected as a whole and import nothing from elsewhere, are not followed.
 * `prefersTypeScript`: Node's loader takes `x.ts` or `x.tsx` for `x.js`, even where `x.js` exists.
 */
export function codeNames(
  entries: readonly string[],
  completeFolders: readonly string[] = [],
  prefersTypeScript = false,
): readonly string[] {
  const names = new Set<string>();
  const visited = new Set<string>();
  const pending = [...entries];
  for (let file = pending.pop(); file !== undefined && visited.size < MAX_FILES; file = pending.pop()) {
    const resolved = resolve(file);
    const { resolvedPath: path = resolved, triedNames } = resolveAsNode(resolved);
    for (const name of triedNames) names.add(name);
    if (visited.has(path)) continue;
    visited.add(path);
    for (const link of linksOnPath(path)) names.add(link);
    if (isFolder(resolved)) {
      const { main } = packageJsonOf(resolved);
      if (typeof main === 'string') pending.push(resolve(resolved, main));
      // Code that names a folder, as `new URL('../', import.meta.url)` does, loads no other file of it in this way.
      if (path === resolved) continue;
    }
    names.add(path);
    const real = existsSync(path) ? realpathSync(path) : path;
    names.add(real);
    if (completeFolders.some((folder) => liesIn(folder, real))) continue;
    const lookedUp = OTHER_LANGUAGE.test(real) ? [] : packageLookupNames(real);
    const text = sourceOf(real);
    const codeFolders = foldersOfComputedCode(real, text);
    const preferred =
      prefersTypeScript && path.endsWith('.js') ? [path.replace(/js$/, 'ts'), path.replace(/js$/, 'tsx')] : [];
    const further = [...envFilesOf(real, text), ...codeFolders, ...addonFolders(text, lookedUp), ...preferred];
    for (const name of [...lookedUp, ...further]) names.add(name);
    pending.push(...importsOf(real, text, lookedUp), ...codeFolders.flatMap(codeIn));
  }
  return [...names];
}

/** The files of variables that a program reads into its environment, and so into Pawl's settings. */
function envFilesOf(file: string, text: string): readonly string[] {
  if (!READS_ENV.test(text)) return [];
  const given = (text.match(ENV_ARGUMENTS) ?? []).flatMap((part) => [...part.matchAll(LITERAL)]);
  // The file may have any name with a dot or a slash. Other words, such as `utf8`, are further arguments.
  const files = given.map(([, , name = '']) => name).filter((name) => /[./]/.test(name) && /[^./]/.test(name));
  const literals = [...text.matchAll(ENV_LITERAL)].map((match) => match[2] ?? '');
  return ['.env', ...literals, ...files].flatMap((name) => [resolve(name), resolve(dirname(file), name)]);
}

/** The files that a file imports or starts, by their path without an extension if it has none. */
export function importsOf(file: string, text: string, lookedUp = packageLookupNames(file)): readonly string[] {
  const specifiers = [...text.matchAll(SPECIFIER)].map((match) => match[2] ?? '');
  const literals = [...text.matchAll(CODE_LITERAL)].map((match) => match[2] ?? '');
  const started = literals
    .flatMap((name) => [dirname(file), process.cwd()].map((folder) => join(folder, name)))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() === true);
  return [...specifiers.flatMap((specifier) => targetsOf(specifier, file, lookedUp)), ...started];
}

/**
 * The paths that a specifier in `file` may lead to, except in packages of a `node_modules`, which is protected as a whole. Node looks for
 * packages at the names `lookedUp`.
 */
function targetsOf(specifier: string, file: string, lookedUp = packageLookupNames(file)): readonly string[] {
  if (specifier.startsWith('file:')) return pathsOf(specifier);
  if (/^\.{0,2}\/|^\.{1,2}$/.test(specifier)) return withTypeScript(resolve(dirname(file), specifier));
  const ownFolder = lookedUp.filter((name) => basename(name) === 'package.json' && existsSync(name)).map(dirname);
  if (specifier.startsWith('#'))
    return ownFolder.flatMap((folder) => mappedPaths(packageJsonOf(folder).imports, specifier, folder));
  const [name = ''] = /^(?:@[^/]+\/)?[^/:]+/.exec(specifier) ?? [];
  // Pawl is protected as a whole as well.
  if (name === '' || name === 'pawl' || specifier.startsWith('node:')) return [];
  // A package may be a link into the workspace, and a file may import its own package by its name.
  const installed = lookedUp.filter((path) => basename(path) === 'node_modules').map((path) => join(path, name));
  const folders = [
    ...ownFolder.filter((folder) => packageJsonOf(folder).name === name),
    ...installed.filter((folder) => existsSync(folder)).map((folder) => realpathSync(folder)),
  ].filter((folder) => !folder.includes('/node_modules/'));
  return folders.flatMap((folder) => {
    const { exports, main } = packageJsonOf(folder);
    const path = `.${specifier.slice(name.length)}`;
    if (exports !== undefined) return mappedPaths(exports, path, folder);
    return [resolve(folder, path === '.' && typeof main === 'string' ? main : path)];
  });
}

/** Loaders of TypeScript take `x.js` for `x.ts` or `x.tsx`, if that is there. */
function withTypeScript(path: string): readonly string[] {
  if (!path.endsWith('js') || !isFolder(dirname(path))) return [path];
  const sources = ['ts', 'tsx'].map((extension) => basename(path).replace(/js$/, extension));
  const present = readdirSync(dirname(path)).filter((name) => sources.includes(name));
  return [path, ...present.map((name) => join(dirname(path), name))];
}

/** The targets of a name in the `imports` or `exports` of the package in `folder`, under any condition. */
function mappedPaths(map: unknown, name: string, folder: string): readonly string[] {
  if (typeof map === 'string') {
    if (map.startsWith('.')) return [resolve(folder, map)];
    // Only an import may lead to another package.
    return name.startsWith('#') && !map.startsWith('#') ? targetsOf(map, join(folder, 'package.json')) : [];
  }
  return Object.entries(map ?? {}).flatMap(([key, value]) => {
    // Other keys are conditions, or places in a list.
    if (key === name || !/^[.#]/.test(key)) return mappedPaths(value, name, folder);
    const [start = '', end] = key.split('*');
    if (end === undefined || !name.startsWith(start) || !name.endsWith(end)) return [];
    const matched = name.slice(start.length, name.length - end.length);
    return mappedPaths(value, name, folder).map((path) => path.replaceAll('*', matched));
  });
}

function packageJsonOf(folder: string): Readonly<Record<string, unknown>> {
  const content = orUndefined(() => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as unknown);
  return (content ?? {}) as Record<string, unknown>;
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

/** Empty for a file that imports nothing from the workspace. */
function sourceOf(file: string): string {
  if (file.includes('/node_modules/') || !/\.(?:[cm]?[jt]s|tsx)$|\btsconfig[^/]*\.json$/.test(file)) return '';
  return readSmallFile(file, MAX_BYTES) ?? '';
}

/** The path of a URL; none where it names no file. */
function pathsOf(url: string): readonly string[] {
  return orUndefined(() => [fileURLToPath(url)]) ?? [];
}

/** Resolves a file as Node does. `triedNames` are those that Node would have preferred. */
function resolveAsNode(target: string): { readonly resolvedPath?: string; readonly triedNames: readonly string[] } {
  const triedNames: string[] = [];
  const inside = isFolder(target) ? INDEX_FILES.map((name) => join(target, name)) : [];
  for (const candidate of [target, ...EXTENSIONS.map((extension) => target + extension), ...inside]) {
    if (statSync(candidate, { throwIfNoEntry: false })?.isFile() === true && !candidate.endsWith('package.json'))
      return { resolvedPath: candidate, triedNames };
    if (candidate !== target || inside.length === 0) triedNames.push(candidate);
  }
  return { triedNames };
}
