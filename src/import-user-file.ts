/** Imports a file of the user, a tools file or a configuration, and explains why one does not run. */
import { execFile } from 'node:child_process';
import { relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { PawlError, reasonOf } from './shared/errors/failure.ts';

const run = promisify(execFile);

/** Long enough for the parser, short enough not to hide the error that it should explain. */
const CHECK_TIMEOUT_MS = 10_000;
/** Node 22 checks nothing of a file that may be a module or not. */
const CHECK = process.versions.node.startsWith('22.') ? ['--experimental-default-type=module', '--check'] : ['--check'];
/** Node reads a module as CommonJS in a project that `npm init` made: its package.json says `"type": "commonjs"`. */
const READ_AS_COMMONJS = /^Cannot use import statement outside a module|^Unexpected token 'export'/;
const OWN_FOLDER = fileURLToPath(new URL('.', import.meta.url));

interface LoadedModule {
  readonly path: string;
  /** As the user names it. */
  readonly file: string;
  readonly cwd: string;
  /** The URLs of the files that were loaded with it, itself included. */
  readonly loaded: readonly string[];
}

/** Throws for a file that waits although nothing can happen any more. Node would end the process, and name a file of Pawl's. */
export async function importUserFile(path: string): Promise<Readonly<Record<string, unknown>>> {
  const idle = Promise.withResolvers<never>();
  const refuse = () =>
    idle.reject(new PawlError('CONFIGURATION', 'its top level waits for a promise that nothing settles'));
  process.once('beforeExit', refuse);
  try {
    return await Promise.race([importWithDefault(path), idle.promise]);
  } finally {
    process.off('beforeExit', refuse);
  }
}

/** The default export may be a promise, whose failure is the file's as well. */
async function importWithDefault(path: string): Promise<Readonly<Record<string, unknown>>> {
  const module = await import(pathToFileURL(path).href);
  await module.default;
  return module;
}

/** Why a module of the user's cannot be used, and where, without a stack. `what` begins the sentence. */
export async function moduleFault(
  error: unknown,
  what: string,
  { path, file, cwd, loaded }: LoadedModule,
): Promise<string> {
  // `require` reports a missing module over several lines.
  const message = reasonOf(error).replace(/\nRequire stack:\n- (?<file>.+)[\s\S]*$/, ' imported from $<file>');
  const kind = error instanceof Error && error.name !== 'Error' && error.name !== 'PawlError' ? `${error.name}: ` : '';
  const where =
    (error instanceof Error ? placeIn(error.stack ?? '', cwd) : undefined) ?? (await syntaxErrorIn(error, loaded, cwd));
  const shown = message.replaceAll(path, file).replace(/\.$/, '');
  const fix = READ_AS_COMMONJS.test(message) ? ' Write "type": "module" into the package.json of its project.' : '';
  return `${what} cannot be used: ${kind}${shown}${where === undefined ? '' : ` (${where})`}.${fix}`;
}

/** `file:line` of the first place outside of Node and of Pawl's libraries that a stack or a parser's report names. */
function placeIn(report: string, cwd: string): string | undefined {
  for (const { groups } of report.matchAll(/(?<![\w./:-])(?<file>(?:file:\/\/)?\/[^\s():]+):(?<line>\d+)/g)) {
    const { file = '', line = '' } = groups ?? {};
    const path = file.startsWith('file://') ? fileURLToPath(file) : file;
    if (path.includes('/node_modules/') || path.startsWith(OWN_FOLDER)) continue;
    const near = relative(cwd, path);
    return `${near.startsWith('..') ? path : near}:${line}`;
  }
  return undefined;
}

/** A syntax error in JavaScript does not say where it is; Node's own check of each file that was loaded does. */
async function syntaxErrorIn(error: unknown, loaded: readonly string[], cwd: string): Promise<string | undefined> {
  if (!(error instanceof SyntaxError)) return undefined;
  for (const url of loaded.toReversed()) {
    try {
      await run(process.execPath, [...CHECK, fileURLToPath(url)], { timeout: CHECK_TIMEOUT_MS });
    } catch (report) {
      return placeIn(String((report as { stderr?: unknown }).stderr), cwd);
    }
  }
  return undefined;
}
