/** Converts schemas of an OpenAPI document (3.0 and 3.1) to JSON Schema 2020-12, and follows the document's references. */
import { PawlError } from '../errors/failure.ts';
import { decoded } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from '../schema/schema-keywords.ts';
import { startOf } from '../util/text/text-cut.ts';

export type Json = Readonly<Record<string, unknown>>;

/** An operation that a connector cannot express; the others are imported. */
export class NotImportable extends Error {}

/** A `CONTRACT_INVALID` error: nothing of the document is imported. */
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

/** A schema of the document as JSON Schema 2020-12; its references stay, and point to `$defs`. */
export function converted(document: Json, schema: unknown, depth = 0): JsonSchema {
  const given = objectOf(schema);
  if (given === undefined || depth > MAX_DEPTH) return {};
  const reference = given['$ref'];
  if (typeof reference === 'string') {
    // A reference out of the document is refused there.
    if (!reference.startsWith('#/')) return converted(document, resolved(document, given), depth + 1);
    const { $ref: _, description: __, nullable: ___, ...beside } = given;
    // From 3.1 on, keywords beside a reference apply, too.
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
      made[keyword] = value.map((part) => {
        const member = converted(document, part, depth + 1);
        return keyword === 'oneOf' ? withOwnTags(document, given, part, member) : member;
      });
    else if (SCHEMA_SINGLES.includes(keyword))
      made[keyword] = typeof value === 'boolean' ? value : converted(document, value, depth + 1);
    else made[keyword] = value;
  }
  withoutReadOnly(made, objectOf(given['properties']) ?? {});
  convertExclusiveBounds(made);
  return given['nullable'] === true ? nullable(made) : made;
}

/** 3.0 uses a boolean to make the other bound exclusive. */
function convertExclusiveBounds(made: Record<string, unknown>): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof made[exclusive] !== 'boolean') continue;
    if (made[exclusive] === true) made[exclusive] = made[bound];
    else delete made[exclusive];
    if (made[exclusive] !== undefined) delete made[bound];
  }
}

/**
 * One alternative of a `oneOf`. Alternatives of a `discriminator` often accept each other's values, so that not exactly one matches; each is
 * restricted to its own tag.
 */
function withOwnTags(document: Json, { discriminator }: Json, part: unknown, made: JsonSchema): JsonSchema {
  const { propertyName, mapping } = objectOf(discriminator) ?? {};
  const reference = objectOf(part)?.['$ref'];
  if (typeof propertyName !== 'string' || typeof reference !== 'string') return made;
  const tags = tagsOf(document, reference, propertyName, objectOf(mapping) ?? {});
  return { ...made, properties: { [propertyName]: { enum: tags } }, required: [propertyName] };
}

/** The tags of an alternative: those of the mapping and of its own schema, else its name. */
function tagsOf(document: Json, reference: string, propertyName: string, mapping: Json): readonly unknown[] {
  const [, name = reference] = /([^/]+)$/.exec(reference) ?? [];
  const mapped = Object.entries(mapping).flatMap(([tag, to]) => (to === reference || to === name ? [tag] : []));
  const own = allowedValues(document, { $ref: reference }, propertyName, new Set());
  if (own.length > 0) return [...new Set([...mapped, ...own])];
  return mapping[decoded(name)] === undefined ? [...new Set([...mapped, decoded(name)])] : mapped;
}

function allowedValues(document: Json, schema: unknown, propertyName: string, seen: Set<unknown>): readonly unknown[] {
  const given = resolved(document, schema);
  if (seen.has(given)) return [];
  seen.add(given);
  const property = resolved(document, objectOf(given?.['properties'])?.[propertyName]);
  if (property?.['const'] !== undefined) return [property['const']];
  if (Array.isArray(property?.['enum'])) return property['enum'];
  const parts = ['allOf', 'oneOf', 'anyOf'].flatMap((keyword) => given?.[keyword] ?? []) as readonly unknown[];
  return parts.flatMap((part) => allowedValues(document, part, propertyName, seen));
}

function convertedMap(document: Json, parts: unknown, depth: number): Json {
  return Object.fromEntries(
    Object.entries(objectOf(parts) ?? {}).map(([name, schema]) => [
      name,
      typeof schema === 'boolean' ? schema : converted(document, schema, depth + 1),
    ]),
  );
}

/** A property that only answers contain is not sent by a caller. */
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

/** Adds all definitions that a schema refers to, and those that these refer to. */
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

/** Every reference within the document, by the name of its definition. A document from YAML may contain itself. */
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

/** A component keeps its own name; any other target is named after its place. */
function definitionName(reference: string): string {
  const place = reference.startsWith(REFERENCE) ? reference.slice(REFERENCE.length) : reference.slice('#/'.length);
  return decoded(place).replaceAll(/[^A-Za-z0-9_.-]/g, '_');
}

export function described(schema: JsonSchema, description: unknown): JsonSchema {
  if (typeof description !== 'string' || description === '' || schema['description'] !== undefined) return schema;
  return { ...schema, description };
}

/** An object of the document, with its reference followed. */
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
