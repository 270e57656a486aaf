/**
 * Reads the lines of an ignore file as Git does. Git compares bytes, so a text here has a character for each byte.
 *
 * The authors of a workspace's files write its ignore files, too. With a few stars in one line, a backtracking engine
 * would run for hours on one long name. Lines with several stars run on RE2; very long lines are dropped.
 */
import { linearPattern } from '../../shared/schema/linear-pattern.ts';

/** The longest line of an ignore file. */
const MAX_LINE_BYTES = 1_000;
const BYTE_ORDER_MARK = /^\xef\xbb\xbf/;

/** Stands for the slashes of a path. It is no byte, because no class matches a slash, not even one that lists it. */
const SLASH = '\u0100';
const ONE_NAME = `[^${SLASH}]*`;
const FOLDERS = `(?:${ONE_NAME}${SLASH})*`;
const ANYTHING = `[\\x00-${SLASH}]*`;
/** One token of a pattern. A class begins with a literal "]", or contains none that is not escaped or part of a named class. */
const TOKEN =
  /(?<stars>\*+)|(?<any>\?)|\[(?<not>[!^]|(?![!^]))(?<members>(?:\]|(?!\]))(?:\\.|\[:[^\]]*:\]|[^\]\\])*)\]|\\?(?<literal>.)/gs;
const MEMBER = /\[:(?<named>[^\]]*):\]|(?<from>\\?.)-(?<to>\\?.)|\\?(?<one>.)/gs;
const NAMED_CLASSES: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  blank: String.raw`\x09\x20`,
  cntrl: String.raw`\x00-\x1f\x7f`,
  digit: '0-9',
  graph: String.raw`\x21-\x7e`,
  lower: 'a-z',
  print: String.raw`\x20-\x7e`,
  punct: String.raw`\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e`,
  space: String.raw`\x09-\x0d\x20`,
  upper: 'A-Z',
  xdigit: '0-9A-Fa-f',
};

export interface IgnoreRule {
  /** The rule re-includes what an earlier one excludes. */
  readonly isNegated: boolean;
  readonly foldersOnly: boolean;
  /** The rule has a slash before its end, so it is compared with the path instead of the name. */
  readonly isPath: boolean;
  readonly test: (text: string) => boolean;
}

/** A path as the rules' tests take it. */
export const pathBytes = (path: string): string => Buffer.from(path).toString('latin1').replaceAll('/', SLASH);

/** The rules of a file's content, which is one character for each byte. */
export function ignoreRules(content: string): readonly IgnoreRule[] {
  const lines = content.replace(BYTE_ORDER_MARK, '').split(/\r?(?:\n|$)/);
  return lines.flatMap((line) => (line.length > MAX_LINE_BYTES || line.startsWith('#') ? [] : (ruleOf(line) ?? [])));
}

function ruleOf(line: string): IgnoreRule | undefined {
  const isNegated = line.startsWith('!');
  const trimmed = line.slice(isNegated ? 1 : 0).replace(/(?<escaped>(?<!\\)(?:\\\\)*\\ )? *$/, '$<escaped>');
  const foldersOnly = trimmed.endsWith('/');
  const pattern = foldersOnly ? trimmed.slice(0, -1) : trimmed;
  const isPath = pattern.includes('/');
  const expression = expressionOf(isPath ? pattern.replace(/^\//, '') : pattern, isPath);
  if (expression === undefined) return undefined;
  const stars = expression.match(/\*/g)?.length ?? 0;
  const compiled = stars > 1 ? linearPattern(expression) : new RegExp(expression);
  return { isNegated, foldersOnly, isPath, test: (text) => compiled.test(text) };
}

/** Undefined for a pattern that matches nothing. */
function expressionOf(pattern: string, isPath: boolean): string | undefined {
  if (pattern === '' || /(?<!\\)(?:\\\\)*\\$/.test(pattern)) return undefined;
  const parts: string[] = [];
  let end = 0;
  for (const { 0: token, index, groups = {} } of pattern.matchAll(TOKEN)) {
    if (index < end) continue;
    end = index + token.length;
    if (groups.stars !== undefined) {
      const [before, after] = [pattern[index - 1] ?? '/', pattern[end] ?? ''];
      const spans = isPath && groups.stars.length > 1 && before === '/';
      if (spans && after === '/') {
        parts.push(FOLDERS);
        end += 1;
      } else parts.push(spans && after === '' ? ANYTHING : ONE_NAME);
    } else if (groups.any !== undefined) parts.push(`[^${SLASH}]`);
    else if (groups.literal === '[' && token === '[') return undefined;
    else if (groups.literal !== undefined) parts.push(groups.literal === '/' ? SLASH : escaped(groups.literal));
    else {
      const members = membersOf(groups.members ?? '');
      if (members === undefined) return undefined;
      parts.push(groups.not === '' ? `[${members}]` : `[^${SLASH}${members}]`);
    }
  }
  return `^${parts.join('')}$`;
}

/** Undefined for a class whose name does not exist. A range from high to low has its first character alone. */
function membersOf(text: string): string | undefined {
  let members = '';
  for (const { groups = {} } of text.matchAll(MEMBER)) {
    const { named, from = '', to = '', one } = groups;
    const [first, last] = [from.slice(-1), to.slice(-1)];
    if (named !== undefined && NAMED_CLASSES[named] === undefined) return undefined;
    if (named !== undefined) members += NAMED_CLASSES[named];
    else if (one !== undefined) members += escaped(one);
    else members += first < last ? `${escaped(first)}-${escaped(last)}` : escaped(first);
  }
  return members;
}

const escaped = (character: string): string => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
