/** Reads foreign JSON without loss. A value that JavaScript cannot represent exactly is refused, with its name. */
import { startOf } from '../text/text-cut.ts';

export type ExactJson =
  | { readonly kind: 'value'; readonly value: unknown }
  /** The fault, as the end of a sentence about the text. */
  | { readonly kind: 'problem'; readonly problem: string };

/** Only such numbers can be too long for a number of 64 bits. */
export const LONG_NUMBER = /\d{16}|\d[eE]\+?\d{3}/;
const QUOTED_LENGTH = 40;

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
  let problem: string | undefined;
  const reviver = (name: string, value: unknown, { source = '' }: { readonly source?: string } = {}): unknown => {
    if (typeof value === 'number' && isRounded(value, source)) problem ??= roundedProblem(name, source);
    return value;
  };
  try {
    const value: unknown = LONG_NUMBER.test(text) ? JSON.parse(text, reviver) : JSON.parse(text);
    return problem === undefined ? { kind: 'value', value } : { kind: 'problem', problem };
  } catch (error) {
    if (error instanceof RangeError) return { kind: 'problem', problem: 'is nested too deeply' };
    return { kind: 'problem', problem: `is not JSON: ${startOf((error as Error).message, 200)}` };
  }
}

/**
 * Parses an answer that cannot be asked for again. A whole number beyond 2^53 becomes a text with all its digits, because an ID with
 * rounded digits would be another one. So does a number that is beyond all numbers. Throws `SyntaxError`.
 */
export function parseWithLongNumbersAsText(text: string): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const keep = (_name: string, value: unknown, { source = '' }: { readonly source?: string } = {}): unknown =>
    typeof value === 'number' && (isLongInteger(source) || !Number.isFinite(value)) ? source : value;
  try {
    return JSON.parse(text, keep);
  } catch (error) {
    // Only the replacement of numbers recurses.
    if (error instanceof RangeError) return JSON.parse(text);
    throw error;
  }
}

/** Whether a text is a whole number beyond 2^53. */
export function isLongInteger(text: string): boolean {
  return /^-?\d{16,}$/.test(text) && !Number.isSafeInteger(Number(text));
}

/** A whole number with more digits than a number holds becomes a different one, and one beyond all numbers is infinite. */
function isRounded(value: number, source: string): boolean {
  if (!Number.isFinite(value)) return true;
  return !Number.isSafeInteger(value) && /^-?\d+$/.test(source) && String(value) !== source;
}

function roundedProblem(name: string, source: string): string {
  const number = source.length > QUOTED_LENGTH ? `${startOf(source, QUOTED_LENGTH)}…` : source;
  return `holds ${number} as ${JSON.stringify(startOf(name, QUOTED_LENGTH))}, which a number of 64 bits cannot hold: send it as a text`;
}
