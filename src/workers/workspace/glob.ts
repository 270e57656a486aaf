/** Which paths a glob fits, as ripgrep has it, and which globs would take too long to ask. */
import { matchesGlob } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';

/** What the braces of a glob may stand for. */
const MAX_ALTERNATIVES = 1_000;
/** In a name of a glob: with each more the time for a name grows by its length. */
const MAX_STARS = 4;
/** Names of a glob that stand for any folders: older Nodes try each way to share out a path's folders among them. */
const MAX_ANY_FOLDERS = 4;
const INNERMOST_BRACES = /\{([^{}]*)\}/;
const NUMBERS = /^(-?\d+)\.\.(-?\d+)(?:\.\.-?\d+)?$/;

/**
 * A glob without a slash fits a name at any depth, as in `.gitignore` and ripgrep. `app/[id]/*` fits a folder of that very name, too:
 * routers of web pages have them.
 */
export function globFits(path: string, glob: string): boolean {
  if (fitsAsRead(path, glob)) return true;
  return glob.includes('[') && path.includes('[') && fitsAsRead(path, glob.replaceAll(/(?<!\\)[[\]]/g, '\\$&'));
}

function fitsAsRead(path: string, glob: string): boolean {
  const [plainPath, plainGlob] = withoutEscapes(path, glob);
  return fits(plainPath, plainGlob) || (HIDDEN.test(plainPath) && fits(shownNames(plainPath), shownNames(plainGlob)));
}

/** Node takes a backslash for a slash: what stands behind one is, in both, a character that means nothing to a glob. */
function withoutEscapes(path: string, glob: string): readonly [path: string, glob: string] {
  if (!glob.includes('\\')) return [path, glob];
  const escaped = new Set<string>();
  const plain = glob.replaceAll(/\\([\s\S])/g, (_, character: string) => {
    escaped.add(character);
    return standIn(character);
  });
  const plainPath = [...path].map((character) => (escaped.has(character) ? standIn(character) : character)).join('');
  return [plainPath, plain];
}

const standIn = (character: string): string => String.fromCharCode(0xe100 + (character.charCodeAt(0) % 0x100));

/** To Node no wildcard fits a name that begins with a dot. Which of them are looked at has been decided before. */
const HIDDEN = /(?<=^|\/)\./;
const shownNames = (path: string): string => path.replaceAll(new RegExp(HIDDEN, 'g'), '\uE000');

function fits(path: string, glob: string): boolean {
  return matchesGlob(path, glob) || (!glob.includes('/') && matchesGlob(path, `**/${glob}`));
}

/** As it is taken from the folder of the search. Throws `INVALID_PARAMS` for one that fits no file there, and for one that would take too long. */
export function readGlob(glob: string): string {
  const refuse = (why: string) => {
    throw new PawlError('INVALID_PARAMS', `${JSON.stringify(glob)} fits no file: ${why}.`);
  };
  // Before what it may stand for is counted: Node would read "{1..9\9}" without the backslash, too.
  const read = glob
    .replaceAll(/\\([\s\S])/g, (pair, character) => (/[\w/]/.test(character) ? character : pair))
    .replace(/^(?:\.\/+)+/, '');
  if (read.startsWith('/')) refuse('it is taken from the folder of the search, so it must not begin with "/"');
  if (read.split('/').includes('..')) refuse('it cannot have ".."; name the folder to look in with path');
  if (read.startsWith('!')) refuse('"!" at the beginning excludes nothing here');
  if (read.endsWith('/')) refuse('it names folders; add "**" for the files below them');
  refuseCostlyGlob(read);
  return read;
}

/**
 * Node expands the braces of a glob to patterns, without a limit, and runs these with backtracking: one call with "{1..99999999}" or
 * with ten stars would stop the worker. Throws `INVALID_PARAMS`.
 */
function refuseCostlyGlob(glob: string): void {
  const refuse = (why: string) => {
    throw new PawlError('INVALID_PARAMS', `${JSON.stringify(glob)} is too costly a glob: ${why}.`);
  };
  if (/[+*!]\(/.test(glob)) refuse('+(…), *(…) and !(…) are not taken; use {a,b}');
  const alternatives = alternativesOf(glob, () =>
    refuse(`its braces stand for more than ${MAX_ALTERNATIVES} patterns`),
  );
  const stars = alternatives.flatMap((each) => each.split('/').map((name) => name.match(/\*+/g)?.length ?? 0));
  if (stars.some((count) => count > MAX_STARS)) refuse(`a name has more than ${MAX_STARS} stars`);
  if (alternatives.some((each) => countAnyFolders(each) > MAX_ANY_FOLDERS))
    refuse(`it has more than ${MAX_ANY_FOLDERS} times "**"`);
}

/** What the braces of a glob stand for. Where they are too many, `refuse` throws. */
function alternativesOf(glob: string, refuse: () => void): readonly string[] {
  let alternatives = [glob];
  for (let [braces] = INNERMOST_BRACES.exec(glob) ?? []; braces !== undefined; ) {
    alternatives = alternatives.flatMap((each) => {
      const [group, inside = ''] = INNERMOST_BRACES.exec(each) ?? [];
      if (group === undefined) return [each];
      const [, from, to] = NUMBERS.exec(inside) ?? [];
      const count = from === undefined ? 1 : Math.abs(Number(to) - Number(from)) + 1;
      if (count > MAX_ALTERNATIVES) refuse();
      const first = Math.min(Number(from), Number(to));
      const choices =
        count > 1 ? Array.from({ length: count }, (_, index) => String(first + index)) : inside.split(',');
      return choices.map((choice) => each.replace(group, () => choice));
    });
    if (alternatives.length > MAX_ALTERNATIVES) refuse();
    braces = alternatives.map((each) => INNERMOST_BRACES.exec(each)?.[0]).find((each) => each !== undefined);
  }
  return alternatives;
}

/** The names of a glob that begin with a dot, as globs: who writes the dot means what is hidden. */
export function hiddenNamesOf(glob: string | undefined): readonly string[] {
  if (glob === undefined || !glob.includes('.')) return [];
  const names = alternativesOf(glob, () => undefined).flatMap((each) => each.split('/'));
  return [...new Set(names.filter((name) => /^\\?\.[^./]/.test(name)))];
}

/** Next to each other they are one. */
function countAnyFolders(glob: string): number {
  const names = glob.split('/').filter((name) => name !== '' && name !== '.');
  return names.filter((name, index) => name === '**' && names[index - 1] !== '**').length;
}
