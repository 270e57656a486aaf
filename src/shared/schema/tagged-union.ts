/**
 * Unions whose alternatives differ by a tag (`op: "and"` or `op: "or"`), marked so that Ajv checks the tag first. Without the mark Ajv
 * checks all of each alternative: it reports the faults of all, and nested unions take exponential time in their depth.
 */
import type { JsonSchema } from './json-schema.ts';
import { mapSchemas } from './schema-keywords.ts';
import { referenced } from './schema-references.ts';

const MAX_DEPTH = 64;

/** The value of the `discriminator` keyword. */
export interface Tag {
  readonly propertyName: string;
  /** The values of the property in each alternative. */
  readonly alternatives: readonly (readonly string[])[];
}

/** The schema with marked tags, which accepts the same values; undefined where it has none. */
export function withTags(schema: JsonSchema): JsonSchema | undefined {
  const walk = { root: schema, found: false };
  const marked = markTags(schema, walk, 0);
  return walk.found ? (marked as JsonSchema) : undefined;
}

/** The default values of the parameters that a call may leave out: the schema's, and those of the alternative that a tag selects. */
export function defaultsOf(
  schema: JsonSchema,
  params: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const { oneOf, anyOf: branches = oneOf } = schema;
  const tag = tagOf(branches, schema);
  const value = tag && params[tag.propertyName];
  const selected = tag?.alternatives.findIndex((values) => values.some((each) => each === value)) ?? -1;
  const parts = [schema, ...(selected === -1 ? [] : [objectOf((branches as unknown[])[selected], schema)])];
  const properties = parts.flatMap((part) => Object.entries((part?.['properties'] ?? {}) as JsonSchema));
  return Object.fromEntries(
    properties.flatMap(([name, property]) => {
      const defaultValue = (property as { readonly default?: unknown } | null)?.default;
      return defaultValue === undefined ? [] : [[name, defaultValue]];
    }),
  );
}

function markTags(schema: unknown, walk: { readonly root: JsonSchema; found: boolean }, depth: number): unknown {
  if (depth > MAX_DEPTH) return schema;
  const copy = mapSchemas(schema, (part) => markTags(part, walk, depth + 1));
  if (copy === undefined) return schema;
  // OpenAPI uses the same keyword, with members that Ajv refuses.
  const { discriminator: _, ...marked } = copy;
  const { anyOf, oneOf, ...rest } = marked;
  const branches = anyOf === undefined ? oneOf : oneOf === undefined ? anyOf : undefined;
  const tag = tagOf(branches, walk.root);
  if (tag === undefined || !(rest['type'] === undefined || rest['type'] === 'object')) return marked;
  walk.found = true;
  // Each alternative has its own tag, so `anyOf` and `oneOf` accept the same.
  return { ...rest, type: 'object', oneOf: branches, discriminator: tag };
}

/** The first property that has a text of its own in each alternative. */
function tagOf(branches: unknown, root: JsonSchema): Tag | undefined {
  if (!Array.isArray(branches) || branches.length < 2) return undefined;
  const objects = branches.map((branch) => objectOf(branch, root));
  for (const propertyName of Object.keys(objects[0]?.['properties'] ?? {})) {
    const alternatives = objects.map((branch) => valuesOf(branch, propertyName));
    const values = alternatives.flat();
    const isTag = values.every((value) => typeof value === 'string' && value !== '');
    if (isTag && new Set(values).size === values.length)
      return { propertyName, alternatives: alternatives as string[][] };
  }
  return undefined;
}

/** The alternative, or its definition, where it is an object. */
function objectOf(branch: unknown, root: JsonSchema): JsonSchema | undefined {
  let parts = (typeof branch === 'object' ? branch : null) as JsonSchema | null | undefined;
  const reference = parts?.['$ref'];
  if (typeof reference === 'string') {
    if (!reference.startsWith('#/$defs/')) return undefined;
    // Keywords beside a reference restrict the alternative further.
    if (Object.keys(parts ?? {}).some((keyword) => !['$ref', 'description', 'title'].includes(keyword)))
      return undefined;
    parts = referenced(reference, root) as JsonSchema | undefined;
  }
  return parts?.['type'] === 'object' ? parts : undefined;
}

/** The allowed values of a required property; `[undefined]`, which is no text, where they are not listed or it may be absent. */
function valuesOf(object: JsonSchema | undefined, name: string): readonly unknown[] {
  const property = ((object?.['properties'] ?? {}) as Readonly<Record<string, unknown>>)[name];
  const isRequired = Array.isArray(object?.['required']) && object['required'].includes(name);
  if (!isRequired || typeof property !== 'object' || property === null) return [undefined];
  const { const: constant, enum: allowed } = property as { readonly const?: unknown; readonly enum?: unknown };
  if (constant !== undefined) return [constant];
  return Array.isArray(allowed) && allowed.length > 0 ? allowed : [undefined];
}
