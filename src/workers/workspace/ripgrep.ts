/**
 * Uses ripgrep, where it is installed, to find candidate files much faster than the walk of `workspace-search.ts`. The walk then visits
 * these alone and refuses what it always refuses, so ripgrep must only never omit a file that the walk would find:
 *
 * - It runs a pattern only where its syntax means the same to RE2, on bytes. Where text outside of ASCII could make a match differ, it
 *   names every file that holds any.
 * - Of ignore files it reads those that the walk reads below the start of the search, in the same order. The walk handles those above.
 *   Where one of them is no small regular file, or has a line that ripgrep could read in another way than Git, it reads none.
 *
 * It is started without a shell and without an environment, in the folder that the walk has open, and follows no symbolic link.
 */
import * as childProcess from 'node:child_process';
import { promisify } from 'node:util';
import type { WorkspaceSearch } from '../../shared/tools/capabilities.ts';
import { findTrusted } from '../sandbox/find-program.ts';
import { hiddenNamesOf } from './glob.ts';
import { MAX_IGNORE_BYTES } from './workspace-ignore.ts';

const execFile = promisify(childProcess.execFile);

/** Returns paths below a folder, whose own path works whatever is renamed. Undefined means: visit everything. */
export type CandidateFinder = (
  folder: string,
  search: WorkspaceSearch,
  signal: AbortSignal,
) => Promise<readonly string[] | undefined>;

/** The limit on the total size of all names. A longer list is no help. */
const MAX_NAMES_BYTES = 32 * 1024 * 1024;

const QUIET = ['--no-config', '--no-messages', '--null', '--color=never'];
/** Excludes the ignore files of the machine, of the repository's own folder, and of folders above the search. */
const IGNORE_FILES = ['--no-require-git', '--no-ignore-global', '--no-ignore-exclude', '--no-ignore-parent'];
/** Searches all bytes of all files that the walk does not find too large. */
const BYTES = ['--text', '--encoding=none', '--no-unicode', '--max-filesize=8M'];
/** A file in UTF-16 begins with its mark. */
const UTF_16 = String.raw`\xFF\xFE|\xFE\xFF`;
const NOT_ASCII = '[\\x80-\\xFF]';
/**
 * Finds the ignore files that have a line which ripgrep could read in another way than Git: it expands braces, takes a backslash in a
 * class for itself, and drops white space at the end. The walk drops lines that are very long.
 */
const ODD_IGNORE_FILES = [
  ...[...QUIET, ...IGNORE_FILES, '--hidden', '--text', '--encoding=none', '--no-unicode', '--case-sensitive'],
  ...['.rgignore', '.ignore', '.gitignore'].map((name) => `--glob=${name}`),
  ...['--files-with-matches', '--invert-match'],
  String.raw`--regexp=^(?:#.*|(?:[^\s\\\[\]{}*]|\*\*?|\[[!^]?\w+(?:-\w+)*\]|\\[!#]| +[^\s\\\[\]{}*]){0,300} *\r?)$`,
  '.',
];

/**
 * Finds an ignore file that the walk does not read, while ripgrep would: it waits for a FIFO, reads a device or a sparse file without end,
 * and follows a link. Installed packages are passed over, because they are most of a tree and nearly always ignored.
 */
const UNREAD_IGNORE_FILES = [
  ...['.', '(', '-name', '.git', '-o', '-name', 'node_modules', ')', '-prune', '-o'],
  ...['(', '-name', '.rgignore', '-o', '-name', '.ignore', '-o', '-name', '.gitignore', ')'],
  ...['(', '!', '-type', 'f', '-o', '-size', `+${MAX_IGNORE_BYTES / 1_024}k`, ')', '-print0', '-quit'],
];

/** Literal characters, groups, alternatives, classes without set operations, repetitions and common escapes. */
const PORTABLE_SYNTAX = (() => {
  const escaped = String.raw`\\[dDwWsSbB.*+?()[\]{}|^$\\/-]`;
  const inClass = String.raw`(?:${escaped}|[^\\[\]&~])`;
  const plain = String.raw`[^\\[\]{}()]`;
  const repetition = String.raw`\{\d+(?:,\d*)?\}`;
  return new RegExp(String.raw`^(?:${escaped}|${plain}|\((?:\?:|\?i\))?|\)|${repetition}|\[\^?${inClass}+\])*$`);
})();
const SET_OPERATION = /\[[^\]]*--/;
/** ripgrep finds the end of an empty line only after its beginning. */
const END_BEFORE_BEGIN = /\$.*\^/;
const PLAIN_WORDS = /^[\w ]+$/;
const ASCII = /^[\x20-\x7e]+$/;

export const ripgrep: CandidateFinder = async (folder, search, signal) => {
  const [program, find] = await Promise.all([findTrusted('rg'), findTrusted('find')]);
  const rgArguments = ripgrepArguments(search);
  const withIgnored = ripgrepArguments({ ...search, includeIgnored: true });
  if (program === undefined || rgArguments === undefined || withIgnored === undefined) return undefined;
  const run = (args: readonly string[], until = signal) => namesFrom(program, args, folder, until);
  if (search.includeIgnored) return run(rgArguments);
  if (find === undefined) return run(withIgnored);
  const stuck = new AbortController();
  const until = AbortSignal.any([signal, stuck.signal]);
  const searched = Promise.all([run(ODD_IGNORE_FILES, until), run(rgArguments, until)]);
  searched.catch(() => {});
  const unread = await namesFrom(find, UNREAD_IGNORE_FILES, folder, signal);
  if (unread?.length !== 0) {
    stuck.abort();
    return run(withIgnored);
  }
  const [odd, found] = await searched;
  return odd?.length === 0 ? found : run(withIgnored);
};

/** Undefined for a pattern that could mean something else to ripgrep. */
export function ripgrepArguments(search: WorkspaceSearch): readonly string[] | undefined {
  const ignored = search.includeIgnored ? ['--no-ignore'] : IGNORE_FILES;
  const isHidden = search.includeIgnored || hiddenNamesOf(search.glob).length > 0;
  const hidden = [...(isHidden ? ['--hidden', '--glob=!.git'] : []), ...ignored];
  if (search.pattern === undefined) return [...QUIET, ...hidden, '--files', '.'];
  const patterns = patternsFor(search.pattern, search);
  if (patterns === undefined) return undefined;
  const options = [...BYTES, search.ignoreCase ? '--ignore-case' : '--case-sensitive', '--files-with-matches'];
  return [...QUIET, ...hidden, ...options, ...patterns.map((pattern) => `--regexp=${pattern}`), '.'];
}

/** The pattern, and further patterns that find files in which a match could differ. */
function patternsFor(pattern: string, { literal, ignoreCase }: WorkspaceSearch): readonly string[] | undefined {
  if (!ASCII.test(pattern)) return undefined;
  const isText = literal || PLAIN_WORDS.test(pattern);
  if (!isText && (!PORTABLE_SYNTAX.test(pattern) || SET_OPERATION.test(pattern) || END_BEFORE_BEGIN.test(pattern)))
    return undefined;
  const asPattern = literal ? pattern.replaceAll(/[^\w ]/g, '\\$&') : pattern;
  if (isText && !ignoreCase) return [asPattern, UTF_16];
  // To ripgrep a carriage return before the line end is a part of the line, and a vertical tab is white space.
  const lineEnds = pattern.includes('$') ? [String.raw`\r$`] : [];
  const spaces = /\\s/i.test(pattern) ? [String.raw`\x0B`] : [];
  return [asPattern, NOT_ASCII, ...lineEnds, ...spaces];
}

/** The names that a program prints. */
async function namesFrom(
  program: string,
  programArguments: readonly string[],
  folder: string,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const options = { cwd: folder, env: {}, maxBuffer: MAX_NAMES_BYTES, killSignal: 'SIGKILL', signal } as const;
  const names = await execFile(program, programArguments, options).then(
    ({ stdout }) => stdout,
    ({ code, stdout }: { readonly code?: unknown; readonly stdout?: string }) => {
      signal.throwIfAborted();
      // Exit code 1 means that ripgrep found nothing, or that a folder is closed to `find`. The walk handles every other failure.
      return code === 1 ? stdout : undefined;
    },
  );
  return names
    ?.split('\0')
    .filter(Boolean)
    .map((path) => path.replace(/^\.\//, ''));
}
