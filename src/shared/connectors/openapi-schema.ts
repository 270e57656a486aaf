/** Converts schemas of an OpenAPI document (3.0 and 3.1) to JSON Schema 2020-12, and follows the document's references. */
import { invalidPart, type PawlError } from '../errors/failure.ts';
import { decodeStep } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from '../schema/schema-keywords.ts';
import { isObject } from '../util/json/json-types.ts';
import { asText } from '../util/text/quote-value.ts';
import { words } from '../util/text/words.ts';
import { breakInheritanceCircles } from './openapi-inheritance.ts';
import {
  definitionName,
  isVersion30,
  type Json,
  lastStep,
  objectOf,
  resolveReference,
  resolveSchema,
  target,
  targetsOf,
} from './openapi-references.ts';

/** A `CONTRACT_INVALID` error: nothing of the document is imported. */
export function invalidDocument(message: string): PawlError {
  return invalidPart('The document', '', message);
}

const MAX_DEPTH = 32;
const DROPPED_KEYWORDS = words(`
  example examples externalDocs xml discriminator deprecated readOnly writeOnly nullable $schema $id
  $recursiveAnchor
`);
const FORMATS = words(
  'date-time date time duration uri uri-reference email hostname ipv4 ipv6 uuid int32 int64 float double byte',
);
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
    const siblingSchema = isVersion30(document) ? {} : convertSchema(document, siblings, depth + 1);
    const result = { ...siblingSchema, $ref: `#/$defs/${definitionName(reference)}` };
    return withDescription(source['nullable'] === true ? nullable(result) : result, source['description']);
  }
  const result: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(source)) {
    if (DROPPED_KEYWORDS.includes(keyword) || keyword.startsWith('x-')) continue;
    if (keyword === 'format') {
      if (FORMATS.includes(asText(value))) result[keyword] = value;
    } else if (SCHEMA_MAPS.includes(keyword)) result[keyword] = convertMap(document, value, depth);
    else if (SCHEMA_LISTS.includes(keyword) && Array.isArray(value)) {
      const restrict = value === alternativesOf(source) ? restrictionToTags(document, source) : undefined;
      result[keyword] = value.map((part) => {
        const member = convertPart(document, part, depth);
        return isObject(member) ? (restrict?.(part, member) ?? member) : member;
      });
    } else if (SCHEMA_SINGLES.includes(keyword)) result[keyword] = convertPart(document, value, depth);
    else result[keyword] = value;
  }
  dropReadOnly(document, result, source);
  convertExclusiveBounds(result);
  convertPlainTexts(result);
  allowOverlap(result, source);
  return source['nullable'] === true ? nullable(result) : result;
}

/** YAML reads a text such as 3 or true as a number or a boolean, which no text is equal to. */
function convertPlainTexts(result: Record<string, unknown>): void {
  const types = [result['type']].flat().filter((type) => type !== 'null');
  if (types.length !== 1 || types[0] !== 'string') return;
  const toText = (value: unknown) => (['number', 'boolean'].includes(typeof value) ? String(value) : value);
  if (Array.isArray(result['enum'])) result['enum'] = result['enum'].map(toText);
  for (const keyword of ['const', 'default'])
    if (result[keyword] !== undefined) result[keyword] = toText(result[keyword]);
}

/**
 * Services accept a value that fits several alternatives of `oneOf`, and many documents have alternatives that any value fits which fits
 * another. Tags distinguish the alternatives of a discriminator.
 */
function allowOverlap(result: Record<string, unknown>, source: Json): void {
  if (result['oneOf'] === undefined || result['anyOf'] !== undefined || tagNameOf(source) !== undefined) return;
  result['anyOf'] = result['oneOf'];
  delete result['oneOf'];
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
 * Restricts each alternative beside a `discriminator` to its own tags. Alternatives often accept each other's values, so that not exactly
 * one of `oneOf` would match. A value without the tag has to match exactly one of them. With a `defaultMapping` (OpenAPI 3.2) it is that
 * alternative's, and so is one with another tag.
 */
function restrictionToTags(
  document: Json,
  source: Json,
): ((part: unknown, member: JsonSchema) => JsonSchema) | undefined {
  const propertyName = tagNameOf(source);
  if (propertyName === undefined) return undefined;
  const tagsByPart = tagsByAlternative(document, source, new Map());
  const { defaultMapping } = objectOf(source['discriminator']) ?? {};
  const byDefault = alternativeFinder(document, alternativesWithNames(document, source))(defaultMapping)?.part;
  const tagsOf = (parts: readonly unknown[]) => parts.flatMap((part) => [...(tagsByPart.get(part) ?? [])]);
  const otherTags = tagsOf([...tagsByPart.keys()].filter((part) => part !== byDefault)).flatMap(valuesOfTag);
  return (part, member) => {
    const tags = tagsOf([part]).flatMap(valuesOfTag);
    const isDefault = byDefault !== undefined && part === byDefault;
    if ((isDefault ? otherTags : tags).length === 0) return member;
    const tag = isDefault ? { not: { enum: otherTags } } : { enum: tags };
    const restricted = { ...member, properties: { ...objectOf(member['properties']), [propertyName]: tag } };
    if (byDefault === undefined || isDefault) return restricted;
    const { required } = member;
    return { ...restricted, required: [...(Array.isArray(required) ? required : []), propertyName] };
  };
}

function tagNameOf(source: Json | undefined): string | undefined {
  const { propertyName } = objectOf(source?.['discriminator']) ?? {};
  return typeof propertyName === 'string' ? propertyName : undefined;
}

/** The schemas that a discriminator chooses from. */
function alternativesOf({ oneOf, anyOf }: Json): readonly unknown[] | undefined {
  if (Array.isArray(oneOf)) return oneOf;
  return Array.isArray(anyOf) ? anyOf : undefined;
}

/** A mapping names numbers and booleans by their text. */
function valuesOfTag(tag: unknown): readonly unknown[] {
  return typeof tag === 'string' && /^(?:-?(?:0|[1-9]\d*)|true|false)$/.test(tag) ? [tag, JSON.parse(tag)] : [tag];
}

interface Alternative {
  readonly part: unknown;
  readonly name: string;
  /** The objects that its references lead to, one behind the other. */
  readonly targets: readonly Json[];
}

/**
 * The tags of each alternative: those of the mapping and of its own schema, else its name. A tag that the mapping or a name gives to one
 * alternative is not another one's, although the schema that both extend may list all tags.
 */
function tagsByAlternative(document: Json, source: Json, known: KnownTags): ReadonlyMap<unknown, ReadonlySet<unknown>> {
  const propertyName = tagNameOf(source) ?? '';
  const alternatives = alternativesWithNames(document, source);
  const mappings = [source, ...alternatives.flatMap(({ targets }) => parentsOf(document, targets.at(-1), new Set()))]
    .filter((each) => tagNameOf(each) === propertyName)
    .flatMap((each) => Object.entries(objectOf(objectOf(each['discriminator'])?.['mapping']) ?? {}));
  const owners = new Map<string, unknown>();
  const find = alternativeFinder(document, alternatives);
  for (const [tag, mappedTo] of mappings) {
    const owner = find(mappedTo);
    if (owner !== undefined && !owners.has(tag)) owners.set(tag, owner.part);
  }
  const mappedTags = new Set(mappings.map(([tag]) => tag));
  const tagsOf = ({ targets, name }: Alternative): readonly unknown[] => {
    const ownTags = allowedValues(document, targets.at(-1), propertyName, known);
    return ownTags.length > 0 || mappedTags.has(name) ? ownTags : [name];
  };
  const candidates = new Map(alternatives.map((alternative) => [alternative, tagsOf(alternative)]));
  for (const [{ part, name }, tags] of candidates) if (tags.includes(name) && !owners.has(name)) owners.set(name, part);
  const result = new Map<unknown, Set<unknown>>(alternatives.map(({ part }) => [part, new Set()]));
  for (const [tag, owner] of owners) result.get(owner)?.add(tag);
  // A tag that is not mapped belongs to the default alternative, also where another one lists it.
  const hasDefault = objectOf(source['discriminator'])?.['defaultMapping'] !== undefined;
  const isMapped = (part: unknown) => hasDefault && (result.get(part)?.size ?? 0) > 0;
  for (const [{ part }, tags] of [...candidates].filter(([{ part }]) => !isMapped(part)))
    for (const tag of tags) if ((owners.get(asText(tag)) ?? part) === part) result.get(part)?.add(tag);
  return result;
}

function alternativesWithNames(document: Json, source: Json): readonly Alternative[] {
  return (alternativesOf(source) ?? []).flatMap((part) => {
    const reference = objectOf(part)?.['$ref'];
    if (typeof reference !== 'string') return [];
    return [{ part, name: decodeStep(lastStep(reference)), targets: targetsOf(document, reference) }];
  });
}

/** A mapping names a schema by its name, by a reference to it, or by the file that it was in before the document was put together. */
function alternativeFinder(
  document: Json,
  alternatives: readonly Alternative[],
): (mappedTo: unknown) => Alternative | undefined {
  const byTarget = new Map(alternatives.flatMap((each) => each.targets.map((node) => [node, each] as const)));
  const byName = new Map(alternatives.map((each) => [each.name, each]));
  const components = objectOf(objectOf(document['components'])?.['schemas']) ?? {};
  return (mappedTo) => {
    if (typeof mappedTo !== 'string') return undefined;
    const hash = mappedTo.indexOf('#');
    const node = hash === -1 ? components[mappedTo] : target(document, mappedTo.slice(hash));
    const fileName = lastStep(mappedTo).replace(/\.(?:json|ya?ml)$/, '');
    return byTarget.get(node as Json) ?? byName.get(mappedTo) ?? byName.get(decodeStep(fileName));
  };
}

/** The schemas that a schema extends by `allOf`. */
function parentsOf(document: Json, source: Json | undefined, seen: Set<unknown>): readonly Json[] {
  if (source === undefined || seen.has(source)) return [];
  seen.add(source);
  const parts = Array.isArray(source['allOf']) ? source['allOf'] : [];
  return parts.flatMap((part: unknown) => {
    const parent = resolveSchema(document, part);
    return parent === undefined ? [] : [parent, ...parentsOf(document, parent, seen)];
  });
}

/** The tags of each schema that was visited. A schema that is visited within itself adds none. */
type KnownTags = Map<unknown, readonly unknown[]>;

function allowedValues(document: Json, schema: unknown, propertyName: string, known: KnownTags): readonly unknown[] {
  const source = resolveSchema(document, schema);
  if (source === undefined) return [];
  const earlier = known.get(source);
  if (earlier !== undefined) return earlier;
  known.set(source, []);
  const tags = [...new Set(ownValues(document, source, propertyName, known))];
  known.set(source, tags);
  return tags;
}

function ownValues(document: Json, source: Json, propertyName: string, known: KnownTags): readonly unknown[] {
  if (tagNameOf(source) === propertyName && alternativesOf(source) !== undefined)
    return [...tagsByAlternative(document, source, known).values()].flatMap((tags) => [...tags]);
  const property = resolveSchema(document, objectOf(source['properties'])?.[propertyName]);
  if (property?.['const'] !== undefined) return [property['const']];
  if (Array.isArray(property?.['enum'])) return property['enum'];
  const parts = ['allOf', 'oneOf', 'anyOf'].flatMap((keyword) => source[keyword] ?? []) as readonly unknown[];
  return parts.flatMap((part) => allowedValues(document, part, propertyName, known));
}

function convertMap(document: Json, parts: unknown, depth: number): unknown {
  if (!isObject(parts)) return parts;
  return Object.fromEntries(
    Object.entries(parts).map(([name, schema]) => [name, convertPart(document, schema, depth)]),
  );
}

/** Converts one part. A value that is no schema, or is nested too deep, becomes none, so that the repair of the schema reports it. */
function convertPart(document: Json, part: unknown, depth: number): unknown {
  if (!isObject(part)) return part;
  return depth < MAX_DEPTH ? convertSchema(document, part, depth + 1) : null;
}

/** Removes properties that only responses contain. */
function dropReadOnly(document: Json, result: Record<string, unknown>, source: Json): void {
  const own = readOnlyNames(document, source);
  const { properties } = result;
  if (own.length > 0 && isObject(properties))
    result['properties'] = Object.fromEntries(Object.entries(properties).filter(([name]) => !own.includes(name)));
  const parents = parentsOf(document, source, new Set());
  dropRequired(result, [...own, ...parents.flatMap((parent) => readOnlyNames(document, parent))]);
}

function readOnlyNames(document: Json, { properties }: Json): readonly string[] {
  const isReadOnly = (schema: unknown) => {
    const { $ref: reference } = objectOf(schema) ?? {};
    const targets = typeof reference === 'string' ? targetsOf(document, reference) : [];
    return [objectOf(schema), ...targets].some((each) => each?.['readOnly'] === true);
  };
  return Object.entries(objectOf(properties) ?? {}).flatMap(([name, schema]) => (isReadOnly(schema) ? [name] : []));
}

/** A schema may require what only one that it extends describes. */
function dropRequired(schema: Record<string, unknown>, names: readonly string[]): void {
  if (names.length === 0) return;
  const { required, allOf } = schema;
  if (Array.isArray(required)) schema['required'] = required.filter((name) => !names.includes(name));
  for (const part of Array.isArray(allOf) ? allOf : []) if (isObject(part)) dropRequired(part, names);
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
  const converted = collectDefinitions(schema, (name) => {
    const reference = references.get(name);
    const found = reference === undefined ? undefined : target(document, reference);
    // `false` is a schema, too, which nothing fits.
    if (found === false) return { not: {} };
    return found === undefined ? undefined : convertSchema(document, replaceRecursiveRefs(found, reference ?? ''));
  });
  if (Object.keys(converted).length === 0) return schema;
  const extended = breakInheritanceCircles(converted);
  return { ...schema, $defs: collectDefinitions(schema, (name) => extended[name]) };
}

function collectDefinitions(
  schema: JsonSchema,
  definitionOf: (name: string) => JsonSchema | undefined,
): Readonly<Record<string, JsonSchema>> {
  const definitions: Record<string, JsonSchema> = {};
  const pending = definitionsIn(schema);
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (Object.hasOwn(definitions, name)) continue;
    const definition = definitionOf(name);
    // A reference that leads nowhere stays, so that the repair of the schema reports it.
    if (definition === undefined) continue;
    definitions[name] = definition;
    pending.push(...definitionsIn(definition));
  }
  return definitions;
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

export function withDescription(schema: JsonSchema, description: unknown): JsonSchema {
  if (typeof description !== 'string' || description === '' || schema['description'] !== undefined) return schema;
  return { ...schema, description };
}

/** The name, with a number behind it where it is used already. */
export function numberedName(base: string, usedNames: Set<string>): string {
  let name = base;
  for (let number = 2; usedNames.has(name); number += 1) name = `${base}_${number}`;
  usedNames.add(name);
  return name;
}
