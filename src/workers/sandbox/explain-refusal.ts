/**
 * Explains to the caller why a program failed in its sandbox: programs report only the system's error, such as `Read-only file system`, and
 * a model would try the same in other ways.
 */
import { relative } from 'node:path';
import { escapePattern } from '../../shared/util/text/escape-pattern.ts';
import type { LaunchRequest } from './isolation.ts';
import type { Confinement } from './view.ts';

const KEPT_ERROR = /read-only file system|resource busy|is a directory|file exists|EROFS|EBUSY|EISDIR|EEXIST/i;
const SOCKET_ERROR =
  /listen EPERM|connect EPERM \S{0,200}\/|\bsocket\b.{0,200}operation not permitted|_?socket\.__init__\(/i;
const SOCKET_TEXT =
  '\nThe sandbox has no sockets by path (AF_UNIX): use TCP at 127.0.0.1, or for example `node --import tsx` in place of `tsx`.\n';
const MAX_NAMED = 5;
/** The most lines that are searched for names, and characters of one. A program may print anything. */
const MAX_LINES = 50;
const MAX_LINE_LENGTH = 1_000;

/** A text for the end of a failed program's standard error; empty where nothing in its output tells of the sandbox. */
export function explainRefusal({ root, confine }: LaunchRequest, output: string): string {
  if (confine === undefined) return '';
  const kept = keptNames(root, confine, output).slice(0, MAX_NAMED).join(', ');
  const keptText =
    kept === ''
      ? ''
      : `\nThe sandbox leaves ${kept} as it is: Pawl, or programs of the workspace's owner (setting readOnlyPaths), run or read it later. If the task needs the change, ask for it with sandbox_permissions "require_escalated".\n`;
  return `${keptText}${SOCKET_ERROR.test(output) ? SOCKET_TEXT : ''}`;
}

/** The kept files and names that lines of errors name, by their path within the workspace. */
function keptNames(root: string, { readOnly, unusable }: Confinement, output: string): readonly string[] {
  const refused = output.split('\n').filter((line) => KEPT_ERROR.test(line));
  const lines = refused.slice(0, MAX_LINES).map((line) => line.slice(0, MAX_LINE_LENGTH));
  return [...readOnly, ...unusable]
    .map((path) => relative(root, path))
    .filter((name) => {
      const start = `(?:(?<![\\w./-])|(?<=${escapePattern(root)}/|\\./))`;
      const pattern = new RegExp(`${start}${escapePattern(name)}(?![\\w.-])`);
      return lines.some((line) => pattern.test(line));
    });
}
