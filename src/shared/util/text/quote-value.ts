/** Quotes foreign values of any kind and size in a sentence. */
import { isLong, jsonPieces } from '../json/json-stream.ts';
import { startOf, withEllipsis } from './text-cut.ts';

/** Quotes the beginning of a value, for an error's sentence. */
export function quoteValue(value: unknown): string {
  return withEllipsis(jsonOf(typeof value === 'string' ? startOf(value, 100) : value), 80);
}

/** The text of a foreign value. JavaScript makes no text of an object whose `toString` is no function, as JSON may hold one. */
export function asText(value: unknown): string {
  return typeof value === 'object' && value !== null ? quoteValue(value) : String(value);
}

/** The value's JSON, or its type where it is nested too deep to be written. JSON would write null for NaN. */
function jsonOf(value: unknown): string {
  if (typeof value === 'number') return String(value);
  if (typeof value === 'bigint') return `${value}n`;
  try {
    // A value may have megabytes, of which only the beginning is shown.
    return (isLong(value) ? jsonPieces(value).next().value : JSON.stringify(value)) ?? String(value);
  } catch {
    return `a deeply nested ${typeof value}`;
  }
}
