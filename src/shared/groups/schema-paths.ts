/** Looks paths up in a JSON Schema: whether they can exist in its values, and which types they can have. */
import { decodeStep } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';

/** The possible schemas at a path. `any`: nothing is known. An empty list: the path cannot exist. */
export type PossibleSchemas = readonly JsonSchema[] | 'any';

/** Deeper alternatives count as `any`. */
const MAX_DEPTH = 20;

export function schemasAt(root: JsonSchema | undefined, path: readonly string[]): PossibleSchemas {
  if (root === undefined) return 'any';
  let schemas: readonly JsonSchema[] = [root];
  for (const part of path) {
    const members: JsonSchema[] = [];
    for (const schema of schemas) {
      const found = memberSchemas(root, schema, part, 0);
      if (found === 'any') return 'any';
      members.push(...found);
    }
    schemas = members;
  }
  return schemas;
}

function memberSchemas(root: JsonSchema, schema: unknown, part: string, depth: number): PossibleSchemas {
  const alternatives = alternativesOf(root, schema, depth);
  if (alternatives === 'any') return 'any';
  const found: JsonSchema[] = [];
  for (const each of alternatives) {
    const member = memberOf(each, part);
    if (member === 'any') return 'any';
    if (member !== undefined) found.push(member);
  }
  return found;
}

/** The alternatives of a schema, with references resolved. */
function alternativesOf(root: JsonSchema, schema: unknown, depth: number): PossibleSchemas {
  if (typeof schema !== 'object' || schema === null) return schema === false ? [] : 'any';
  const each = schema as JsonSchema;
  if (depth > MAX_DEPTH || each['allOf'] !== undefined || each['if'] !== undefined) return 'any';
  const reference = each['$ref'];
  if (typeof reference === 'string') {
    const target = reference === '#' ? root : definitionOf(root, reference);
    return target === undefined ? 'any' : alternativesOf(root, target, depth + 1);
  }
  const choices = each['anyOf'] ?? each['oneOf'];
  if (!Array.isArray(choices)) return [each];
  const alternatives: JsonSchema[] = [];
  for (const choice of choices) {
    const found = alternativesOf(root, choice, depth + 1);
    if (found === 'any') return 'any';
    alternatives.push(...found);
  }
  return alternatives;
}

function definitionOf(root: JsonSchema, reference: string): unknown {
  const prefix = '#/$defs/';
  if (!reference.startsWith(prefix)) return undefined;
  return (root['$defs'] as Readonly<Record<string, unknown>> | undefined)?.[decodeStep(reference.slice(prefix.length))];
}

/** The schema of one member; undefined when it cannot exist. */
function memberOf(schema: JsonSchema, part: string): JsonSchema | 'any' | undefined {
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
    return item === false ? undefined : schemaOrAny(item);
  }
  return undefined;
}

function schemaOrAny(schema: unknown): JsonSchema | 'any' {
  return typeof schema === 'object' && schema !== null ? (schema as JsonSchema) : 'any';
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
  if (!Array.isArray(values)) return undefined;
  return values.map((value) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value));
}

/** The alternatives of the schemas at a path. */
export function alternativesAt(root: JsonSchema | undefined, path: readonly string[]): PossibleSchemas {
  const schemas = schemasAt(root, path);
  if (schemas === 'any' || root === undefined) return 'any';
  const alternatives: JsonSchema[] = [];
  for (const schema of schemas) {
    const found = alternativesOf(root, schema, 0);
    if (found === 'any') return 'any';
    alternatives.push(...found);
  }
  return alternatives;
}

/** Whether a value of the actual schemas may match the expected ones. */
export function mayMatch(actual: PossibleSchemas, expected: PossibleSchemas): boolean {
  const [actualTypes, expectedTypes] = [typesOf(actual), typesOf(expected)];
  if (actualTypes === undefined || expectedTypes === undefined || actualTypes.size === 0 || expectedTypes.size === 0)
    return true;
  const isNumber = (types: ReadonlySet<string>) => types.has('number') || types.has('integer');
  return [...actualTypes].some((type) => expectedTypes.has(type)) || (isNumber(actualTypes) && isNumber(expectedTypes));
}
