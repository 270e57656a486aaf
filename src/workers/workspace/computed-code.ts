/**
 * The code that a program finds while it runs: under names that it computes, and native addons. No literal names such a file, so the folders
 * count as code as a whole.
 */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/** Code under a name that is no literal: `import(file)`, `require('./tools/' + name)`, `import(pathToFileURL(join(folder, name)).href)`. */
const COMPUTED =
  /\b(?:import|require|Worker|fork)\(\s*(?:\/\*[^*]*\*\/\s*)*(?:['"][^'"\n]*['"]\s*\+|`[^`\n]*\$\{|[A-Za-z_$][\w$.[\]]*\s*[,)]|(?:new\s+)?[A-Za-z_$][\w$.]*\((?![^\n;]*\.(?:[cm]?[jt]sx?|node)['"`]))/;
/** The literal beginning of such a name. */
const NAME_START =
  /\b(?:import|require|Worker|fork)\(\s*(?:(['"])(\.{1,2}\/[^'"\n]*)\1\s*\+|`(\.{1,2}\/[^`$\n]*)\$\{)/g;
/** A program that lists folders, and the calls in which it names them. */
const LISTS = /\b(?:readdir|opendir|(?:fast-?)?glob|fdir)/i;
const FOLDER_CALL =
  /\b(?:join|resolve|URL|(?:readdir|opendir|glob)(?:Sync)?)\((?<own>import\.meta\.dirname|__dirname)?([^\n;]{0,200})/g;
export const LITERAL = /(['"`])([^'"`\n$]+)\1/g;
/** Packages that find a native addon, and the folders in which they look for it. */
const FINDS_ADDON = /(['"`])(?:bindings|node-gyp-build|pkg-prebuilds|(?:@mapbox\/)?node-pre-gyp)\1/;
const ADDON_FOLDERS = ['build', 'prebuilds', 'lib/binding'];
/** So many files are followed at most. */
export const MAX_FILES = 5_000;

/** The folders in which a file finds code under computed names: each file that lies in one when the program starts may be loaded. */
export function foldersOfComputedCode(file: string, text: string): readonly string[] {
  if (!COMPUTED.test(text)) return [];
  const candidates = [...nameStarts(text), ...(LISTS.test(text) ? namedFolders(text) : [])];
  const folders = [dirname(file), process.cwd()].flatMap((from) =>
    candidates.flatMap((paths) => paths.map((path) => resolve(from, path)).findLast(isFolder) ?? []),
  );
  const real = folders.map((folder) => realpathSync(folder));
  return [...new Set([...folders, ...real])].filter((folder) => !holdsProgram(folder, file));
}

/** Each candidate is a list of paths, of which the last one that is a folder counts. */
type Candidate = readonly string[];

function nameStarts(text: string): readonly Candidate[] {
  const starts = [...text.matchAll(NAME_START)].map(([, , plain, template]) => plain ?? template ?? '');
  return starts.map((start) => [start.replace(/[^/]*$/, '')]);
}

/** A call's literals, such as `'a', 'b', 'c.js'`, as the paths `a`, `a/b` and `a/b/c.js`. */
function namedFolders(text: string): readonly Candidate[] {
  return [...text.matchAll(FOLDER_CALL)].map(([call, ownFolder, rest = '']) => {
    const names = [...rest.matchAll(LITERAL)].map(([, , name = '']) => name.replace(/[^/]*\*.*$/, ''));
    const listsOwnFolder = ownFolder !== undefined && /^\w+dir/.test(call);
    if (names.length === 0) return listsOwnFolder ? ['./'] : [];
    return names.map((_, index) => names.slice(0, index + 1).join('/'));
  });
}

/** Whether a folder holds the current one, or lies above the file's own folder: then nearly everything would be code. */
function holdsProgram(folder: string, file: string): boolean {
  return liesIn(folder, process.cwd()) || (liesIn(folder, file) && folder !== dirname(file));
}

/** The code in a folder and below, as far as it is followed. A folder that cannot be read holds none for this process. */
export function codeIn(folder: string): readonly string[] {
  const files: string[] = [];
  const folders = [folder];
  for (const current of folders) {
    for (const entry of orUndefined(() => readdirSync(current, { withFileTypes: true })) ?? []) {
      if (entry.isDirectory() && entry.name !== 'node_modules') folders.push(join(current, entry.name));
      else if (isCode(entry.name)) files.push(join(current, entry.name));
    }
    if (files.length >= MAX_FILES) break;
  }
  return files.slice(0, MAX_FILES);
}

function isCode(name: string): boolean {
  return /\.[cm]?[jt]sx?$/.test(name) && !/\.d\.[cm]?ts$/.test(name);
}

/** The folders of native addons in the file's package, whose `package.json` is among the names `lookedUp`. */
export function addonFolders(text: string, lookedUp: readonly string[]): readonly string[] {
  if (!FINDS_ADDON.test(text)) return [];
  const packages = lookedUp.filter((name) => basename(name) === 'package.json' && existsSync(name)).map(dirname);
  return packages.flatMap((folder) => ADDON_FOLDERS.map((name) => join(folder, name)));
}

export function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
