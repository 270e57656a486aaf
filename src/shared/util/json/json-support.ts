/** Finds values that JSON cannot represent, or silently drops, before a value is written. The error then names the place. */

/** Deeper cycles are left to `JSON.stringify`, which throws for them. */
const MAX_CYCLE_DEPTH = 64;
/** The depth below which no value is searched. No result may be nested so deeply. */
const MAX_DEPTH = 1_000;

export interface Unserializable {
  /** `.rows[3]`, or empty for the value itself. */
  readonly path: string;
  /** Such as `bigint`, or words such as `a value that holds itself`. */
  readonly kind: string;
}

/**
 * The first part of a value that is not JSON-serializable; undefined when there is none. A value with `toJSON` counts as what that
 * returns. JSON leaves functions and symbols out of an object, which is no fault. Throws what a getter throws.
 */
export function findUnserializable(value: unknown): Unserializable | undefined {
  if (typeof value === 'function' || typeof value === 'symbol') return { path: '', kind: typeof value };
  if (hasToJson(value) && value.toJSON() === undefined)
    return { path: '', kind: 'a value whose toJSON returns undefined' };
  return search(value, []);
}

function search(value: unknown, ancestors: object[]): Unserializable | undefined {
  if (typeof value !== 'object' || value === null) {
    if (typeof value === 'number' && !Number.isFinite(value)) return { path: '', kind: String(value) };
    return typeof value === 'bigint' && !hasToJson(value) ? { path: '', kind: 'bigint' } : undefined;
  }
  // An invalid date, as a `Number` object, would become null.
  if (value instanceof Date && Number.isNaN(value.getTime())) return { path: '', kind: 'Invalid Date' };
  if (value instanceof Number) return search(value.valueOf(), ancestors);
  if (hasToJson(value)) return ArrayBuffer.isView(value) ? undefined : searchToJson(value, ancestors);
  const found = Array.isArray(value) ? undefined : unsupportedKind(value);
  if (found !== undefined) return { path: '', kind: found };
  if (ancestors.length <= MAX_CYCLE_DEPTH && ancestors.includes(value))
    return { path: '', kind: 'a value that holds itself' };
  if (ancestors.length > MAX_DEPTH) return undefined;
  ancestors.push(value);
  const nested = Array.isArray(value) ? searchList(value, ancestors) : searchMembers(value, ancestors);
  ancestors.pop();
  return nested;
}

/** The name of a kind that JSON writes as `{}`, whatever it holds, or of bytes, which JSON writes one by one. */
function unsupportedKind(value: object): string | undefined {
  const prototype: unknown = Object.getPrototypeOf(value);
  // A prototype without one of its own is the `Object.prototype` of another realm.
  if (prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null)
    return undefined;
  const tag = Object.prototype.toString.call(value).slice('[object '.length, -1);
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer)
    return `${tag} (bytes go into content or a file)`;
  if (value instanceof Map || value instanceof Set || value instanceof Promise) return tag;
  if (value instanceof Error) return `${value.name} (its message would be lost)`;
  // An object with members is written as these, and a boxed value as what it holds.
  if (Object.keys(value).length > 0 || ['Number', 'String', 'Boolean'].includes(tag)) return undefined;
  const { name } = (value as { readonly constructor?: { readonly name?: unknown } }).constructor ?? {};
  return `${typeof name === 'string' && name !== '' ? name : tag} without members that JSON knows`;
}

function searchToJson(value: { toJSON(): unknown }, ancestors: object[]): Unserializable | undefined {
  const json = value.toJSON();
  if (typeof json !== 'object' || json === null) return search(json, ancestors);
  return hasToJson(json) ? undefined : search(json, ancestors);
}

function searchList(list: readonly unknown[], ancestors: object[]): Unserializable | undefined {
  for (let index = 0; index < list.length; index += 1) {
    const item = list[index];
    // In a list, JSON writes null for these.
    const isLost = typeof item === 'function' || typeof item === 'symbol';
    const found = isLost ? { path: '', kind: typeof item } : search(item, ancestors);
    if (found !== undefined) return { ...found, path: `[${index}]${found.path}` };
  }
  return undefined;
}

function searchMembers(container: object, ancestors: object[]): Unserializable | undefined {
  for (const name of Object.keys(container)) {
    const found = search((container as Record<string, unknown>)[name], ancestors);
    if (found !== undefined) return { ...found, path: `${pathStep(name)}${found.path}` };
  }
  return undefined;
}

function pathStep(name: string): string {
  return /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
}

function hasToJson(value: unknown): value is { toJSON(): unknown } {
  return typeof (value as { readonly toJSON?: unknown } | null | undefined)?.toJSON === 'function';
}
