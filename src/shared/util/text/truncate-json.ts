/** Values of any size, shown by their beginning. */
import { startOf } from './text-cut.ts';

/** Of every text that is cut, so much stands there. */
const TEXT_LENGTH = 1_024;

/**
 * A JSON value whose texts, lists and objects are cut so that it has about `maxLength` characters, and says at each place what is
 * missing. It keeps its kind: an object stays one.
 */
export function truncateJson<Value>(value: Value, maxLength: number): Value {
  return new JsonTruncator(maxLength).of(value) as Value;
}

/** A text, or its beginning and how long it is. */
export function truncateText(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${startOf(text, maxLength)}… (${text.length} characters)`;
}

class JsonTruncator {
  #room: number;

  constructor(room: number) {
    this.#room = room;
  }

  of(value: unknown): unknown {
    if (typeof value === 'string') {
      const shown = truncateText(value, Math.max(0, Math.min(TEXT_LENGTH, this.#room)));
      this.#room -= shown.length + 2;
      return shown;
    }
    this.#room -= 4;
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) {
      const items: unknown[] = [];
      for (const item of value) {
        if (this.#room <= 0) return [...items, `… (${value.length - items.length} more)`];
        items.push(this.of(item));
      }
      return items;
    }
    const all = Object.entries(value);
    const members: [string, unknown][] = [];
    for (const [name, member] of all) {
      if (this.#room <= 0) {
        members.push(['…', `(${all.length - members.length} more)`]);
        break;
      }
      this.#room -= name.length + 4;
      members.push([truncateText(name, TEXT_LENGTH), this.of(member)]);
    }
    return Object.fromEntries(members);
  }
}
