/**
 * `--tools FILE…`: the user's own files, `.ts` or `.js`, which run without a build. Wherever such a file lies, `import 'pawl'` in it
 * means the Pawl that runs it, and libraries that are missing there, such as `zod`, are taken from Pawl's own.
 */
import { existsSync, realpathSync, statSync } from 'node:fs';
import nodeModule, { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isPromise } from 'node:util/types';
import { importUserFile, moduleFault } from '../../import-user-file.ts';
import { type Hook, isHook } from '../../shared/calls/define-hook.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { type AnyTool, isTool, qualifiedName } from '../../shared/tools/tool.ts';
import { isToolset, resolveToolsets, type Toolset, toolset } from '../../shared/tools/toolset.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { isProtectedCode, realName } from '../../workers/workspace/protected-paths.ts';
import { usageError } from '../context.ts';
import { watchLoading } from './watchdog.ts';

const MAX_NAMES = 20;

/** The exports of tools files, in order. */
export interface ToolFiles {
  readonly tools: readonly AnyTool[];
  readonly toolsets: readonly Toolset<AnyTool>[];
  /** Hooks of every kind. A worker runs those around attempts, a producer those around calls. */
  readonly hooks: readonly Hook[];
  /** The files and their imports, except packages. */
  readonly sources: readonly string[];
  /** The absolute paths of imports that name no exact file. */
  readonly inexactImports?: readonly string[];
}

/**
 * Loads the files. Throws `CONFIGURATION` for a file that is missing, does not run or exports nothing usable.
 */
export async function loadToolFiles(files: readonly string[], cwd: string): Promise<ToolFiles> {
  if (files.length === 0) return { tools: [], toolsets: [], hooks: [], sources: [], inexactImports: [] };
  const { loaded, inexactImports } = resolveFromOwnLibraries();
  const exports = new Set<AnyTool | Toolset | Hook>();
  for (const file of files) {
    const path = resolve(cwd, file);
    if (!existsSync(path)) throw usageError(`There is no tools file ${file}${path === file ? '' : ` (${path})`}.`);
    if (!statSync(path).isFile()) throw usageError(`The tools file ${file} is not a file.`);
    const exported = await importFile(path, file, cwd, loaded);
    const definitions = Object.values(exported).flatMap((value) => [...toolsIn(value), ...hooksIn(value)]);
    if (definitions.length === 0) throw usageError(noToolMessage(file, exported));
    for (const each of definitions) exports.add(each);
  }
  const definitions = [...exports];
  return {
    tools: definitions.filter(isTool),
    toolsets: definitions.filter(isToolset) as unknown as readonly Toolset<AnyTool>[],
    hooks: definitions.filter(isHook),
    sources: [...new Set(loaded)].map((url) => fileURLToPath(url)).filter((path) => !path.startsWith(OWN_FOLDER)),
    inexactImports: [...inexactImports],
  };
}

/** The tools of the files, those of their toolsets included. Throws `CONFIGURATION`. */
export async function toolsOf({ tools, toolsets }: ToolFiles): Promise<readonly AnyTool[]> {
  const resolved = await resolveToolsets(toolsets, { published: [] });
  const invalid = resolved.find((tool) => !isTool(tool));
  if (invalid !== undefined)
    throw usageError(
      `A toolset must find what defineTool({ … }) returns; it found ${startOf(JSON.stringify(invalid), 100)}.`,
    );
  return [...tools, ...resolved];
}

/**
 * The toolsets of the files, as far as they limit what a session sees: each hides those of its tools that it does not offer the session.
 * Other tools are not affected. Throws `CONFIGURATION`.
 */
export async function toolsetsOf({
  toolsets: sets,
}: ToolFiles): Promise<readonly Toolset<PublishedTool>[] | undefined> {
  if (sets.length === 0) return undefined;
  const ownNames = new Set((await resolveToolsets(sets, { published: [] })).map(qualifiedName));
  const fileToolsets = sets as unknown as readonly Toolset<PublishedTool>[];
  const visibleTools = toolset<PublishedTool>('of the tools files', async (request) => {
    const foundNames = new Set((await resolveToolsets(fileToolsets, request)).map(qualifiedName));
    return request.published.filter(
      (published) => !ownNames.has(qualifiedName(published)) || foundNames.has(qualifiedName(published)),
    );
  });
  return [visibleTools];
}

function hooksIn(value: unknown): readonly Hook[] {
  return (Array.isArray(value) ? value : [value]).filter(isHook);
}

/** A tool or toolset, a list of them, or an object whose members are tools, alone or under `tools`. */
function toolsIn(value: unknown, depth = 0): readonly (AnyTool | Toolset)[] {
  if (isTool(value) || isToolset(value)) return [value];
  if (depth > 2 || typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((entry) => toolsIn(entry, depth + 1));
  const members = Object.values(value);
  if (members.length > 0 && members.every(isTool)) return members;
  return 'tools' in value ? toolsIn(value.tools, depth + 1) : [];
}

function noToolMessage(file: string, exported: Readonly<Record<string, unknown>>): string {
  // An empty file counts as CommonJS, whose `module.exports` begins as {}.
  const isEmpty = (value: unknown) =>
    typeof value === 'object' && value !== null && !isPromise(value) && Object.keys(value).length === 0;
  const names = Object.keys(exported).filter((name) => name !== 'module.exports' && !isEmpty(exported[name]));
  const listed = names.slice(0, MAX_NAMES).map((name) => `${name} (${kindOf(exported[name])})`);
  const exportsText = names.length === 0 ? 'it exports nothing' : `it exports ${listed.join(', ')}`;
  return `There is no tool in ${file}: ${exportsText}. Export what defineTool({ … }) returns, a list of those, a toolset, or hooks.`;
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (isPromise(value)) return 'a promise: export what it resolves to, with await';
  return Array.isArray(value) ? 'a list without a tool' : `${typeof value}`;
}

async function importFile(
  path: string,
  file: string,
  cwd: string,
  loaded: readonly string[],
): Promise<Readonly<Record<string, unknown>>> {
  try {
    return await watchLoading(`The tools file ${file}`, () => importUserFile(path));
  } catch (error) {
    const fault = await moduleFault(error, `The tools file ${file}`, { path, file, cwd, loaded });
    throw new PawlError('CONFIGURATION', fault, { cause: error });
  }
}

/**
 * From now on, files of the workspace that were not protected at the start are not loaded, because a call may have made them. Static
 * imports were found before.
 */
export function forbidUnknownCode(workspace: string): void {
  // The folder may be made later, by the first call that writes.
  guardedWorkspace = existsSync(workspace) ? realpathSync(workspace) : realName(workspace);
}

let guardedWorkspace: string | undefined;

function checkKnownCode(url: string): void {
  if (guardedWorkspace === undefined || !url.startsWith('file:')) return;
  const path = fileURLToPath(url);
  if (liesIn(guardedWorkspace, path) && !isProtectedCode(path))
    throw new PawlError(
      'CONFIGURATION',
      `${path} was not loaded: it lies in the workspace, where calls can write, and no static import named it when the worker started. Import it with a literal specifier, or keep it outside of the workspace.`,
    );
}

const OWN_FOLDER = fileURLToPath(new URL('../..', import.meta.url));
const OWN_MODULE = import.meta.url;
const requireHere = createRequire(OWN_MODULE);
/** The codes of `import` and `require` for a missing module. */
const NOT_FOUND: readonly (string | undefined)[] = ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'];

interface LoadedFiles {
  readonly loaded: readonly string[];
  readonly inexactImports: ReadonlySet<string>;
}

let loadedFiles: LoadedFiles | undefined;

/**
 * From now on, `pawl` resolves to this Pawl in this process: a second copy beside a tools file would throw errors of classes that this
 * one does not know. Other libraries are looked up beside the file, and then beside Pawl.
 */
function resolveFromOwnLibraries(): LoadedFiles {
  if (loadedFiles !== undefined) return loadedFiles;
  const loaded: string[] = [];
  const inexactImports = new Set<string>();
  nodeModule.registerHooks({
    resolve(specifier, context, nextResolve) {
      // The lookup comes from `requireHere`.
      if (context.parentURL === OWN_MODULE) return nextResolve(specifier, context);
      // `require` resolves beside the requiring file, whatever parent it is given.
      const resolveFromPawl = () =>
        context.conditions.includes('require')
          ? nextResolve(requireHere.resolve(specifier), context)
          : nextResolve(specifier, { ...context, parentURL: OWN_MODULE });
      if (specifier === 'pawl' || specifier.startsWith('pawl/')) return resolveFromPawl();
      try {
        const resolved = nextResolve(specifier, context);
        // Node loads addons without asking the hook below.
        if (resolved.url.endsWith('.node')) checkKnownCode(resolved.url);
        const requestedPath = specifierPath(specifier, context.parentURL);
        if (
          requestedPath !== undefined &&
          !resolved.url.startsWith('node:') &&
          pathToFileURL(requestedPath).href !== resolved.url
        )
          inexactImports.add(requestedPath);
        return resolved;
      } catch (error) {
        if (!isBare(specifier) || !NOT_FOUND.includes((error as NodeJS.ErrnoException).code)) throw error;
        try {
          return resolveFromPawl();
        } catch {
          throw error;
        }
      }
    },
    load(url, context, nextLoad) {
      checkKnownCode(url);
      if (url.startsWith('file:') && !url.includes('/node_modules/')) loaded.push(url);
      return nextLoad(url, context);
    },
  });
  loadedFiles = { loaded, inexactImports };
  return loadedFiles;
}

/** The path that a specifier names, without resolving it. */
function specifierPath(specifier: string, parentUrl: string | undefined): string | undefined {
  if (isBare(specifier) || parentUrl?.startsWith('file:') !== true || parentUrl.includes('/node_modules/'))
    return undefined;
  return orUndefined(() => fileURLToPath(new URL(specifier, parentUrl)));
}

function isBare(specifier: string): boolean {
  return !/^(?:\.|\/|#|[a-z]+:)/i.test(specifier);
}
