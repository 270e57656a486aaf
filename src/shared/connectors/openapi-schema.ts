/**
 * Schemas of an OpenAPI document (3.0 and 3.1) in the dialect of JSON Schema 2020-12, and what its references lead to.
 */
import { PawlError } from '../errors/failure.ts';
import { decoded } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from '../schema/schema-keywords.ts';
import { startOf } from '../util/text/text-cut.ts';

export type Json = Readonly<Record<string, unknown>>;

/** An operation that no connector can stand for; the others are imported. */
export class NotImportable extends Error {}

/** `CONTRACT_INVALID`: nothing of the document is imported. */
export function invalidDocument(message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `The document ${message}.`, { issues: [{ path: '', message }] });
}

const MAX_DEPTH = 32;
const DROPPED = [
  'example',
  'examples',
  'externalDocs',
  'xml',
  'discriminator',
  'deprecated',
  'readOnly',
  'writeOnly',
  'nullable',
  '$schema',
  '$id',
  '$recursiveAnchor',
];
const FORMATS = [
  'date-time',
  'date',
  'time',
  'duration',
  'uri',
  'uri-reference',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uuid',
  'int32',
  'int64',
  'float',
  'double',
  'byte',
];
const REFERENCE = '#/components/schemas/';

/** A schema of the document in the dialect of JSON Schema 2020-12; its references stay, and point to `$defs`. */
export function converted(document: Json, schema: unknown, depth = 0): JsonSchema {
  const given = objectOf(schema);
  if (given === undefined || depth > MAX_DEPTH) return {};
  const reference = given['$ref'];
  if (typeof reference === 'string') {
    // One that leads out of the document is refused there.
    if (!reference.startsWith('#/')) return converted(document, resolved(document, given), depth + 1);
    const { $ref: _, description: __, nullable: ___, ...beside } = given;
    // From 3.1 on, what stands beside a reference holds as well.
    const more = String(document['openapi']).startsWith('3.0') ? {} : converted(document, beside, depth + 1);
    const made = { ...more, $ref: `#/$defs/${definitionName(reference)}` };
    return described(given['nullable'] === true ? nullable(made) : made, given['description']);
  }
  const made: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(given)) {
    if (DROPPED.includes(keyword) || keyword.startsWith('x-')) continue;
    if (keyword === 'format') {
      if (FORMATS.includes(String(value))) made[keyword] = value;
    } else if (SCHEMA_MAPS.includes(keyword)) made[keyword] = convertedMap(document, value, depth);
    else if (SCHEMA_LISTS.includes(keyword) && Array.isArray(value))
      made[keyword] = value.map((part) => alternative(document, given, keyword, part, depth + 1));
    else if (SCHEMA_SINGLES.includes(keyword))
      made[keyword] = typeof value === 'boolean' ? value : converted(document, value, depth + 1);
    else made[keyword] = value;
  }
  withoutReadOnly(made, objectOf(given['properties']) ?? {});
  // 3.0 says with a boolean that the other bound is exclusive.
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof made[exclusive] !== 'boolean') continue;
    if (made[exclusive] === true) made[exclusive] = made[bound];
    else delete made[exclusive];
    if (made[exclusive] !== undefined) delete made[bound];
  }
  if (given['nullable'] === true) return nullable(made);
  return made;
}

/**
 * One schema of a list. Alternatives of a `discriminator` often accept each other's values, so that not exactly one fits: each takes only
 * what bears its own tag.
 */
function alternative(
  document: Json,
  { discriminator }: Json,
  keyword: string,
  part: unknown,
  depth: number,
): JsonSchema {
  const made = converted(document, part, depth);
  const { propertyName, mapping } = objectOf(discriminator) ?? {};
  const reference = objectOf(part)?.['$ref'];
  if (keyword !== 'oneOf' || typeof propertyName !== 'string' || typeof reference !== 'string') return made;
  const tags = tagsOf(document, reference, propertyName, objectOf(mapping) ?? {});
  return { ...made, properties: { [propertyName]: { enum: tags } }, required: [propertyName] };
}

/** By which an alternative is named: in the mapping, and by what it says of the tag itself, else by its own name. */
function tagsOf(document: Json, reference: string, propertyName: string, mapping: Json): readonly unknown[] {
  const [, name = reference] = /([^/]+)$/.exec(reference) ?? [];
  const mapped = Object.entries(mapping).flatMap(([tag, to]) => (to === reference || to === name ? [tag] : []));
  const own = tagsSaid(document, { $ref: reference }, propertyName, new Set());
  if (own.length > 0) return [...new Set([...mapped, ...own])];
  return mapping[decoded(name)] === undefined ? [...new Set([...mapped, decoded(name)])] : mapped;
}

/** The values that a schema, or what it consists of, allows for a property. */
function tagsSaid(document: Json, schema: unknown, propertyName: string, seen: Set<unknown>): readonly unknown[] {
  const given = resolved(document, schema);
  if (seen.has(given)) return [];
  seen.add(given);
  const property = resolved(document, objectOf(given?.['properties'])?.[propertyName]);
  if (property?.['const'] !== undefined) return [property['const']];
  if (Array.isArray(property?.['enum'])) return property['enum'];
  const parts = ['allOf', 'oneOf', 'anyOf'].flatMap((keyword) => given?.[keyword] ?? []) as readonly unknown[];
  return parts.flatMap((part) => tagsSaid(document, part, propertyName, seen));
}

function convertedMap(document: Json, parts: unknown, depth: number): Json {
  return Object.fromEntries(
    Object.entries(objectOf(parts) ?? {}).map(([name, schema]) => [
      name,
      typeof schema === 'boolean' ? schema : converted(document, schema, depth + 1),
    ]),
  );
}

/** What a service only answers with is nothing that a caller sends. */
function withoutReadOnly(made: Record<string, unknown>, properties: Json): void {
  const { properties: kept, required } = made as { readonly properties?: Json; readonly required?: unknown };
  const own = new Set(Object.keys(properties).filter((name) => objectOf(properties[name])?.['readOnly'] === true));
  if (kept === undefined || own.size === 0) return;
  made['properties'] = Object.fromEntries(Object.entries(kept).filter(([name]) => !own.has(name)));
  if (Array.isArray(required)) made['required'] = required.filter((name) => !own.has(name));
}

function nullable(schema: Record<string, unknown>): JsonSchema {
  const { type, enum: values } = schema;
  if (typeof type !== 'string') return { anyOf: [schema, { type: 'null' }] };
  return {
    ...schema,
    type: [type, 'null'],
    ...(Array.isArray(values) && !values.includes(null) ? { enum: [...values, null] } : {}),
  };
}

/** With all definitions that it refers to, and those that these refer to. */
export function withDefinitions(
  document: Json,
  references: ReadonlyMap<string, string>,
  schema: JsonSchema,
): JsonSchema {
  const definitions: Record<string, JsonSchema> = {};
  const pending = definitionsIn(schema);
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (Object.hasOwn(definitions, name)) continue;
    const reference = references.get(name);
    definitions[name] =
      reference === undefined ? {} : converted(document, withPlainRecursion(target(document, reference), reference));
    pending.push(...definitionsIn(definitions[name]));
  }
  return Object.keys(definitions).length === 0 ? schema : { ...schema, $defs: definitions };
}

/**
 * A definition whose recursive references (draft 2019-09) are plain ones to itself: that is the schema that their author calls `#`. A
 * document that holds itself stays as it is below the place where it does.
 */
function withPlainRecursion(value: unknown, self: string, above: readonly unknown[] = []): unknown {
  if (typeof value !== 'object' || value === null || above.includes(value) || above.length > MAX_DEPTH) return value;
  const below = [...above, value];
  if (Array.isArray(value)) return value.map((part) => withPlainRecursion(part, self, below));
  const { $recursiveRef: recursive, ...rest } = value as Readonly<Record<string, unknown>>;
  const made = Object.fromEntries(
    Object.entries(rest).map(([key, part]) => [key, withPlainRecursion(part, self, below)]),
  );
  return recursive === '#' ? { ...made, $ref: self } : made;
}

function definitionsIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(definitionsIn);
  const given = objectOf(value);
  if (given === undefined) return [];
  const own = given['$ref'];
  const [, name] = typeof own === 'string' ? (/^#\/\$defs\/(.+)$/.exec(own) ?? []) : [];
  return [...(name === undefined ? [] : [name]), ...Object.values(given).flatMap(definitionsIn)];
}

/** Every reference within the document, by the name of what it becomes. A document of YAML may hold itself. */
export function referencesOf(document: Json): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const seen = new Set<unknown>();
  const pending: unknown[] = [document];
  while (pending.length > 0) {
    const at = pending.pop();
    if (typeof at !== 'object' || at === null || seen.has(at)) continue;
    seen.add(at);
    const reference = (at as { readonly $ref?: unknown }).$ref;
    if (typeof reference === 'string' && reference.startsWith('#/')) found.set(definitionName(reference), reference);
    for (const part of Object.values(at)) pending.push(part);
  }
  return found;
}

/** A component has its own name, anything else that of its place. */
function definitionName(reference: string): string {
  const place = reference.startsWith(REFERENCE) ? reference.slice(REFERENCE.length) : reference.slice('#/'.length);
  return decoded(place).replaceAll(/[^A-Za-z0-9_.-]/g, '_');
}

export function described(schema: JsonSchema, description: unknown): JsonSchema {
  if (typeof description !== 'string' || description === '' || schema['description'] !== undefined) return schema;
  return { ...schema, description };
}

// The document

/** An object of the document, its reference followed. */
export function resolved(document: Json, value: unknown): Json | undefined {
  let at = objectOf(value);
  for (let hops = 0; typeof at?.['$ref'] === 'string'; hops += 1) {
    const reference = at['$ref'];
    if (!reference.startsWith('#/') || hops > MAX_DEPTH)
      throw new NotImportable(`its reference ${startOf(reference, 100)} cannot be followed`);
    at = objectOf(target(document, reference));
  }
  return at;
}

/** What stands where a reference within the document points to, lists included. */
function target(document: Json, reference: string): unknown {
  return reference
    .slice('#/'.length)
    .split('/')
    .map(decoded)
    .reduce<unknown>(
      (from, part) =>
        typeof from === 'object' && from !== null && Object.hasOwn(from, part)
          ? (from as Readonly<Record<string, unknown>>)[part]
          : undefined,
      document,
    );
}

export function objectOf(value: unknown): Json | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : undefined;
}
