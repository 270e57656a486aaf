/** Looks paths up in a JSON Schema: whether they can exist in its values, and which types they can have. */
import type { JsonSchema } from '../schema/json-schema.ts';
import { referenced } from '../schema/schema-references.ts';
import { isObject, jsonTypeOf } from '../util/json/json-types.ts';

/** The possible schemas at a path. `any`: nothing is known. An empty list: the path cannot exist. */
export type PossibleSchemas = readonly JsonSchema[] | 'any';

/** Deeper alternatives count as `any`. */
const MAX_DEPTH = 20;

export function alternativesAt(root: JsonSchema | undefined, path: readonly string[]): PossibleSchemas {
  if (root === undefined) return 'any';
  let schemas: PossibleSchemas = alternativesOf(root, root);
  for (const part of path)
    schemas = unite(schemas, (schema) => unite(memberOf(schema, part), (member) => alternativesOf(root, member)));
  return schemas;
}

/** The possible schemas of all items together. */
function unite<Item>(items: readonly Item[] | 'any', schemasOf: (item: Item) => PossibleSchemas): PossibleSchemas {
  if (items === 'any') return 'any';
  const found: JsonSchema[] = [];
  for (const item of items) {
    const schemas = schemasOf(item);
    if (schemas === 'any') return 'any';
    found.push(...schemas);
  }
  return found;
}

/** The alternatives of a schema, with references resolved. */
function alternativesOf(root: JsonSchema, schema: unknown, depth = 0): PossibleSchemas {
  if (typeof schema !== 'object' || schema === null) return schema === false ? [] : 'any';
  const each = schema as JsonSchema;
  if (depth > MAX_DEPTH || each['allOf'] !== undefined || each['if'] !== undefined) return 'any';
  const reference = each['$ref'];
  if (typeof reference === 'string') {
    const target = referenced(reference, root);
    return target === undefined ? 'any' : alternativesOf(root, target, depth + 1);
  }
  const choices = each['anyOf'] ?? each['oneOf'];
  return Array.isArray(choices) ? unite(choices, (choice) => alternativesOf(root, choice, depth + 1)) : [each];
}

function memberOf(schema: JsonSchema, part: string): PossibleSchemas {
  const types = typesOf([schema]);
  const allowsType = (type: string) => types === undefined || types.has(type);
  const properties = schema['properties'] as Readonly<Record<string, unknown>> | undefined;
  if (allowsType('object')) {
    if (properties !== undefined && Object.hasOwn(properties, part)) return schemaOrAny(properties[part]);
    const additional = schema['additionalProperties'];
    if (schema['patternProperties'] !== undefined) return 'any';
    if (additional !== false) return schemaOrAny(additional);
  }
  if (allowsType('array') && /^\d{1,9}$/.test(part)) {
    const positional = (schema['prefixItems'] as readonly unknown[] | undefined)?.[Number(part)];
    const item = positional ?? schema['items'];
    return item === false ? [] : schemaOrAny(item);
  }
  return [];
}

function schemaOrAny(schema: unknown): PossibleSchemas {
  return isObject(schema) ? [schema] : 'any';
}

/** The types of the values that the schemas allow; undefined when nothing is known. */
export function typesOf(schemas: PossibleSchemas): ReadonlySet<string> | undefined {
  if (schemas === 'any') return undefined;
  const types = new Set<string>();
  for (const schema of schemas) {
    const schemaTypes = schema['type'] ?? typesOfValues(schema);
    if (schemaTypes === undefined) return undefined;
    for (const type of Array.isArray(schemaTypes) ? schemaTypes : [schemaTypes]) types.add(String(type));
  }
  return types;
}

function typesOfValues(schema: JsonSchema): readonly string[] | undefined {
  const values = 'const' in schema ? [schema['const']] : schema['enum'];
  return Array.isArray(values) ? values.map(jsonTypeOf) : undefined;
}

/** Whether a value of the actual schemas may match the expected ones. */
export function mayMatch(actual: PossibleSchemas, expected: PossibleSchemas): boolean {
  const [actualTypes, expectedTypes] = [typesOf(actual), typesOf(expected)];
  if (actualTypes === undefined || expectedTypes === undefined || actualTypes.size === 0 || expectedTypes.size === 0)
    return true;
  const isNumber = (types: ReadonlySet<string>) => types.has('number') || types.has('integer');
  return [...actualTypes].some((type) => expectedTypes.has(type)) || (isNumber(actualTypes) && isNumber(expectedTypes));
}
