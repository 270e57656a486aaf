/**
 * Repairs foreign schemas (of MCP servers, dynamic tools, imports): missing types are inferred, structural fields are added, and
 * references that cannot be followed and patterns that cannot be matched are removed. Every change is listed for the operator.
 */
import { defined } from '../util/json/omit-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';
import { decoded } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import { isLinear, patternFault } from './linear-pattern.ts';
import { requiredByThemselves, translateOlderDrafts } from './older-drafts.ts';
import { addressOf, ReferencePlaces } from './reference-places.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from './schema-keywords.ts';
import { withoutReference } from './schema-references.ts';

export interface SanitizedSchema {
  readonly schema: JsonSchema;
  /** Each change with its place: `properties.a: type inferred as object`. */
  readonly changes: readonly string[];
}

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
const MAX_DEPTH = 64;

/** The keywords that show the type of a schema which does not state it. The first that is there wins. */
const TELLING: readonly (readonly [keyword: string, type: string])[] = [
  ['properties', 'object'],
  ['required', 'object'],
  ['additionalProperties', 'object'],
  ['patternProperties', 'object'],
  ['items', 'array'],
  ['prefixItems', 'array'],
  ['minItems', 'array'],
  ['maxItems', 'array'],
  ['uniqueItems', 'array'],
  ['pattern', 'string'],
  ['minLength', 'string'],
  ['maxLength', 'string'],
  ['format', 'string'],
  ['minimum', 'number'],
  ['maximum', 'number'],
  ['exclusiveMinimum', 'number'],
  ['exclusiveMaximum', 'number'],
  ['multipleOf', 'number'],
];
/** A schema with one of these needs no type of its own. */
const SPEAKS_OTHERWISE = ['anyOf', 'oneOf', 'allOf', '$ref', 'not', 'if', 'const', 'enum'];
/** Annotations, and the kind of value that they hold. Any other value makes Ajv refuse the whole schema. */
const isText = (value: unknown) => typeof value === 'string';
const isBoolean = (value: unknown) => typeof value === 'boolean';
const HOLDING: readonly (readonly [holds: (value: unknown) => boolean, what: string, keywords: readonly string[]])[] = [
  [isText, 'text', ['title', 'description', '$comment', 'contentEncoding', 'contentMediaType']],
  [isBoolean, 'boolean', ['deprecated', 'readOnly', 'writeOnly']],
  [Array.isArray, 'list', ['examples']],
];
/** Restrictions for which some generators write null when there is none. Other wrong values stay, so that they are reported. */
const RESTRICTIONS = [
  ...['$ref', 'enum', 'format', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'uniqueItems', 'minContains', 'maxContains'],
  ...['minProperties', 'maxProperties'],
];

/** The state of one document's repair. */
interface Walk {
  readonly root: Readonly<Record<string, unknown>>;
  readonly places: ReferencePlaces;
  /** The schemas around this one that have definitions or an address, the innermost first. */
  readonly around: readonly Readonly<Record<string, unknown>>[];
  /** The root's definitions, under either of their keywords. */
  readonly definitions: Readonly<Record<string, unknown>>;
  readonly of: 'parameters' | 'output';
  readonly changes: string[];
  /** Places elsewhere in the document that references lead to, and their names in `$defs`. */
  readonly copied: Map<unknown, Copy>;
  readonly taken: Set<string>;
}

interface Copy {
  readonly name: string;
  readonly around: Walk['around'];
}

/** Repairs a schema. The root of a tool's parameters becomes an object; an output may be of any type. */
export function sanitizeSchema(foreign: unknown, of: 'parameters' | 'output' = 'parameters'): SanitizedSchema {
  const changes: string[] = [];
  const root = isObject(foreign) ? foreign : {};
  if (!isObject(foreign))
    changes.push(`root: ${foreign === undefined ? 'nothing' : typeof foreign} replaced by an object`);
  const definitions = {
    ...(isObject(root['definitions']) ? root['definitions'] : {}),
    ...(isObject(root['$defs']) ? root['$defs'] : {}),
  };
  const taken = new Set(Object.keys(definitions));
  const walk: Walk = {
    ...{ root, definitions, of, changes, taken, copied: new Map() },
    ...{ places: new ReferencePlaces(root), around: [] },
  };
  const schema = sanitize(root, '', walk, 0) as Record<string, unknown>;
  const copies: [string, unknown][] = [];
  // A copy can refer to further places, which this loop then visits too.
  for (const [target, { name, around }] of walk.copied)
    copies.push([name, sanitize(target, `$defs.${name}`, { ...walk, around }, 1)]);
  if (copies.length > 0) schema['$defs'] = { ...(schema['$defs'] as object), ...Object.fromEntries(copies) };
  delete schema['$schema'];
  if (schema['$ref'] !== undefined) {
    changes.push(`root: what $ref ${JSON.stringify(schema['$ref'])} leads to put in its place`);
    const again = sanitizeSchema(withoutReference(schema, schema), of);
    return { schema: again.schema, changes: [...changes, ...again.changes] };
  }
  if (of === 'output') return { schema, changes };
  if (schema['type'] !== 'object') {
    changes.push(`root: type ${JSON.stringify(schema['type']) ?? 'missing'} made object`);
    schema['type'] = 'object';
  }
  if (!isObject(schema['properties'])) schema['properties'] = {};
  return { schema, changes };
}

/** One schema of the document, and how its changes are made. */
interface Part {
  readonly made: Record<string, unknown>;
  note(change: string): void;
  drop(keyword: string, why: string): void;
}

function sanitize(value: unknown, at: string, walk: Walk, depth: number): unknown {
  if (typeof value === 'boolean') return value;
  const place = at === '' ? 'root' : at;
  const note = (change: string) => void walk.changes.push(`${place}: ${change}`);
  if (!isObject(value) || depth > MAX_DEPTH) {
    note(`${depth > MAX_DEPTH ? 'nested too deep' : 'no schema'}, accepts anything`);
    return {};
  }
  const made: Record<string, unknown> = { ...value };
  const drop = (keyword: string, why: string) => {
    delete made[keyword];
    note(`${keyword} dropped, ${why}`);
  };
  const part: Part = { made, note, drop };
  // Parameters are always an object, so null is no choice for them.
  const takesNull = made['nullable'] === true && !(at === '' && walk.of === 'parameters');
  if (made['nullable'] !== undefined) {
    delete made['nullable'];
    note(`nullable ${takesNull ? 'made a choice with null' : 'dropped'}`);
    if (takesNull && COMBINING.some((keyword) => made[keyword] !== undefined))
      return sanitize(choiceWithNull(made), at, walk, depth);
  }
  renameOlderKeywords(part);
  translateOlderDrafts(part);
  requiredByThemselves(part);
  const inner = isPlaceOfReferences(value) ? { ...walk, around: [value, ...walk.around] } : walk;
  sanitizeBelow(part, (below, name) => sanitize(below, at === '' ? name : `${at}.${name}`, inner, depth + 1));
  repairBounds(part);
  dropMeaningless(part);
  repairReference(part, inner);
  repairPatterns(part);
  repairRequired(part);
  repairType(part);
  ensureStructure(part);
  if (takesNull) acceptNull(made);
  return made;
}

function isPlaceOfReferences(schema: Readonly<Record<string, unknown>>): boolean {
  return isObject(schema['$defs']) || isObject(schema['definitions']) || addressOf(schema) !== undefined;
}

/** Renames keywords of the drafts before 2019-09. */
function renameOlderKeywords({ made, note, drop }: Part): void {
  if (isObject(made['definitions'])) {
    made['$defs'] = { ...made['definitions'], ...(isObject(made['$defs']) ? made['$defs'] : {}) };
    delete made['definitions'];
    note('definitions renamed $defs');
  } else if (made['definitions'] !== undefined) drop('definitions', 'it is no object');
  if (Array.isArray(made['items'])) {
    made['prefixItems'] = made['items'];
    delete made['items'];
    note('a list of items made prefixItems');
    if (made['additionalItems'] !== undefined) {
      made['items'] = made['additionalItems'];
      delete made['additionalItems'];
      note('additionalItems made items');
    }
  } else if (
    made['additionalItems'] !== undefined &&
    Array.isArray(made['prefixItems']) &&
    made['items'] === undefined
  ) {
    made['items'] = made['additionalItems'];
    delete made['additionalItems'];
    note('additionalItems made items');
  } else if (made['additionalItems'] !== undefined) drop('additionalItems', 'there is no list of items beside it');
  // Ajv refuses draft 4's `id`, and an address that two schemas have. The references by these names lead into `$defs` instead.
  for (const name of ['id', '$id', '$anchor', '$dynamicAnchor'])
    if (made[name] !== undefined) drop(name, 'references find their places without it');
  repairEnum({ made, note, drop });
}

/** Some providers refuse a value that is listed twice. */
function repairEnum({ made, note, drop }: Part): void {
  const values = made['enum'];
  if (!Array.isArray(values)) return;
  const different = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  if (values.length === 0) drop('enum', 'it holds no values');
  else if (different.length < values.length) {
    made['enum'] = different;
    note('duplicates in enum dropped');
  }
}

function sanitizeBelow({ made, drop }: Part, below: (part: unknown, name: string) => unknown): void {
  for (const keyword of SCHEMA_MAPS) {
    if (isObject(made[keyword]))
      made[keyword] = Object.fromEntries(
        Object.entries(made[keyword]).map(([name, part]) => [name, below(part, `${keyword}.${name}`)]),
      );
    else if (made[keyword] !== undefined) drop(keyword, 'it is no object');
  }
  for (const keyword of SCHEMA_LISTS) {
    if (Array.isArray(made[keyword]) && made[keyword].length > 0)
      made[keyword] = made[keyword].map((part, index) => below(part, `${keyword}.${index}`));
    else if (made[keyword] !== undefined) drop(keyword, 'it is no list of schemas');
  }
  for (const keyword of SCHEMA_SINGLES) if (made[keyword] !== undefined) made[keyword] = below(made[keyword], keyword);
}

function dropMeaningless({ made, drop }: Part): void {
  for (const [holds, what, keywords] of HOLDING)
    for (const keyword of keywords)
      if (made[keyword] !== undefined && !holds(made[keyword])) drop(keyword, `it is no ${what}`);
  for (const keyword of RESTRICTIONS) if (made[keyword] === null) drop(keyword, 'it is null');
}

function repairRequired(part: Part): void {
  const { required } = part.made;
  if (required === undefined) return;
  if (isListOfTexts(required)) dropDuplicates(part, 'required');
  else part.drop('required', 'it is no list of names');
}

function ensureStructure({ made, note }: Part): void {
  if (made['type'] === 'object' && made['properties'] === undefined && made['additionalProperties'] === undefined) {
    made['properties'] = {};
    note('properties added');
  }
  if (made['type'] === 'array' && made['items'] === undefined && made['prefixItems'] === undefined) {
    made['items'] = {};
    note('items added');
  }
}

function acceptNull(made: Record<string, unknown>): void {
  const types = [made['type'] ?? []].flat();
  if (types.length > 0 && !types.includes('null')) made['type'] = [...types, 'null'];
  if (Array.isArray(made['enum']) && !made['enum'].includes(null)) made['enum'] = [...made['enum'], null];
}

/** Keywords beside which a type with null would not be enough. */
const COMBINING = ['anyOf', 'oneOf', 'allOf', '$ref', 'not', 'if', 'const'];
/** Keywords that check no values, or concern the whole document. */
const BESIDE_CHOICE = [
  ...['title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly'],
  ...['$schema', '$id', '$anchor', '$dynamicAnchor', '$comment', '$defs', 'definitions'],
];

function choiceWithNull(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = Object.entries(schema);
  const beside = Object.fromEntries(entries.filter(([keyword]) => BESIDE_CHOICE.includes(keyword)));
  const { anyOf, ...rest } = Object.fromEntries(entries.filter(([keyword]) => !BESIDE_CHOICE.includes(keyword)));
  const choices = Array.isArray(anyOf) && Object.keys(rest).length === 0 ? anyOf : [{ ...rest, ...defined({ anyOf }) }];
  return { ...beside, anyOf: [...choices, { type: 'null' }] };
}

/** Draft 4 and OpenAPI 3.0 mark an exclusive bound by a boolean beside it. */
function repairBounds({ made, note, drop }: Part): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof made[exclusive] !== 'boolean') continue;
    if (made[exclusive] && typeof made[bound] === 'number') {
      made[exclusive] = made[bound];
      delete made[bound];
      note(`${bound} made ${exclusive}`);
    } else drop(exclusive, made[exclusive] ? `there is no ${bound}` : 'it says nothing');
  }
}

function repairPatterns({ made, note, drop }: Part): void {
  const { pattern: own } = made;
  const fault = typeof own === 'string' ? patternFault(own) : 'it is no text';
  if (own !== undefined && fault !== undefined) drop('pattern', fault);
  const named = Object.entries((made['patternProperties'] ?? {}) as object);
  const linear = named.filter(([pattern]) => isLinear(pattern));
  if (linear.length === named.length) return;
  for (const [pattern] of named)
    if (!isLinear(pattern)) note(`patternProperties.${pattern} dropped, ${patternFault(pattern)}`);
  made['patternProperties'] = Object.fromEntries(linear);
  // These check the properties that match no pattern, and there are more of them now.
  for (const keyword of ['additionalProperties', 'unevaluatedProperties'])
    if (made[keyword] !== undefined) drop(keyword, 'a pattern beside it was dropped');
}

/** Ajv follows references to `$defs` alone. Targets elsewhere, as in zod's `#/properties/from`, are copied there. */
function repairReference({ made, note, drop }: Part, { root, definitions, places, around, copied, taken }: Walk): void {
  const reference = made['$ref'];
  if (typeof reference !== 'string') return;
  const document = around.find((schema) => addressOf(schema) !== undefined) ?? root;
  if (reference === '#' && document === root) return;
  const renamed = reference.replace(/^#\/definitions\//, '#/$defs/');
  if (
    document === root &&
    /^#\/\$defs\/[^/]+$/.test(renamed) &&
    isDecodable(renamed) &&
    isSchema(places.find(renamed, []) ?? definitions[decoded(renamed.slice('#/$defs/'.length))])
  ) {
    made['$ref'] = renamed;
    return;
  }
  const target = places.find(reference, around);
  if (target === root) {
    made['$ref'] = '#';
    note(`$ref ${JSON.stringify(startOf(reference, 100))} made "#"`);
    return;
  }
  if (!isSchema(target)) {
    drop('$ref', `${JSON.stringify(startOf(reference, 100))} cannot be followed`);
    return;
  }
  let name = copied.get(target)?.name;
  if (name === undefined) {
    const own = reference
      .slice(Math.max(reference.lastIndexOf('/'), reference.lastIndexOf('#')) + 1)
      .replaceAll(/[^A-Za-z0-9_-]/g, '_')
      .slice(0, 64);
    name = own;
    for (let mark = copied.size + 1; name === '' || taken.has(name); mark += 1) name = `${own}_${mark}`;
    taken.add(name);
    copied.set(target, { name, around });
  }
  made['$ref'] = `#/$defs/${name}`;
  note(`what $ref ${JSON.stringify(startOf(reference, 100))} leads to copied to $defs.${name}`);
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function repairType(part: Part): void {
  const { made, note, drop } = part;
  // Google writes the names of types in upper case.
  if (typeof made['type'] === 'string' && !TYPES.includes(made['type']) && TYPES.includes(made['type'].toLowerCase())) {
    note(`type ${made['type']} made ${made['type'].toLowerCase()}`);
    made['type'] = made['type'].toLowerCase();
  }
  const type = made['type'];
  const known = (name: unknown) => typeof name === 'string' && TYPES.includes(name);
  if (type !== undefined && !(known(type) || (Array.isArray(type) && type.length > 0 && type.every(known))))
    drop('type', `${JSON.stringify(type)} is none of JSON Schema`);
  dropDuplicates(part, 'type');
  if (made['type'] !== undefined || SPEAKS_OTHERWISE.some((keyword) => made[keyword] !== undefined)) return;
  const inferred = TELLING.find(([keyword]) => made[keyword] !== undefined)?.[1];
  if (inferred === undefined) return;
  made['type'] = inferred;
  note(`type inferred as ${inferred}`);
}

function dropDuplicates({ made, note }: Part, keyword: string): void {
  const values = made[keyword];
  if (!Array.isArray(values) || new Set(values).size === values.length) return;
  made[keyword] = [...new Set(values)];
  note(`duplicates in ${keyword} dropped`);
}

function isSchema(value: unknown): boolean {
  return isObject(value) || typeof value === 'boolean';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOfTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}
