/** The types of JSON values, as JSON Schema names them. */
import { orUndefined } from '../or-undefined.ts';

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a value is of the type, or of one of the types, that a schema names. Every value is where it names none. */
export function isOfType(type: unknown, value: unknown): boolean {
  if (type === undefined) return true;
  return [type].flat().some((name) => {
    if (name === 'null') return value === null;
    if (name === 'array') return Array.isArray(value);
    if (name === 'object') return isObject(value);
    return name === 'integer' ? Number.isInteger(value) : typeof value === name;
  });
}

/** Undefined for a text that is not JSON. */
export function parseJson(text: string): unknown {
  return orUndefined((): unknown => JSON.parse(text));
}
