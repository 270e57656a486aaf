/** The places of secrets in pairs of a name and a value, as data: in lists and objects, also in JSON that stands in a JSON string. */
import { NAME, PAIR_NAMES, REDACTED, type SecretPattern } from './secret-patterns.ts';

/** Tells a pair of name and value from a list of names. */
const LOOKS_LIKE_A_VALUE = '(?=[^"\\\\]{0,256}[^"\\\\a-z_ ])(?=[^"]{6})';
const SPACE = '(?:\\s|\\\\{1,31}[nrt]){0,20}';
const QUOTE = '\\k<quote>';
const TO_A_VALUE = `${QUOTE}${SPACE}:${SPACE}`;
/** OpenTelemetry's attributes have a value by type, or a list of such. */
const TYPED = `(?:\\{${SPACE}${QUOTE}(?:arrayValue${TO_A_VALUE}\\{${SPACE}${QUOTE}values${TO_A_VALUE}\\[${SPACE}\\{${SPACE}${QUOTE})?stringValue${TO_A_VALUE})?`;
/** Members between the name and the value, such as a type. */
const FURTHER_MEMBERS = `(?:${QUOTE}[\\w-]{1,40}${TO_A_VALUE}(?:${QUOTE}[^"\\\\]{0,256}${QUOTE}|[\\w.-]{1,20})${SPACE},${SPACE}){0,3}`;
const PAIR_NAME = `(?:${PAIR_NAMES.join('|')})${TO_A_VALUE}${QUOTE}[\\w.]{0,60}${NAME}${QUOTE}`;
const VALUE_NAME = `(?:value|val|v)${TO_A_VALUE}`;

/** The patterns for one kind of quote, and for the text between two of them. */
function pairs(quote: string, text: string): readonly SecretPattern[] {
  const open = `(?<quote>${quote})`;
  const value = `(?!\\[redacted\\])${text}${QUOTE}`;
  const replacement = `$<head>${REDACTED}$<quote>`;
  return [
    [`${open}${NAME}${QUOTE}${SPACE},${SPACE}${QUOTE})${LOOKS_LIKE_A_VALUE}${value}`, replacement],
    [
      `${open}${PAIR_NAME}${SPACE},${SPACE}${FURTHER_MEMBERS}${QUOTE}${VALUE_NAME}${TYPED}${QUOTE})${value}`,
      replacement,
    ],
    [
      `${open}${VALUE_NAME}${TYPED}${QUOTE})${value}(?<rest>[\\]}\\s]{0,20},${SPACE}${FURTHER_MEMBERS}${QUOTE}${PAIR_NAME})`,
      `${replacement}$<rest>`,
    ],
    // A list of headers with one name.
    [
      `${open}[\\w.]{0,60}(?:(?:set-)?cookie|(?:proxy-)?authorization|x-[\\w-]{0,60}(?:key|token|secret))${TO_A_VALUE}\\[${SPACE}${QUOTE})(?!\\[redacted\\])[^\\]]{1,4096}${QUOTE}(?=${SPACE}\\])`,
      replacement,
    ],
  ].map(([pattern = '', replaced = '']) => [new RegExp(`(?<head>${pattern}`, 'gi'), replaced, '"']);
}

export const PAIR_PATTERNS: readonly SecretPattern[] = [
  ...pairs('(?<!\\\\)"', '(?:[^"\\\\]|\\\\.)*'),
  // A quote with one more backslash before it belongs to the text.
  ...pairs('(?<!\\\\)\\\\{1,31}"', `(?:(?!(?<!\\\\)${QUOTE})[^\\n]){0,4096}?(?<!\\\\)`),
];
