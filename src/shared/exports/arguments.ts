/** What a model sent, put into the form that the tool's own schema describes. */
import { decoded } from '../json-pointer.ts';
import type { JsonSchema } from '../schema.ts';

type Parts = Readonly<Record<string, unknown>>;
const MAX_DEPTH = 64;

/** Null becomes absent wherever a property is optional and the canonical schema has no null (providers' strict modes). */
export function withoutNulls(schema: JsonSchema, value: unknown): unknown {
  return normalize(schema, value, schema, 0);
}

function normalize(schema: unknown, value: unknown, root: Parts, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  const parts = resolve(schema, root);
  const branches = ['anyOf', 'oneOf'].flatMap((keyword) => (Array.isArray(parts[keyword]) ? parts[keyword] : []));
  let made: unknown = value;
  for (const part of Array.isArray(parts['allOf']) ? parts['allOf'] : []) made = normalize(part, made, root, depth + 1);
  if (branches.length > 0) {
    const tried = branches.map((branch) => ({ branch, made: normalize(branch, made, root, depth + 1) }));
    const fitting = tried.filter(({ branch, made: candidate }) => fits(branch, candidate, root, depth + 1));
    // A null that one of them allows was meant, though another would do without it.
    made = fitting.toSorted((a, b) => lengthOf(b.made) - lengthOf(a.made))[0]?.made ?? made;
  }
  if (Array.isArray(made)) {
    const first = Array.isArray(parts['prefixItems']) ? parts['prefixItems'] : [];
    return made.map((item, index) => normalize(first[index] ?? parts['items'], item, root, depth + 1));
  }
  const properties = (parts['properties'] ?? {}) as Parts;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  return Object.fromEntries(
    Object.entries(made as Parts).flatMap(([name, member]) => {
      const declared = Object.hasOwn(properties, name);
      const described = declared ? properties[name] : parts['additionalProperties'];
      const absent = member === null && declared && !required.includes(name) && !fits(described, null, root, depth + 1);
      return absent ? [] : [[name, normalize(described, member, root, depth + 1)]];
    }),
  );
}

/** Whether a value can be meant by a schema: its shape and its discriminating values, not every restriction. */
function fits(schema: unknown, value: unknown, root: Parts, depth: number): boolean {
  if (depth > MAX_DEPTH || schema === undefined || schema === true) return true;
  if (schema === false) return false;
  const parts = resolve(schema, root);
  const same = (other: unknown) => JSON.stringify(other) === JSON.stringify(value);
  if (parts['const'] !== undefined && !same(parts['const'])) return false;
  if (Array.isArray(parts['enum']) && !parts['enum'].some(same)) return false;
  const types = parts['type'] === undefined ? [] : [parts['type']].flat();
  if (types.length > 0 && !types.some((type) => isOfType(String(type), value))) return false;
  for (const keyword of ['anyOf', 'oneOf'])
    if (Array.isArray(parts[keyword]) && !parts[keyword].some((part) => fits(part, value, root, depth + 1)))
      return false;
  if (Array.isArray(parts['allOf']) && !parts['allOf'].every((part) => fits(part, value, root, depth + 1)))
    return false;
  if (Array.isArray(value)) return value.every((item) => fits(parts['items'], item, root, depth + 1));
  if (typeof value !== 'object' || value === null) return true;
  const properties = (parts['properties'] ?? {}) as Parts;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  if (required.some((name) => !Object.hasOwn(value, name))) return false;
  return Object.entries(value).every(([name, member]) =>
    Object.hasOwn(properties, name)
      ? fits(properties[name], member, root, depth + 1)
      : parts['additionalProperties'] !== false || parts['properties'] === undefined,
  );
}

function lengthOf(value: unknown): number {
  return JSON.stringify(value).length;
}

function resolve(schema: unknown, root: Parts): Parts {
  if (typeof schema !== 'object' || schema === null) return {};
  const reference = (schema as Parts)['$ref'];
  if (reference === '#') return root;
  if (typeof reference !== 'string' || !reference.startsWith('#/$defs/')) return schema as Parts;
  const name = decoded(reference.slice('#/$defs/'.length));
  const target = ((root['$defs'] ?? {}) as Parts)[name];
  return typeof target === 'object' && target !== null ? (target as Parts) : {};
}

function isOfType(type: string, value: unknown): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}
