/** Matches paths against globs as ripgrep does, and rejects globs that would take too long to match. */
import nodePath from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';

/** The most patterns that the braces of a glob may expand to. */
const MAX_ALTERNATIVES = 1_000;
/** The most stars in one name of a glob. Each further star multiplies the time by the length of the name. */
const MAX_STARS = 4;
/** The most `**` in a glob. Older Nodes try each way to distribute a path's folders among them. */
const MAX_ANY_FOLDERS = 4;
const INNERMOST_BRACES = /\{([^{}]*)\}/;
const INNERMOST_CHOICE = /(?<!\\)([@?])\(([^()]*)\)/;
/** Models write lists of patterns so. */
const BETWEEN_PATTERNS = /(?<!\\)(?:\s*[,|;]\s*|\s+)(?![^{]*\})/;
const BY_ENDING = /^(?:[^\s,|;{}]|\{[^{}]*\})*\*\.(?:[^\s,|;{}/]|\{[^{}]*\})+$/;
const NUMBERS = /^(-?\d+)\.\.(-?\d+)(?:\.\.-?\d+)?$/;

/**
 * A glob without a slash matches a name at any depth, as in `.gitignore` and ripgrep. `app/[id]/*` also matches a
 * folder of that literal name, because routers of web pages use such names.
 */
export function globMatches(path: string, glob: string): boolean {
  if (matchesEscaped(path, glob)) return true;
  return glob.includes('[') && path.includes('[') && matchesEscaped(path, glob.replaceAll(/(?<!\\)[[\]]/g, '\\$&'));
}

function matchesEscaped(path: string, glob: string): boolean {
  const [plainPath, plainGlob] = withoutEscapes(...withoutPairs(path, glob));
  return (
    matchesAtAnyDepth(plainPath, plainGlob) ||
    (/(?:^|\/)\./.test(plainPath) &&
      matchesAtAnyDepth(plainPath.replaceAll(HIDDEN, HIDDEN_DOT), plainGlob.replaceAll(HIDDEN_IN_GLOB, HIDDEN_DOT)))
  );
}

/** Node takes a backslash for a slash. Both sides get a stand-in for each escaped character, which means nothing to a glob. */
function withoutEscapes(path: string, glob: string): readonly [path: string, glob: string] {
  if (!glob.includes('\\')) return [path, glob];
  const escaped = new Set<string>();
  const plain = glob.replaceAll(/\\([\s\S])/g, (_, character: string) => {
    escaped.add(character);
    return placeholder(character);
  });
  const plainPath = [...path]
    .map((character) => (escaped.has(character) ? placeholder(character) : character))
    .join('');
  return [plainPath, plain];
}

const placeholder = (character: string): string => String.fromCharCode(0xe100 + (character.charCodeAt(0) % 0x100));

/** To Node, an emoji is two characters. Both sides get a stand-in for each, in their order, because a range may end in one. */
function withoutPairs(path: string, glob: string): readonly [path: string, glob: string] {
  const pairs = [...new Set((path + glob).match(/[\u{10000}-\u{10ffff}]/gu))].sort();
  const plain = (text: string) =>
    text.replaceAll(/[\u{10000}-\u{10ffff}]/gu, (pair) => String.fromCharCode(0xe200 + pairs.indexOf(pair)));
  return pairs.length === 0 ? [path, glob] : [plain(path), plain(glob)];
}

/** Node's wildcards never match a name that begins with a dot. The search has already decided which of those to visit. */
const HIDDEN = /(?<=^|\/)\./g;
/** A name of a glob may also begin within braces or with a class. */
const HIDDEN_IN_GLOB = /(?<=(?:^|\/)(?:\{(?:[^{}]*,)?)?(?:\[[!^]?[^\]/]*)?)\./g;
const HIDDEN_DOT = '\uE000';

function matchesAtAnyDepth(path: string, glob: string): boolean {
  return nodePath.matchesGlob(path, glob) || (!glob.includes('/') && nodePath.matchesGlob(path, `**/${glob}`));
}

/**
 * Normalizes a glob that is relative to the folder of the search. Throws `INVALID_PARAMS` for one that matches no file
 * there, and for one that would take too long.
 */
export function normalizeGlob(glob: string): string {
  const refuse = (reason: string) => {
    throw new PawlError('INVALID_PARAMS', `${JSON.stringify(glob)} matches no file: ${reason}.`);
  };
  // This comes before the alternatives are counted, because Node would read "{1..9\9}" without the backslash, too.
  const normalized = choicesToBraces(glob)
    .replaceAll(/\\([\s\S])/g, (pair, character) => (/[\w/]/.test(character) ? character : pair))
    .replace(/^(?:\.\/+)+/, '')
    .replace(/^#/, '\\#');
  if (normalized.startsWith('/')) refuse('it is taken from the folder of the search, so it must not begin with "/"');
  if (normalized.split('/').includes('..')) refuse('it cannot have ".."; name the folder to look in with path');
  if (normalized.startsWith('!')) refuse('"!" at the beginning excludes nothing here');
  const unclosed = unclosedIn(normalized);
  if (unclosed !== undefined) refuse(`${unclosed} has no end; write \\${unclosed} for the character itself`);
  if (normalized.endsWith('/')) refuse('it names folders; add "**" for the files below them');
  const parts = normalized.split(BETWEEN_PATTERNS);
  if (parts.length > 1 && parts.every((part) => BY_ENDING.test(part)))
    refuse(`it is one pattern, and no list; give {${parts.join()}}`);
  checkGlobCost(normalized);
  return normalized;
}

/** The bracket that nothing closes. Such a glob would be taken as it stands, and match hardly any file. */
function unclosedIn(glob: string): string | undefined {
  const plain = glob.replaceAll(/\\[\s\S]|\[[!^]?\]?[^\]]*\]/g, '');
  if (plain.includes('[')) return '[';
  return plain.split('{').length > plain.split('}').length ? '{' : undefined;
}

/** Writes `@(a|b)` and `?(a|b)` as braces, which may name hidden files and hold slashes. */
function choicesToBraces(glob: string): string {
  const [group, kind, inside = ''] = INNERMOST_CHOICE.exec(glob) ?? [];
  if (group === undefined) return glob;
  const choices = inside.replaceAll(/,(?![^{]*\})/g, '\\,').split('|');
  if (kind === '?') choices.unshift('');
  return choicesToBraces(glob.replace(group, () => (choices.length === 1 ? inside : `{${choices.join()}}`)));
}

/**
 * Node expands the braces of a glob without a limit, and matches the patterns with backtracking. One call with
 * "{1..99999999}" or with ten stars would block the worker. Throws `INVALID_PARAMS`.
 */
function checkGlobCost(glob: string): void {
  const refuse = (reason: string) => {
    throw new PawlError('INVALID_PARAMS', `${JSON.stringify(glob)} is too complex a glob: ${reason}.`);
  };
  if (/[+*!]\(/.test(glob)) refuse('+(…), *(…) and !(…) are not supported; use {a,b}');
  const alternatives = alternativesOf(glob, () =>
    refuse(`its braces stand for more than ${MAX_ALTERNATIVES} patterns`),
  );
  const stars = alternatives.flatMap((each) => each.split('/').map((name) => name.match(/\*+/g)?.length ?? 0));
  if (stars.some((count) => count > MAX_STARS)) refuse(`a name has more than ${MAX_STARS} stars`);
  if (alternatives.some((each) => countAnyFolders(each) > MAX_ANY_FOLDERS))
    refuse(`it has more than ${MAX_ANY_FOLDERS} times "**"`);
}

/** Expands the braces of a glob. `refuse` throws when there are too many alternatives. */
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

/** The names of a glob that begin with a dot, as globs. A written dot asks for hidden files. */
export function hiddenNamesOf(glob: string | undefined): readonly string[] {
  if (glob === undefined || !glob.includes('.')) return [];
  // A range such as {01..10} or {a..c} may stand for anything here, because each path is compared with the whole glob, too.
  const names = alternativesOf(glob.replaceAll(/\{[^{},]*\.\.[^{},]*\}/g, '*'), () => undefined).flatMap((each) =>
    each.split('/'),
  );
  return [...new Set(names.filter((name) => /^\\?\.(?!\.?$)/.test(name)))];
}

/** Adjacent ones count once. */
function countAnyFolders(glob: string): number {
  const names = glob.split('/').filter((name) => name !== '' && name !== '.');
  return names.filter((name, index) => name === '**' && names[index - 1] !== '**').length;
}
