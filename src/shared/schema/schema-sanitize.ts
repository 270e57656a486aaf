/**
 * Repairs foreign schemas (of MCP servers, dynamic tools, imports): missing types are inferred, structural fields are added, and
 * references that cannot be followed and patterns that cannot be matched are removed. Every change is listed for the operator.
 */
import { getOrInsert } from '../util/get-or-insert.ts';
import { isObject } from '../util/json/json-types.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { startOf, wellFormed } from '../util/text/text-cut.ts';
import { decodeStep } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import { isLinear, patternFault } from './linear-pattern.ts';
import {
  acceptNull,
  COMBINING_KEYWORDS,
  choiceWithNull,
  dropBesideReference,
  renameOlderKeywords,
  type SchemaEdit,
  translateBounds,
  translateOlderDrafts,
  translateOwnRequired,
} from './older-drafts.ts';
import { ReferenceResolver, schemaIdOf } from './reference-places.ts';
import { KEYWORD_VALUES, SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES, UNCHECKED_KEYWORDS } from './schema-keywords.ts';
import { addUsers, withoutReference } from './schema-references.ts';

export interface SanitizedSchema {
  readonly schema: JsonSchema;
  /** Each change with its place: `properties.a: type inferred as object`. */
  readonly changes: readonly string[];
}

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
const MAX_DEPTH = 64;

/** Keywords that imply the type of a schema without one. The first one present wins. */
const TYPE_KEYWORDS: readonly (readonly [type: string, keywords: readonly string[]])[] = [
  ['object', ['properties', 'required', 'additionalProperties', 'patternProperties']],
  ['array', ['items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems']],
  ['string', ['pattern', 'minLength', 'maxLength', 'format']],
  ['number', ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']],
];
/** A schema with one of these needs no type. */
const UNTYPED_KEYWORDS = ['anyOf', 'oneOf', 'allOf', '$ref', 'not', 'if', 'const', 'enum'];
/** The state of one document's repair. */
interface Walk {
  readonly root: Readonly<Record<string, unknown>>;
  readonly resolver: ReferenceResolver;
  /** The enclosing schemas with definitions or an address, the innermost first. */
  readonly ancestors: readonly Readonly<Record<string, unknown>>[];
  /** The root's definitions, under either of their keywords. */
  readonly definitions: Readonly<Record<string, unknown>>;
  readonly role: 'parameters' | 'output';
  readonly changes: string[];
  /** Targets of references elsewhere in the document, and their names in `$defs`. */
  readonly copies: Map<unknown, Copy>;
  readonly usedNames: Set<string>;
  /** Each repaired schema with its place. */
  readonly places: Map<Record<string, unknown>, string>;
  /** The repaired schemas that accept more than before. */
  readonly weakened: Set<unknown>;
}

interface Copy {
  readonly name: string;
  readonly ancestors: Walk['ancestors'];
}

/** The end of the change of a reference that leads nowhere. */
export const UNFOLLOWED = 'cannot be followed';

/** Repairs a schema. The root of a tool's parameters becomes an object; an output may be of any type. */
export function sanitizeSchema(foreign: unknown, role: 'parameters' | 'output' = 'parameters'): SanitizedSchema {
  const changes: string[] = [];
  const root = isObject(foreign) ? wellFormed(foreign) : {};
  if (isObject(foreign) && root !== foreign) changes.push('root: half characters replaced');
  if (!isObject(foreign))
    changes.push(`root: ${foreign === undefined ? 'nothing' : typeof foreign} replaced by an object`);
  const definitions = {
    ...(isObject(root['definitions']) ? root['definitions'] : {}),
    ...(isObject(root['$defs']) ? root['$defs'] : {}),
  };
  const usedNames = new Set(Object.keys(definitions));
  const walk: Walk = {
    ...{ root, definitions, role, changes, usedNames, copies: new Map() },
    ...{ resolver: new ReferenceResolver(root), ancestors: [], places: new Map(), weakened: new Set() },
  };
  const schema = sanitize(root, '', walk, 0) as Record<string, unknown>;
  const copyEntries: [string, unknown][] = [];
  // A copy can refer to further places, which this loop then visits too.
  for (const [target, { name, ancestors }] of walk.copies)
    copyEntries.push([name, sanitize(target, `$defs.${name}`, { ...walk, ancestors }, 1)]);
  if (copyEntries.length > 0) schema['$defs'] = { ...(schema['$defs'] as object), ...Object.fromEntries(copyEntries) };
  delete schema['$schema'];
  relaxNegations(schema, walk);
  if (schema['$ref'] !== undefined) {
    changes.push(`root: what $ref ${JSON.stringify(schema['$ref'])} leads to put in its place`);
    const resolved = sanitizeSchema(withoutReference(schema, schema), role);
    return { schema: resolved.schema, changes: [...changes, ...resolved.changes] };
  }
  if (role === 'output') return { schema, changes };
  if (schema['type'] !== 'object') {
    changes.push(`root: type ${JSON.stringify(schema['type']) ?? 'missing'} made object`);
    schema['type'] = 'object';
    dropNullConst(schema, (change) => void changes.push(`root: ${change}`));
  }
  if (!isObject(schema['properties'])) schema['properties'] = {};
  return { schema, changes };
}

function sanitize(value: unknown, path: string, walk: Walk, depth: number): unknown {
  if (typeof value === 'boolean') return value;
  const place = path === '' ? 'root' : path;
  const note = (change: string) => void walk.changes.push(`${place}: ${change}`);
  if (!isObject(value) || depth > MAX_DEPTH) {
    note(`${depth > MAX_DEPTH ? 'nested too deep' : 'no schema'}, accepts anything`);
    const anything = {};
    walk.weakened.add(anything);
    return anything;
  }
  const schema: Record<string, unknown> = { ...value };
  const drop = (keyword: string, reason: string) => {
    delete schema[keyword];
    if (!UNCHECKED_KEYWORDS.includes(keyword)) walk.weakened.add(schema);
    note(`${keyword} dropped, ${reason}`);
  };
  const rename = (keyword: string, name: string) => {
    schema[name] = schema[keyword];
    delete schema[keyword];
    note(`${keyword} made ${name}`);
  };
  const part: SchemaEdit = { schema, note, drop, rename };
  // Parameters are always an object, so null is no choice for them.
  const allowsNull = schema['nullable'] === true && !(path === '' && walk.role === 'parameters');
  if (schema['nullable'] !== undefined) {
    delete schema['nullable'];
    note(`nullable ${allowsNull ? 'made a choice with null' : 'dropped'}`);
    if (allowsNull && COMBINING_KEYWORDS.some((keyword) => schema[keyword] !== undefined))
      return sanitize(choiceWithNull(schema), path, walk, depth);
  }
  dropBesideReference(part, walk.root['$schema']);
  renameOlderKeywords(part);
  repairEnum(part);
  translateOlderDrafts(part);
  translateOwnRequired(part);
  const inner = isReferenceScope(value) ? { ...walk, ancestors: [value, ...walk.ancestors] } : walk;
  sanitizeSubschemas(part, (subschema, name) =>
    sanitize(subschema, path === '' ? name : `${path}.${name}`, inner, depth + 1),
  );
  translateBounds(part);
  dropInvalidKeywords(part);
  repairReference(part, inner);
  repairPatterns(part);
  repairRequired(part);
  repairType(part);
  dropNullConst(schema, note);
  ensureStructure(part);
  if (allowsNull) acceptNull(schema);
  walk.places.set(schema, place);
  return schema;
}

/**
 * A keyword that refuses the values of a schema refuses more of them when the schema has lost a part. `not` and `if` are dropped then, and
 * more than one alternative may match.
 */
function relaxNegations(root: Record<string, unknown>, { places, weakened, changes }: Walk): void {
  addUsers(weakened, places.keys(), root);
  for (const [schema, place] of places) {
    const { not, if: condition, oneOf, contains } = schema;
    const note = (change: string) => void changes.push(`${place}: ${change}`);
    const drop = (keywords: readonly string[]) => {
      for (const keyword of keywords.filter((each) => schema[each] !== undefined)) {
        delete schema[keyword];
        note(`${keyword} dropped, a part of a schema was dropped`);
      }
    };
    if (weakened.has(not)) drop(['not']);
    if (weakened.has(condition)) drop(['if', 'then', 'else']);
    if (weakened.has(contains)) drop(['maxContains']);
    if (Array.isArray(oneOf) && oneOf.some((each) => weakened.has(each))) {
      delete schema['oneOf'];
      if (schema['anyOf'] === undefined) schema['anyOf'] = oneOf;
      else schema['allOf'] = [...((schema['allOf'] ?? []) as unknown[]), { anyOf: oneOf }];
      note('oneOf made anyOf, a part of a schema was dropped');
    }
    inferType({ schema, note });
    ensureStructure({ schema, note });
  }
}

function isReferenceScope(schema: Readonly<Record<string, unknown>>): boolean {
  return isObject(schema['$defs']) || isObject(schema['definitions']) || schemaIdOf(schema) !== undefined;
}

/** Some providers refuse a value that is listed twice. */
function repairEnum({ schema, note, drop }: SchemaEdit): void {
  const values = schema['enum'];
  if (!Array.isArray(values)) return;
  const distinctValues = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  if (values.length === 0) drop('enum', 'it holds no values');
  else if (distinctValues.length < values.length) {
    schema['enum'] = distinctValues;
    note('duplicates in enum dropped');
  }
}

function sanitizeSubschemas(
  { schema, drop }: SchemaEdit,
  sanitizePart: (part: unknown, name: string) => unknown,
): void {
  for (const keyword of SCHEMA_MAPS) {
    if (isObject(schema[keyword]))
      schema[keyword] = Object.fromEntries(
        Object.entries(schema[keyword]).map(([name, part]) => [name, sanitizePart(part, `${keyword}.${name}`)]),
      );
    else if (schema[keyword] !== undefined) drop(keyword, 'it is no object');
  }
  for (const keyword of SCHEMA_LISTS) {
    if (Array.isArray(schema[keyword]) && schema[keyword].length > 0)
      schema[keyword] = schema[keyword].map((part, index) => sanitizePart(part, `${keyword}.${index}`));
    else if (schema[keyword] !== undefined) drop(keyword, 'it is no list of schemas');
  }
  for (const keyword of SCHEMA_SINGLES)
    if (isSchema(schema[keyword])) schema[keyword] = sanitizePart(schema[keyword], keyword);
    else if (schema[keyword] !== undefined) drop(keyword, 'it is no schema');
}

function dropInvalidKeywords({ schema, drop }: SchemaEdit): void {
  for (const [isFitting, kind, keywords] of KEYWORD_VALUES)
    for (const keyword of keywords)
      if (schema[keyword] !== undefined && !isFitting(schema[keyword])) drop(keyword, `it is no ${kind}`);
}

/** Some generators write null where there is no constant. The type must be final. */
function dropNullConst(schema: Record<string, unknown>, note: (change: string) => void): void {
  const types = [schema['type'] ?? []].flat();
  if (schema['const'] !== null || types.length === 0 || types.includes('null')) return;
  delete schema['const'];
  note('const dropped, its type excludes null');
}

function repairRequired(part: SchemaEdit): void {
  repairNames(part, 'required');
  const { dependentRequired } = part.schema;
  if (!isObject(dependentRequired)) return;
  const lists: Record<string, unknown> = { ...dependentRequired };
  const note = (change: string) => part.note(`dependentRequired: ${change}`);
  const drop = (name: string, reason: string) => {
    delete lists[name];
    note(`${name} dropped, ${reason}`);
  };
  for (const name of Object.keys(lists)) repairNames({ ...part, schema: lists, note, drop }, name);
  part.schema['dependentRequired'] = lists;
}

/** Keeps the names of a list of required members. */
function repairNames(part: SchemaEdit, keyword: string): void {
  const { schema, note, drop } = part;
  const { [keyword]: names } = schema;
  if (names === undefined) return;
  if (!Array.isArray(names)) return void drop(keyword, 'it is no list of names');
  const texts = names.filter((name) => typeof name === 'string');
  if (texts.length < names.length) note(`what is no name dropped from ${keyword}`);
  schema[keyword] = texts;
  dropDuplicates(part, keyword);
}

function ensureStructure({ schema, note }: Pick<SchemaEdit, 'schema' | 'note'>): void {
  const add = (keyword: string, alternative: string) => {
    if (schema[keyword] !== undefined || schema[alternative] !== undefined) return;
    schema[keyword] = {};
    note(`${keyword} added`);
  };
  if (schema['type'] === 'object') add('properties', 'additionalProperties');
  if (schema['type'] === 'array') add('items', 'prefixItems');
}

function repairPatterns({ schema, drop }: SchemaEdit): void {
  const { pattern } = schema;
  const fault = typeof pattern === 'string' ? patternFault(pattern) : 'it is no text';
  if (pattern !== undefined && fault !== undefined) drop('pattern', fault);
  const patternEntries = Object.entries(schema['patternProperties'] ?? {});
  const linear = patternEntries.filter(([pattern]) => isLinear(pattern));
  if (linear.length === patternEntries.length) return;
  for (const [pattern] of patternEntries)
    if (!isLinear(pattern)) drop(`patternProperties.${pattern}`, patternFault(pattern) ?? '');
  schema['patternProperties'] = Object.fromEntries(linear);
  // These check the properties that match no pattern, and dropping a pattern would make them check more.
  for (const keyword of ['additionalProperties', 'unevaluatedProperties'])
    if (schema[keyword] !== undefined) drop(keyword, 'a pattern beside it was dropped');
}

/** Ajv follows references to `$defs` alone. Targets elsewhere, as in zod's `#/properties/from`, are copied there. */
function repairReference(
  { schema, note, drop }: SchemaEdit,
  { root, definitions, resolver, ancestors, copies, usedNames }: Walk,
): void {
  const reference = schema['$ref'];
  if (typeof reference !== 'string') return;
  const document = ancestors.find((schema) => schemaIdOf(schema) !== undefined) ?? root;
  if (reference === '#' && document === root) return;
  const renamed = reference.replace(/^#\/definitions\//, '#/$defs/');
  const isDecodable = orUndefined(() => decodeURIComponent(renamed)) !== undefined;
  // A document may define one name under both keywords.
  const { $defs } = root;
  const isHidden = renamed !== reference && isObject($defs) && Object.hasOwn($defs, renamed.slice('#/$defs/'.length));
  const isDefinition = document === root && !isHidden && /^#\/\$defs\/[^/]+$/.test(renamed) && isDecodable;
  const definition = () => resolver.find(renamed, []) ?? definitions[decodeStep(renamed.slice('#/$defs/'.length))];
  if (isDefinition && isSchema(definition())) {
    schema['$ref'] = renamed;
    return;
  }
  const target = resolver.find(reference, ancestors);
  if (target === root) {
    schema['$ref'] = '#';
    note(`$ref ${JSON.stringify(startOf(reference, 100))} made "#"`);
    return;
  }
  if (!isSchema(target)) return void drop('$ref', `${JSON.stringify(startOf(reference, 100))} ${UNFOLLOWED}`);
  const { name } = getOrInsert(copies, target, () => ({
    name: newName(reference, usedNames, copies.size + 1),
    ancestors,
  }));
  schema['$ref'] = `#/$defs/${name}`;
  note(`what $ref ${JSON.stringify(startOf(reference, 100))} leads to copied to $defs.${name}`);
}

/** A name for the target of a reference, which no other definition has. */
function newName(reference: string, usedNames: Set<string>, firstSuffix: number): string {
  const lastPart = reference.slice(Math.max(reference.lastIndexOf('/'), reference.lastIndexOf('#')) + 1);
  const baseName = lastPart.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 64);
  let name = baseName;
  for (let suffix = firstSuffix; name === '' || usedNames.has(name); suffix += 1) name = `${baseName}_${suffix}`;
  usedNames.add(name);
  return name;
}

function repairType(part: SchemaEdit): void {
  const { schema, note, drop } = part;
  // Google writes the names of types in upper case.
  const lowerCase = typeof schema['type'] === 'string' ? schema['type'].toLowerCase() : '';
  if (lowerCase !== schema['type'] && TYPES.includes(lowerCase)) {
    note(`type ${schema['type']} made ${lowerCase}`);
    schema['type'] = lowerCase;
  }
  const { type } = schema;
  const isKnownType = (name: unknown) => typeof name === 'string' && TYPES.includes(name);
  if (type !== undefined && !(isKnownType(type) || (Array.isArray(type) && type.length > 0 && type.every(isKnownType))))
    drop('type', `${JSON.stringify(type)} is none of JSON Schema`);
  dropDuplicates(part, 'type');
  inferType(part);
}

function inferType({ schema, note }: Pick<SchemaEdit, 'schema' | 'note'>): void {
  if (schema['type'] !== undefined || UNTYPED_KEYWORDS.some((keyword) => schema[keyword] !== undefined)) return;
  const [inferred] = TYPE_KEYWORDS.find(([, keywords]) => keywords.some((name) => schema[name] !== undefined)) ?? [];
  if (inferred === undefined) return;
  schema['type'] = inferred;
  note(`type inferred as ${inferred}`);
}

function dropDuplicates({ schema, note }: SchemaEdit, keyword: string): void {
  const values = schema[keyword];
  if (!Array.isArray(values) || new Set(values).size === values.length) return;
  schema[keyword] = [...new Set(values)];
  note(`duplicates in ${keyword} dropped`);
}

function isSchema(value: unknown): boolean {
  return isObject(value) || typeof value === 'boolean';
}
