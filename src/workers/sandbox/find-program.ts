/** Finds a program before anything is started, so that "not found" is a failure and not an exit code. */
import { constants } from 'node:fs';
import { access, open, stat } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';

/** The folders of the sandbox's own programs. They are fixed, because a PATH could lead into a workspace, where the model writes. */
const TRUSTED_FOLDERS = ['/usr/local/bin', '/usr/bin', '/bin', '/usr/sbin', '/sbin', '/run/current-system/sw/bin'];

/** The system reads as much of a script's first line. */
const MAX_HEAD_BYTES = 256;

/** Shell builtins that models take for programs. */
const SHELL_BUILTINS = new Set([
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
 * Returns the absolute path of the program `name`. A name with a slash is relative to `folder`; any other is looked up
 * in `searchPath`. Throws `NOT_FOUND` with the name, or with the missing interpreter of a script, and `PERMISSION_DENIED` for a file that is
 * not executable.
 */
export async function findProgram(name: string, folder: string, searchPath: string): Promise<string> {
  if (name === '')
    throw new PawlError('INVALID_PARAMS', 'The program has no name: the first element of the command is empty.');
  if (name.includes('/')) {
    const path = resolve(folder, name);
    if (await isExecutable(path)) {
      await refuseWithoutInterpreter(name, path);
      return path;
    }
    if (await isFile(path)) throw new PawlError('PERMISSION_DENIED', `${name} is not executable.`);
    throw new PawlError('NOT_FOUND', `Program not found: ${name}.`);
  }
  // An empty or relative element of PATH would mean the workspace, where the model writes, so it is skipped.
  for (const each of searchPath.split(':').filter(isAbsolute)) {
    const path = join(each, name);
    if (await isExecutable(path)) return path;
  }
  throw new PawlError('NOT_FOUND', `Program not found: ${name}.${hintFor(name)}`);
}

/** The system reports a script whose interpreter is missing as missing itself. */
async function refuseWithoutInterpreter(name: string, path: string): Promise<void> {
  // A FIFO may have replaced the file since.
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  if (handle === undefined) return;
  const { buffer, bytesRead } = await handle
    .read({ buffer: Buffer.alloc(MAX_HEAD_BYTES) })
    .finally(() => handle.close());
  const [, interpreter = ''] = /^#![ \t]*([^ \t\n]+)[ \t\n]/.exec(buffer.toString('latin1', 0, bytesRead)) ?? [];
  if (!isAbsolute(interpreter) || (await isFile(interpreter))) return;
  const hint = interpreter.endsWith('\r') ? ' Its lines end in CR LF, and must end in LF.' : '';
  throw new PawlError(
    'NOT_FOUND',
    `The first line of ${name} names an interpreter that does not exist: ${JSON.stringify(interpreter)}.${hint}`,
  );
}

function hintFor(name: string): string {
  if (SHELL_BUILTINS.has(name))
    return ' It is a word of the shell: run it in one, as in ["sh", "-c", "cd src && ls"], or name the folder to start in.';
  return /\s/.test(name) ? ' Give the program and each of its arguments as separate elements.' : '';
}

/** Returns the absolute path of one of the sandbox's own programs, or undefined where it is not installed. */
export async function findTrusted(name: string): Promise<string | undefined> {
  for (const folder of TRUSTED_FOLDERS) if (await isExecutable(join(folder, name))) return join(folder, name);
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  if (!(await isFile(path))) return false;
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true;
}
