/** Finding a program before anything is started, so that "not found" is an answer and not an exit code. */
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';

/**
 * Where the sandbox's own programs may live. Fixed, because a PATH could lead into a workspace, where the model writes.
 */
const TRUSTED_FOLDERS = ['/usr/local/bin', '/usr/bin', '/bin', '/usr/sbin', '/sbin', '/run/current-system/sw/bin'];

/** Words that models take for programs. */
const SHELL_WORDS = new Set([
  '.',
  'alias',
  'cd',
  'eval',
  'exec',
  'export',
  'popd',
  'pushd',
  'set',
  'source',
  'ulimit',
  'unset',
]);

/**
 * Absolute path of the program `name`: as it stands when it has a slash (relative to `folder`), else from `searchPath`.
 * Throws `NOT_FOUND` with the name, and `PERMISSION_DENIED` for a file that cannot be run.
 */
export async function findProgram(name: string, folder: string, searchPath: string): Promise<string> {
  if (name === '')
    throw new PawlError('INVALID_PARAMS', 'The program has no name: the first element of the command is empty.');
  if (name.includes('/')) {
    const path = resolve(folder, name);
    if (await isRunnable(path)) return path;
    if (await isFile(path)) throw new PawlError('PERMISSION_DENIED', `${name} is not executable.`);
    throw new PawlError('NOT_FOUND', `Program not found: ${name}.`);
  }
  // An empty or relative element of PATH would mean the workspace, where the model writes: skipped.
  for (const each of searchPath.split(':').filter(isAbsolute)) {
    const path = join(each, name);
    if (await isRunnable(path)) return path;
  }
  throw new PawlError('NOT_FOUND', `Program not found: ${name}.${hintFor(name)}`);
}

function hintFor(name: string): string {
  if (SHELL_WORDS.has(name))
    return ' It is a word of the shell: run it in one, as in ["sh", "-c", "cd src && ls"], or name the folder to start in.';
  return /\s/.test(name) ? ' Give the program and each of its arguments as separate elements.' : '';
}

/** Absolute path of one of the sandbox's own programs, or undefined where it is not installed. */
export async function findTrusted(name: string): Promise<string | undefined> {
  for (const folder of TRUSTED_FOLDERS) if (await isRunnable(join(folder, name))) return join(folder, name);
  return undefined;
}

async function isRunnable(path: string): Promise<boolean> {
  if (!(await isFile(path))) return false;
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
}
