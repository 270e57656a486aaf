/**
 * Foreign text, cut between characters and repaired. JavaScript counts an emoji as two units, and half of one is no Unicode: a
 * provider refuses the whole request that holds it, and every one after it.
 */

/** The depth below which values are left as they are. */
const MAX_DEPTH = 1_000;

export function startOf(text: string, maxLength: number): string {
  return text.slice(0, boundaryAt(text, Math.max(0, maxLength)));
}

/** The text, or its beginning and an ellipsis if it is longer. */
export function withEllipsis(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${startOf(text, maxLength)}…`;
}

export function endOf(text: string, maxLength: number): string {
  if (maxLength >= text.length) return text;
  const from = text.length - Math.max(0, maxLength);
  return text.slice(boundaryAt(text, from) === from ? from : from + 1);
}

/** The unit at which the character of a unit begins: the unit itself, or the one before. */
export function boundaryAt(text: string, index: number): number {
  const splitsPair = (text.charCodeAt(index - 1) & 0xfc00) === 0xd800 && (text.charCodeAt(index) & 0xfc00) === 0xdc00;
  return splitsPair ? index - 1 : index;
}

/** The same value, or a copy with U+FFFD in place of each half character in its texts and names. */
export function wellFormed<Value>(value: Value): Value {
  return repair(value, 0) as Value;
}

function repair(value: unknown, depth: number): unknown {
  if (typeof value === 'string' || value instanceof String) return value.toWellFormed();
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  if (Array.isArray(value)) {
    let copy: unknown[] | undefined;
    for (let index = 0; index < value.length; index += 1) {
      const item = repair(value[index], depth + 1);
      if (item === value[index] || Number.isNaN(item)) continue;
      copy ??= value.slice();
      copy[index] = item;
    }
    return copy ?? value;
  }
  // Values with `toJSON` write themselves, and bytes hold no text.
  if (typeof (value as { readonly toJSON?: unknown }).toJSON === 'function' || ArrayBuffer.isView(value)) return value;
  const members = value as Readonly<Record<string, unknown>>;
  let copy: [string, unknown][] | undefined;
  let index = 0;
  for (const name of Object.keys(members)) {
    const next: unknown = repair(members[name], depth + 1);
    if (!name.isWellFormed() || !Object.is(next, members[name])) {
      copy ??= Object.entries(members);
      copy[index] = [name.toWellFormed(), next];
    }
    index += 1;
  }
  return copy === undefined ? value : Object.fromEntries(copy);
}
