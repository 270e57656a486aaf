/**
 * A parent that lists its children in `oneOf`, while each child extends the parent by `allOf`, refers to itself without end. Its author
 * means that a child extends what the parent says beside its alternatives, so children refer to a definition without them.
 */
import type { JsonSchema } from '../schema/json-schema.ts';
import { getOrInsert } from '../util/get-or-insert.ts';
import { listOf } from '../util/json/json-types.ts';

type Definitions = Readonly<Record<string, JsonSchema>>;

const PREFIX = '#/$defs/';

/** The definitions, in which no child leads back to the alternatives of its parent. */
export function breakInheritanceCircles(definitions: Definitions): Definitions {
  const bases = new Map<string, string>();
  const descendants = new Map<string, ReadonlySet<string>>();
  const inherits = (name: string, parent: string) =>
    getOrInsert(descendants, parent, () => reachableFrom(alternativesOf(definitions[parent]), definitions)).has(name);
  const extendBases = (schema: unknown, name: string, isParent: boolean): unknown => {
    if (!isSchema(schema)) return schema;
    const parent = definitionOf(schema);
    const result: Record<string, unknown> = { ...schema };
    if (isParent && parent !== undefined && inherits(name, parent))
      result['$ref'] = PREFIX + getOrInsert(bases, parent, () => freeName(`${parent}_base`, definitions));
    for (const keyword of ['allOf', 'oneOf', 'anyOf'])
      if (Array.isArray(schema[keyword]))
        result[keyword] = schema[keyword].map((part) => extendBases(part, name, isParent || keyword === 'allOf'));
    return result;
  };
  const result: Record<string, unknown> = {};
  for (const [name, schema] of Object.entries(definitions)) result[name] = extendBases(schema, name, false);
  // A base may extend a base of its own, which this loop then visits, too.
  for (const [name, base] of bases) result[base] = extendBases(withoutAlternatives(definitions[name]), name, false);
  return result as Definitions;
}

/** The names of the definitions that apply to the same value as one of the schemas. */
function reachableFrom(schemas: readonly unknown[], definitions: Definitions): ReadonlySet<string> {
  const names = new Set<string>();
  const pending = [...schemas];
  while (pending.length > 0) {
    const schema = pending.pop();
    if (!isSchema(schema)) continue;
    pending.push(...listOf(schema['allOf']), ...listOf(schema['oneOf']), ...listOf(schema['anyOf']));
    const name = definitionOf(schema);
    if (name === undefined || names.has(name)) continue;
    names.add(name);
    pending.push(definitions[name]);
  }
  return names;
}

function alternativesOf(schema: unknown): readonly unknown[] {
  if (!isSchema(schema)) return [];
  const { oneOf, anyOf, allOf } = schema;
  return [...listOf(oneOf), ...listOf(anyOf), ...listOf(allOf).flatMap(alternativesOf)];
}

function withoutAlternatives(schema: unknown): unknown {
  if (!isSchema(schema)) return schema;
  const { oneOf: _, anyOf: __, ...rest } = schema;
  return Array.isArray(rest['allOf']) ? { ...rest, allOf: rest['allOf'].map(withoutAlternatives) } : rest;
}

function definitionOf({ $ref: reference }: JsonSchema): string | undefined {
  return typeof reference === 'string' && reference.startsWith(PREFIX) ? reference.slice(PREFIX.length) : undefined;
}

function freeName(name: string, definitions: Definitions): string {
  return Object.hasOwn(definitions, name) ? freeName(`${name}_`, definitions) : name;
}

function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null;
}
