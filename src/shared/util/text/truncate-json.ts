/** Truncates values of any size to their beginning. */
import { startOf } from './text-cut.ts';

/** The length that is left of each text that is cut. */
const TEXT_LENGTH = 1_024;

/**
 * Cuts the texts, lists and objects of a JSON value to about `maxLength` characters, and writes at each place what is missing. The
 * value keeps its kind: an object stays an object.
 */
export function truncateJson<Value>(value: Value, maxLength: number): Value {
  return new JsonTruncator(maxLength).of(value) as Value;
}

/** A text, or its beginning and how long it is. */
export function truncateText(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${startOf(text, maxLength)}… (${text.length} characters)`;
}

class JsonTruncator {
  #remaining: number;

  constructor(maxLength: number) {
    this.#remaining = maxLength;
  }

  of(value: unknown): unknown {
    if (typeof value === 'string') {
      const truncated = truncateText(value, Math.max(0, Math.min(TEXT_LENGTH, this.#remaining)));
      this.#remaining -= truncated.length + 2;
      return truncated;
    }
    this.#remaining -= 4;
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) {
      const items: unknown[] = [];
      for (const item of value) {
        if (this.#remaining <= 0) return [...items, `… (${value.length - items.length} more)`];
        items.push(this.of(item));
      }
      return items;
    }
    const entries = Object.entries(value);
    const members: [string, unknown][] = [];
    for (const [name, member] of entries) {
      if (this.#remaining <= 0) {
        members.push(['…', `(${entries.length - members.length} more)`]);
        break;
      }
      this.#remaining -= name.length + 4;
      members.push([truncateText(name, TEXT_LENGTH), this.of(member)]);
    }
    return Object.fromEntries(members);
  }
}
