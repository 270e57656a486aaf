/** The types of JSON values, as JSON Schema names them. */
import { orUndefined } from '../or-undefined.ts';

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The members of a value that has any; else none. */
export function membersIn(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}

/** A value that is a list; none of its entries when it is another value. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The type of a JSON value, apart from `integer`. */
export function jsonTypeOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

/** Whether a value is of the type, or of one of the types, that a schema names. Every value is where it names none. */
export function isOfType(type: unknown, value: unknown): boolean {
  if (type === undefined) return true;
  return [type].flat().some((name) => (name === 'integer' ? Number.isInteger(value) : jsonTypeOf(value) === name));
}

/** Undefined for a text that is not JSON. */
export function parseJson(text: string): unknown {
  return orUndefined((): unknown => JSON.parse(text));
}
