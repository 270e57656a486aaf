/** Repairs unambiguous mistakes of models, without asking the model again. */
import type { JsonSchema } from '../schema/json-schema.ts';
import { withoutNulls } from '../schema/without-nulls.ts';
import { readExactJson } from '../util/json/exact-json.ts';
import { isObject } from '../util/json/json-types.ts';

type SchemaObject = Readonly<Record<string, unknown>>;
const MAX_DEPTH = 32;

/**
 * Arguments with simple mistakes repaired: numbers and booleans sent as text, objects and lists sent as JSON text, one item for a list,
 * null for an optional property. Valid values stay unchanged, and nothing is guessed.
 */
export function repairParams(schema: JsonSchema, params: SchemaObject): SchemaObject {
  return withoutNulls(schema, repair(schema, params, 0)) as SchemaObject;
}

function repair(schema: unknown, value: unknown, depth: number): unknown {
  if (typeof schema !== 'object' || schema === null || depth > MAX_DEPTH) return value;
  const parts = schema as SchemaObject;
  const type = parts['type'];
  const converted = typeof type === 'string' ? toType(type, value) : value;
  if (Array.isArray(converted)) return converted.map((item) => repair(parts['items'], item, depth + 1));
  if (typeof converted !== 'object' || converted === null) return converted;
  const properties = (parts['properties'] ?? {}) as SchemaObject;
  return Object.fromEntries(
    Object.entries(converted).map(([name, member]) => [
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
      return isText ? (parseIf(value, isObject) ?? value) : value;
    case 'array': {
      if (Array.isArray(value) || value === null || value === undefined) return value;
      const list = isText ? parseIf(value, Array.isArray) : undefined;
      return list ?? [value];
    }
    case 'string':
      return typeof value === 'number' || typeof value === 'boolean' ? String(value) : value;
    default:
      return value;
  }
}

function parseIf(text: string, accepts: (value: unknown) => boolean): unknown {
  const read = readExactJson(text);
  return read.kind === 'value' && accepts(read.value) ? read.value : undefined;
}

/** An integer with too many digits would be rounded to another one. */
function isExactNumber(text: string): boolean {
  return /^-?\d+(?:\.\d+)?$/.test(text) && Math.abs(Number(text)) <= Number.MAX_SAFE_INTEGER;
}
