/** Repairs mistakes of models that have only one meaning, without asking the model again. */
import type { JsonSchema } from '../schema/json-schema.ts';
import { withoutNulls } from '../schema/without-nulls.ts';
import { readExactJson } from '../util/json/exact-json.ts';

type Parts = Readonly<Record<string, unknown>>;
const MAX_DEPTH = 32;

/**
 * Arguments with simple mistakes repaired: numbers and booleans sent as text, objects and lists sent as JSON text, one item for a list,
 * null for an optional property. Valid values stay unchanged, and nothing is guessed.
 */
export function repairParams(schema: JsonSchema, params: Parts): Parts {
  return withoutNulls(schema, repair(schema, params, 0)) as Parts;
}

function repair(schema: unknown, value: unknown, depth: number): unknown {
  if (typeof schema !== 'object' || schema === null || depth > MAX_DEPTH) return value;
  const parts = schema as Parts;
  const type = parts['type'];
  const made = typeof type === 'string' ? toType(type, value) : value;
  if (Array.isArray(made)) return made.map((item) => repair(parts['items'], item, depth + 1));
  if (typeof made !== 'object' || made === null) return made;
  const properties = (parts['properties'] ?? {}) as Parts;
  return Object.fromEntries(
    Object.entries(made).map(([name, member]) => [
      name,
      Object.hasOwn(properties, name) ? repair(properties[name], member, depth + 1) : member,
    ]),
  );
}

function toType(type: string, value: unknown): unknown {
  const isText = typeof value === 'string';
  switch (type) {
    case 'number':
    case 'integer':
      return isText && isExactNumber(value) && (type === 'number' || Number.isInteger(Number(value)))
        ? Number(value)
        : value;
    case 'boolean':
      return value === 'true' ? true : value === 'false' ? false : value;
    case 'object':
      return isText
        ? (parsed(value, (made) => typeof made === 'object' && made !== null && !Array.isArray(made)) ?? value)
        : value;
    case 'array': {
      if (Array.isArray(value) || value === null || value === undefined) return value;
      const list = isText ? parsed(value, Array.isArray) : undefined;
      return list ?? [value];
    }
    case 'string':
      return typeof value === 'number' || typeof value === 'boolean' ? String(value) : value;
    default:
      return value;
  }
}

function parsed(text: string, wanted: (value: unknown) => boolean): unknown {
  const read = readExactJson(text);
  return read.kind === 'value' && wanted(read.value) ? read.value : undefined;
}

/** An integer with more digits than a number holds would become another one. */
function isExactNumber(text: string): boolean {
  return /^-?\d+(?:\.\d+)?$/.test(text) && (text.includes('.') || Number.isSafeInteger(Number(text)));
}
