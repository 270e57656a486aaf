/** The environment of a program: an allow-list, because a worker's own environment holds the Redis URL, keys and tokens. */
import { PawlError } from '../../shared/errors/failure.ts';

const ALLOWED = new Set(['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'LANG', 'LANGUAGE', 'TZ', 'TMPDIR']);
const DEFAULT_PATH = '/usr/local/bin:/usr/bin:/bin';
const CODE_LOADING_NAMES =
  /^(?:(?:LD|DYLD|PAWL)_.*|GCONV_PATH|GETCONF_DIR|GLIBC_TUNABLES|LOCPATH|NLSPATH|MALLOC_TRACE|ENV|BASH_ENV|BASH_XTRACEFD|SHELLOPTS|BASHOPTS|PS4|IFS)$/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

export type ProgramEnvironment = Readonly<Record<string, string>> & { readonly PATH: string };

/** The part of a worker's environment that its programs see: allow-listed names and `LC_*`. */
export function allowedEnvironment(source: Readonly<Record<string, string | undefined>>): ProgramEnvironment {
  const allowed: Record<string, string> = {};
  for (const [name, value] of Object.entries(source)) {
    if (value !== undefined && (ALLOWED.has(name) || /^LC_[A-Z]+$/.test(name))) allowed[name] = value;
  }
  return { PATH: DEFAULT_PATH, ...allowed, TERM: 'dumb' };
}

/**
 * Merges the allow-listed part of `source` with a request's variables. Throws `INVALID_PARAMS` for an invalid name,
 * and for variables of the dynamic loader, the C library and the shell that name code: they would affect the sandbox's
 * own programs, which run before the sandbox closes.
 */
export function programEnvironment(
  source: Readonly<Record<string, string | undefined>>,
  requested: Readonly<Record<string, string>> = {},
): ProgramEnvironment {
  for (const [name, value] of Object.entries(requested)) {
    if (!NAME.test(name) || value.includes('\0'))
      throw new PawlError('INVALID_PARAMS', `${JSON.stringify(name)} cannot be set as an environment variable.`);
    if (CODE_LOADING_NAMES.test(name)) {
      throw new PawlError(
        'INVALID_PARAMS',
        `${name} cannot be set here; where a program needs it, run it as ["env", "${name}=…", program].`,
      );
    }
  }
  return { ...allowedEnvironment(source), ...requested };
}
