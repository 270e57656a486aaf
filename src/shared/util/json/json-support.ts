/** Finds values that JSON cannot represent, or silently drops, before a value is written. The error then names the place. */
import { types } from 'node:util';
import { startOf } from '../text/text-cut.ts';

/** Deeper cycles are refused for their depth. */
const MAX_CYCLE_DEPTH = 64;
/** `JSON.stringify` has no limit of its own: it ends where the stack does. */
const MAX_DEPTH = 1_000;
const MAX_PATH_LENGTH = 200;

interface Unserializable {
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
  const found = search(value, []);
  return found === undefined ? undefined : { ...found, path: startOf(found.path, MAX_PATH_LENGTH) };
}

function search(value: unknown, ancestors: object[]): Unserializable | undefined {
  if (typeof value !== 'object' || value === null) {
    if (typeof value === 'number' && !Number.isFinite(value)) return { path: '', kind: String(value) };
    return typeof value === 'bigint' && !hasToJson(value) ? { path: '', kind: 'bigint' } : undefined;
  }
  return hasToJson(value) ? searchToJson(value, ancestors) : searchContainer(value, ancestors);
}

/** JSON calls no `toJSON` of the value that `toJSON` returned. */
function searchToJson(value: { toJSON(): unknown }, ancestors: object[]): Unserializable | undefined {
  if (isInvalidDate(value)) return { path: '', kind: 'Invalid Date' };
  if (value.toJSON === Buffer.prototype.toJSON) return undefined;
  const json = value.toJSON();
  if (typeof json === 'function' || typeof json === 'symbol') return { path: '', kind: typeof json };
  return typeof json === 'object' && json !== null ? searchContainer(json, ancestors) : search(json, ancestors);
}

function searchContainer(value: object, ancestors: object[]): Unserializable | undefined {
  const found = Array.isArray(value) ? undefined : unsupportedKind(value);
  if (found !== undefined) return { path: '', kind: found };
  if (ancestors.length <= MAX_CYCLE_DEPTH && ancestors.includes(value))
    return { path: '', kind: 'a value that holds itself' };
  if (ancestors.length > MAX_DEPTH) return { path: '', kind: `a value more than ${MAX_DEPTH} levels deep` };
  ancestors.push(value);
  const nested = Array.isArray(value) ? searchList(value, ancestors) : searchMembers(value, ancestors);
  ancestors.pop();
  return nested;
}

/** Its JSON would be null. The check holds for dates of all realms. */
export function isInvalidDate(value: object): boolean {
  return types.isDate(value) && Number.isNaN(value.getTime());
}

/** The name of a kind that JSON writes as `{}` or null, whatever it holds, or of bytes, which JSON writes one by one. */
export function unsupportedKind(value: object): string | undefined {
  const prototype: unknown = Object.getPrototypeOf(value);
  // A prototype without one of its own is the `Object.prototype` of another realm.
  if (prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null)
    return undefined;
  const tag = Object.prototype.toString.call(value).slice('[object '.length, -1);
  if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) return `${tag} (bytes go into content or a file)`;
  if (types.isMap(value) || types.isSet(value) || types.isPromise(value)) return tag;
  if (types.isNativeError(value) || value instanceof Error) return `${value.name} (its message would be lost)`;
  // A boxed value is written as what it holds, and an object with members as these.
  if (types.isNumberObject(value)) return Number.isFinite(Number(value)) ? undefined : String(value);
  if (Object.keys(value).length > 0 || types.isStringObject(value) || types.isBooleanObject(value)) return undefined;
  const { name } = (value as { readonly constructor?: { readonly name?: unknown } }).constructor ?? {};
  return `${typeof name === 'string' && name !== '' ? name : tag} without members that JSON knows`;
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
