/**
 * Patterns of ECMAScript, in the words of RE2. Both have the same syntax for most of it, but some classes have other members: `\s` of
 * RE2 lacks the no-break space, and its dot takes every line end but LF.
 */
import { isObject } from '../util/json/json-types.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { mapSchemas } from './schema-keywords.ts';

/** The ranges of each class that RE2 has otherwise, by code points, in order. */
const SPACES = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x16_80, 0x16_80],
  [0x20_00, 0x20_0a],
  [0x20_28, 0x20_29],
  [0x20_2f, 0x20_2f],
  [0x20_5f, 0x20_5f],
  [0x30_00, 0x30_00],
  [0xfe_ff, 0xfe_ff],
] as const;
const ASCII = [[0, 0x7f]] as const;
const LINE_ENDS = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x20_28, 0x20_29],
] as const;
const LAST_CODE_POINT = 0x10_ff_ff;

type Ranges = readonly (readonly [first: number, last: number])[];

/** The members of each class, as they stand between brackets. */
const MEMBERS: Readonly<Record<string, string>> = {
  '\\s': written(SPACES),
  '\\S': written(complementOf(SPACES)),
  '\\p{ASCII}': written(ASCII),
  '\\P{ASCII}': written(complementOf(ASCII)),
};
const ANY_BUT_LINE_ENDS = `[${written(complementOf(LINE_ENDS))}]`;

/** A pair of escapes for one character, an escape, the name of a group, or a character that has a meaning. */
const TOKEN =
  /\\u(?<high>[dD][89abAB][\dA-Fa-f]{2})\\u(?<low>[dD][c-fC-F][\dA-Fa-f]{2})|\\[pP]\{[^{}]*\}|\\[\s\S]|\(\?<(?![=!])[^>]*>|\[\^?\]?|[\].]/g;
const NAMED_REFERENCE = /(?<!\\)(?:\\\\)*\\k</;
/** A group in which the dot takes line ends too. */
const DOT_TAKES_ALL = /\(\?[a-z]*s[a-z]*(?:-[a-z]+)?[:)]/;

/**
 * The pattern with ECMAScript's classes written out, and its groups without names, which are not used. What is no pattern of ECMAScript
 * stays as it is. Throws a `SyntaxError` for a named back-reference.
 */
export function withEcmaClasses(pattern: string): string {
  const dot = DOT_TAKES_ALL.test(pattern) ? '.' : ANY_BUT_LINE_ENDS;
  let isInClass = false;
  let hasNames = false;
  const written = pattern.replace(TOKEN, (token, high: string | undefined, low: string | undefined) => {
    if (high !== undefined && low !== undefined) return `\\x{${codePointOf(high, low).toString(16)}}`;
    if (isInClass) {
      isInClass = !token.endsWith(']') || token.startsWith('\\');
      return token === '\\b' ? '\\x08' : (MEMBERS[token] ?? token);
    }
    if (token === '.') return dot;
    hasNames ||= token.startsWith('(');
    // A class without members ends where it begins. RE2's translation knows it.
    isInClass = token.startsWith('[') && !token.endsWith(']');
    const members = MEMBERS[token];
    return token.startsWith('(') ? '(' : members === undefined ? token : `[${members}]`;
  });
  if (hasNames && NAMED_REFERENCE.test(pattern)) throw new SyntaxError('it refers to a group by its name');
  return written;
}

/** RE2's groups with modifiers, such as `(?i)`. ECMAScript has some since 2025. */
const MODIFIERS = /(?<!\\)(?:\\\\)*\(\?[a-zA-Z-]+[:)]/;

/** Whether every engine of ECMAScript knows the pattern. RE2 knows more, which libraries and providers fail on. */
function isEcmaPattern(pattern: string): boolean {
  return !MODIFIERS.test(pattern) && orUndefined(() => new RegExp(pattern, 'u')) !== undefined;
}

/** ECMAScript, Python and Rust write these alike, and mean the same. */
const PORTABLE_ESCAPE = String.raw`\\(?:[dDwWsSnrtfv]|x[\dA-Fa-f]{2}|u(?![dD][89a-fA-F])[\dA-Fa-f]{4}|[$()*+./?[\\\]^{|}-])`;
const PORTABLE_CLASS = String.raw`\[(?!\^?\])\^?(?:${PORTABLE_ESCAPE}|(?!--|&&|~~)[^[\\\]])+\]`;
const PORTABLE = new RegExp(String.raw`^(?:${PORTABLE_ESCAPE}|\\[bB]|\((?!\?(?!:))|${PORTABLE_CLASS}|[^\\([])*$`);

/**
 * Whether the engines of providers know the pattern, too. OpenAI reads patterns as Python's and as Rust's, and refuses the whole request for
 * one that either lacks: properties of characters, names of groups, look-around, back-references, classes of nothing or with brackets.
 */
function isPortablePattern(pattern: string): boolean {
  return PORTABLE.test(pattern) && isEcmaPattern(pattern);
}

/** Whether each pattern of a schema is portable, at any depth. */
export function hasPortablePatterns(schema: unknown): boolean {
  if (!isObject(schema)) return true;
  const { pattern, patternProperties } = schema;
  const own = [pattern, ...Object.keys(isObject(patternProperties) ? patternProperties : {})];
  let isPortable = own.every((each) => typeof each !== 'string' || isPortablePattern(each));
  mapSchemas(schema, (below) => {
    isPortable &&= hasPortablePatterns(below);
    return below;
  });
  return isPortable;
}

function codePointOf(high: string, low: string): number {
  return String.fromCharCode(Number.parseInt(high, 16), Number.parseInt(low, 16)).codePointAt(0) ?? 0;
}

function complementOf(ranges: Ranges): Ranges {
  const starts = [0, ...ranges.map(([, last]) => last + 1)];
  const ends = [...ranges.map(([first]) => first - 1), LAST_CODE_POINT];
  return starts.flatMap((first, index) => {
    const last = ends[index] ?? LAST_CODE_POINT;
    return first <= last ? [[first, last] as const] : [];
  });
}

function written(ranges: Ranges): string {
  const point = (code: number) => `\\x{${code.toString(16)}}`;
  return ranges.map(([first, last]) => (first === last ? point(first) : `${point(first)}-${point(last)}`)).join('');
}
