/** Reads foreign JSON without loss. A value that JavaScript cannot represent exactly is refused, with its name. */
import { startOf, withEllipsis } from '../text/text-cut.ts';
import { endOfString } from './json-stream.ts';

type ExactJson =
  | { readonly kind: 'value'; readonly value: unknown }
  /** The fault, as the end of a sentence about the text. */
  | { readonly kind: 'problem'; readonly problem: string };

/** Only such numbers can be too long for a number of 64 bits. */
export const LONG_NUMBER = /[\d.]{16}|\d[eE]\+?\d{3}/;
const QUOTED_LENGTH = 40;
/** V8 needs a second and more for some megabytes of brackets within brackets. */
const MAX_LEVELS = 10_000;
/** A text with so few characters cannot hold up the event loop. */
const SHORT_TEXT = 16 * 1_024;
/** `1e400`. */
const SHORTEST_LONG_NUMBER = 5;

/** Reads a text, or bytes, which must be UTF-8. A byte order mark in front is skipped. */
export function readExactJson(source: Uint8Array | string): ExactJson {
  let text: string;
  try {
    text =
      typeof source === 'string'
        ? source.replace(/^\uFEFF/, '')
        : new TextDecoder('utf-8', { fatal: true }).decode(source);
  } catch {
    return { kind: 'problem', problem: 'is not UTF-8' };
  }
  let rounded: (() => string) | undefined;
  if (text.length > SHORT_TEXT || LONG_NUMBER.test(text)) {
    const levels = scanJson(text, (start, end, name) => {
      const source = text.slice(start, end);
      if (isRounded(Number(source), source)) rounded ??= () => roundedProblem(source, name);
    });
    if (levels > MAX_LEVELS) return { kind: 'problem', problem: 'is nested too deeply' };
  }
  try {
    const value: unknown = JSON.parse(text);
    return rounded === undefined ? { kind: 'value', value } : { kind: 'problem', problem: rounded() };
  } catch (error) {
    return { kind: 'problem', problem: `is not JSON: ${startOf((error as Error).message, 200)}` };
  }
}

/**
 * Parses an answer that cannot be asked for again. A whole number beyond 2^53 becomes a text with all its digits, because an ID with
 * rounded digits would be another one. So does a number that is beyond all numbers. Throws `SyntaxError`.
 */
export function parseWithLongNumbersAsText(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (!LONG_NUMBER.test(text)) return value;
  let quoted = '';
  let copied = 0;
  scanJson(text, (start, end) => {
    const source = withoutZeros(text.slice(start, end));
    if (!isLongInteger(source) && !isRounded(Number(source), source)) return;
    quoted += `${text.slice(copied, start)}"${source}"`;
    copied = end;
  });
  return copied === 0 ? value : JSON.parse(quoted + text.slice(copied));
}

/**
 * Calls back for each number that may be too long, with the JSON of the member's name, and returns the number of levels. A reviver for
 * `JSON.parse` would make parsing ten times slower wherever a single ID has many digits. The text may be no JSON.
 */
function scanJson(text: string, onNumber: (start: number, end: number, name: string | undefined) => void): number {
  let level = 0;
  let deepest = 0;
  let lastText: readonly [start: number, end: number] = [0, 0];
  let isMember = false;
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index] as string;
    if (character === '"') {
      const quote = endOfString(text, index + 1);
      const end = quote === -1 ? text.length : quote + 1;
      lastText = [index, end];
      index = end - 1;
    } else if (character === '[' || character === '{') {
      level += 1;
      if (level > deepest) deepest = level;
      isMember = false;
    } else if (character === ']' || character === '}') level -= 1;
    else if (character === ':') isMember = true;
    else if (character === ',') isMember = false;
    else if (character === '-' || (character >= '0' && character <= '9')) {
      const end = endOfNumber(text, index);
      if (end - index >= SHORTEST_LONG_NUMBER) onNumber(index, end, isMember ? text.slice(...lastText) : undefined);
      index = end - 1;
    }
  }
  return deepest;
}

function endOfNumber(text: string, start: number): number {
  let end = start + 1;
  while (end < text.length && '0123456789.eE+-'.includes(text[end] as string)) end += 1;
  return end;
}

/** A fraction of zeros, which some languages write, makes no other number. */
function withoutZeros(source: string): string {
  return source.replace(/\.0+$/, '');
}

/** Whether a text is a whole number beyond 2^53. */
export function isLongInteger(text: string): boolean {
  return /^-?\d{16,}$/.test(text) && !Number.isSafeInteger(Number(text));
}

/** A whole number with more digits than a number holds becomes a different one, and one beyond all numbers is infinite. */
function isRounded(value: number, source: string): boolean {
  if (!Number.isFinite(value)) return true;
  if (Math.abs(value) < 2 ** 53) return false;
  const digits = withoutZeros(source);
  if (/^-?\d+$/.test(digits)) return String(value) !== digits;
  const { significant, exponent } = decimal(source);
  return exponent >= 0 && significant !== decimal(String(value)).significant;
}

/** The digits of a number without zeros at its ends, and the power of ten of the last one. */
function decimal(source: string): { readonly significant: string; readonly exponent: number } {
  const [, whole = '', fraction = '', exponent = '0'] = /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const digits = `${whole}${fraction}`;
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  return {
    significant: digits.slice(0, end).replace(/^0+/, ''),
    exponent: Number(exponent) - fraction.length + digits.length - end,
  };
}

function roundedProblem(source: string, name: string | undefined): string {
  const place = name === undefined ? '' : ` as ${JSON.stringify(startOf(String(JSON.parse(name)), QUOTED_LENGTH))}`;
  return `holds ${withEllipsis(source, QUOTED_LENGTH)}${place}, which a number of 64 bits cannot hold: send it as a text`;
}
