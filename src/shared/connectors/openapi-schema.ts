/** Converts schemas of an OpenAPI document (3.0 and 3.1) to JSON Schema 2020-12, and follows the document's references. */
import { PawlError } from '../errors/failure.ts';
import { decodeStep } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { atPointer } from '../schema/reference-places.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from '../schema/schema-keywords.ts';
import { isObject } from '../util/json/json-types.ts';
import { startOf } from '../util/text/text-cut.ts';

export type Json = Readonly<Record<string, unknown>>;

/** An operation that a connector cannot express; the others are imported. */
export class NotImportable extends Error {}

/** A `CONTRACT_INVALID` error: nothing of the document is imported. */
export function invalidDocument(message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `The document ${message}.`, { issues: [{ path: '', message }] });
}

const MAX_DEPTH = 32;
const DROPPED_KEYWORDS = [
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
export function convertSchema(document: Json, schema: unknown, depth = 0): JsonSchema {
  const source = objectOf(schema);
  if (source === undefined || depth > MAX_DEPTH) return {};
  const reference = source['$ref'];
  if (typeof reference === 'string') {
    // `resolveReference` refuses a reference out of the document.
    if (!reference.startsWith('#/')) return convertSchema(document, resolveReference(document, source), depth + 1);
    const { $ref: _, description: __, nullable: ___, ...siblings } = source;
    // From 3.1 on, keywords beside a reference apply, too.
    const siblingSchema = String(document['openapi']).startsWith('3.0')
      ? {}
      : convertSchema(document, siblings, depth + 1);
    const result = { ...siblingSchema, $ref: `#/$defs/${definitionName(reference)}` };
    return withDescription(source['nullable'] === true ? nullable(result) : result, source['description']);
  }
  const result: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(source)) {
    if (DROPPED_KEYWORDS.includes(keyword) || keyword.startsWith('x-')) continue;
    if (keyword === 'format') {
      if (FORMATS.includes(String(value))) result[keyword] = value;
    } else if (SCHEMA_MAPS.includes(keyword)) result[keyword] = convertMap(document, value, depth);
    else if (SCHEMA_LISTS.includes(keyword) && Array.isArray(value))
      result[keyword] = value.map((part) => {
        const member = convertSchema(document, part, depth + 1);
        return keyword === 'oneOf' ? restrictToTags(document, source, part, member) : member;
      });
    else if (SCHEMA_SINGLES.includes(keyword))
      result[keyword] = typeof value === 'boolean' ? value : convertSchema(document, value, depth + 1);
    else result[keyword] = value;
  }
  dropReadOnly(result, objectOf(source['properties']) ?? {});
  convertExclusiveBounds(result);
  return source['nullable'] === true ? nullable(result) : result;
}

/** OpenAPI 3.0 marks a bound as exclusive by a boolean. */
function convertExclusiveBounds(result: Record<string, unknown>): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof result[exclusive] !== 'boolean') continue;
    if (result[exclusive] === true) result[exclusive] = result[bound];
    else delete result[exclusive];
    if (result[exclusive] !== undefined) delete result[bound];
  }
}

/**
 * One alternative of a `oneOf`. Alternatives of a `discriminator` often accept each other's values, so that not exactly one matches; each is
 * restricted to its own tag.
 */
function restrictToTags(document: Json, { discriminator }: Json, part: unknown, result: JsonSchema): JsonSchema {
  const { propertyName, mapping } = objectOf(discriminator) ?? {};
  const reference = objectOf(part)?.['$ref'];
  if (typeof propertyName !== 'string' || typeof reference !== 'string') return result;
  const tags = tagsOf(document, reference, propertyName, objectOf(mapping) ?? {});
  return { ...result, properties: { [propertyName]: { enum: tags } }, required: [propertyName] };
}

/** The tags of an alternative: those of the mapping and of its own schema, else its name. */
function tagsOf(document: Json, reference: string, propertyName: string, mapping: Json): readonly unknown[] {
  const [, name = reference] = /([^/]+)$/.exec(reference) ?? [];
  const mapped = Object.entries(mapping).flatMap(([tag, mappedTo]) =>
    mappedTo === reference || mappedTo === name ? [tag] : [],
  );
  const ownTags = allowedValues(document, { $ref: reference }, propertyName, new Set());
  if (ownTags.length > 0) return [...new Set([...mapped, ...ownTags])];
  return mapping[decodeStep(name)] === undefined ? [...new Set([...mapped, decodeStep(name)])] : mapped;
}

function allowedValues(document: Json, schema: unknown, propertyName: string, seen: Set<unknown>): readonly unknown[] {
  const source = resolveReference(document, schema);
  if (seen.has(source)) return [];
  seen.add(source);
  const property = resolveReference(document, objectOf(source?.['properties'])?.[propertyName]);
  if (property?.['const'] !== undefined) return [property['const']];
  if (Array.isArray(property?.['enum'])) return property['enum'];
  const parts = ['allOf', 'oneOf', 'anyOf'].flatMap((keyword) => source?.[keyword] ?? []) as readonly unknown[];
  return parts.flatMap((part) => allowedValues(document, part, propertyName, seen));
}

function convertMap(document: Json, parts: unknown, depth: number): Json {
  return Object.fromEntries(
    Object.entries(objectOf(parts) ?? {}).map(([name, schema]) => [
      name,
      typeof schema === 'boolean' ? schema : convertSchema(document, schema, depth + 1),
    ]),
  );
}

/** Removes properties that only responses contain. */
function dropReadOnly(result: Record<string, unknown>, properties: Json): void {
  const { properties: allProperties, required } = result as { readonly properties?: Json; readonly required?: unknown };
  const readOnlyNames = new Set(
    Object.keys(properties).filter((name) => objectOf(properties[name])?.['readOnly'] === true),
  );
  if (allProperties === undefined || readOnlyNames.size === 0) return;
  result['properties'] = Object.fromEntries(Object.entries(allProperties).filter(([name]) => !readOnlyNames.has(name)));
  if (Array.isArray(required)) result['required'] = required.filter((name) => !readOnlyNames.has(name));
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
      reference === undefined
        ? {}
        : convertSchema(document, replaceRecursiveRefs(target(document, reference), reference));
    pending.push(...definitionsIn(definitions[name]));
  }
  return Object.keys(definitions).length === 0 ? schema : { ...schema, $defs: definitions };
}

/**
 * Replaces recursive references (draft 2019-09) by plain ones to the definition itself, which is the schema that their author calls `#`. A
 * value that contains itself is left unchanged from there on.
 */
function replaceRecursiveRefs(value: unknown, self: string, ancestors: readonly unknown[] = []): unknown {
  if (typeof value !== 'object' || value === null || ancestors.includes(value) || ancestors.length > MAX_DEPTH)
    return value;
  const path = [...ancestors, value];
  if (Array.isArray(value)) return value.map((part) => replaceRecursiveRefs(part, self, path));
  const { $recursiveRef: recursive, ...rest } = value as Readonly<Record<string, unknown>>;
  const result = Object.fromEntries(
    Object.entries(rest).map(([key, part]) => [key, replaceRecursiveRefs(part, self, path)]),
  );
  return recursive === '#' ? { ...result, $ref: self } : result;
}

function definitionsIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(definitionsIn);
  const source = objectOf(value);
  if (source === undefined) return [];
  const reference = source['$ref'];
  const [, name] = typeof reference === 'string' ? (/^#\/\$defs\/(.+)$/.exec(reference) ?? []) : [];
  return [...(name === undefined ? [] : [name]), ...Object.values(source).flatMap(definitionsIn)];
}

/** Every reference within the document, by the name of its definition. A document parsed from YAML may contain itself. */
export function referencesOf(document: Json): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const seen = new Set<unknown>();
  const pending: unknown[] = [document];
  while (pending.length > 0) {
    const node = pending.pop();
    if (typeof node !== 'object' || node === null || seen.has(node)) continue;
    seen.add(node);
    const reference = (node as { readonly $ref?: unknown }).$ref;
    if (typeof reference === 'string' && reference.startsWith('#/')) found.set(definitionName(reference), reference);
    for (const part of Object.values(node)) pending.push(part);
  }
  return found;
}

/** A component keeps its own name; any other target is named after its place. */
function definitionName(reference: string): string {
  const place = reference.startsWith(REFERENCE) ? reference.slice(REFERENCE.length) : reference.slice('#/'.length);
  return decodeStep(place).replaceAll(/[^A-Za-z0-9_.-]/g, '_');
}

export function withDescription(schema: JsonSchema, description: unknown): JsonSchema {
  if (typeof description !== 'string' || description === '' || schema['description'] !== undefined) return schema;
  return { ...schema, description };
}

/** An object of the document, with its reference followed. */
export function resolveReference(document: Json, value: unknown): Json | undefined {
  let node = objectOf(value);
  for (let hops = 0; typeof node?.['$ref'] === 'string'; hops += 1) {
    const reference = node['$ref'];
    if (!reference.startsWith('#/') || hops > MAX_DEPTH)
      throw new NotImportable(`its reference ${startOf(reference, 100)} cannot be followed`);
    node = objectOf(target(document, reference));
  }
  return node;
}

function target(document: Json, reference: string): unknown {
  return atPointer(reference.slice('#'.length), document);
}

/** The name, with a number behind it where it is used already. */
export function numberedName(base: string, usedNames: Set<string>): string {
  let name = base;
  for (let number = 2; usedNames.has(name); number += 1) name = `${base}_${number}`;
  usedNames.add(name);
  return name;
}

export function objectOf(value: unknown): Json | undefined {
  return isObject(value) ? (value as Json) : undefined;
}
