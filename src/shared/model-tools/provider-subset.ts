/**
 * Converts a schema to the subset that a provider understands. Only restrictions are removed, so the exported schema accepts at least what
 * the tool does. Each removed keyword is reported, and written into the description.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import { hasPortablePatterns } from '../schema/ecma-pattern.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { ANNOTATIONS } from '../schema/schema-keywords.ts';
import { isOfType, jsonTypeOf } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { withEllipsis } from '../util/text/text-cut.ts';

export interface RemovedKeyword {
  /** The path of the schema: `properties.when`; empty for the root. */
  readonly path: string;
  readonly keyword: string;
}

export interface SubsetRules {
  /** Restricting keywords that the provider does not know. */
  readonly unknown: ReadonlySet<string>;
  /** The formats that it knows; undefined for all. */
  readonly formats?: ReadonlySet<string>;
  readonly largestMinItems?: number;
  /** Whether every array must describe its items, if only as anything. OpenAI and Gemini refuse the whole request otherwise. */
  readonly itemsRequired?: boolean;
  /** Whether `required` names only properties that stand beside it. Gemini refuses the whole request otherwise. */
  readonly describedRequired?: boolean;
  /** Whether every property is required. Optional ones then accept null. */
  readonly nullForOptional: boolean;
  /**
   * Whether every object is closed, every array typed, and nothing accepts anything. A schema that cannot be converted throws
   * `CannotBeStrict`.
   */
  readonly closed: boolean;
  readonly constAsEnum: boolean;
  /** Whether an `enum` holds nothing but numbers and texts that are not empty. Null becomes a choice beside it. */
  readonly plainEnums?: boolean;
  /** The keywords that the provider knows. Annotations and extensions beyond them are left out; undefined keeps all. */
  readonly known?: ReadonlySet<string>;
}

/** The reason why a schema has no strict form. */
export class CannotBeStrict extends Error {}

type SchemaObject = Record<string, unknown>;

/** Keywords that check the remainder of another one are removed with it: alone, they would refuse values that the other allows. */
const REMAINDER_OF: Readonly<Record<string, string>> = {
  prefixItems: 'items',
  patternProperties: 'additionalProperties',
};

export function toSubset(
  schema: JsonSchema,
  rules: SubsetRules,
): { readonly schema: JsonSchema; readonly removedKeywords: readonly RemovedKeyword[] } {
  const removedKeywords: RemovedKeyword[] = [];
  const result = convert(schema, '', rules, removedKeywords);
  const combined = ['anyOf', 'oneOf', 'allOf', 'enum', 'not', '$ref'].find((keyword) => result[keyword] !== undefined);
  if (rules.closed && (result['type'] !== 'object' || combined !== undefined))
    throw new CannotBeStrict(`the root is ${combined === undefined ? 'no object' : `combined by ${combined}`}`);
  return { schema: result, removedKeywords };
}

/** The state of one schema's conversion; the schema is changed in place. */
interface Conversion {
  readonly result: SchemaObject;
  readonly path: string;
  readonly rules: SubsetRules;
  /** The notes for the description about removed keywords. */
  readonly notes: string[];
  readonly removedKeywords: RemovedKeyword[];
}

function convert(schema: unknown, path: string, rules: SubsetRules, removedKeywords: RemovedKeyword[]): SchemaObject {
  if (typeof schema === 'boolean') {
    if (rules.closed) throw new CannotBeStrict(`${path || 'the root'} accepts ${schema ? 'anything' : 'nothing'}`);
    if (schema || !rules.unknown.has('not')) return schema ? {} : { not: {} };
    removedKeywords.push({ path, keyword: 'not' });
    return {};
  }
  const result = unwrapReference(schema as SchemaObject, rules);
  const conversion: Conversion = { result, path, rules, notes: [], removedKeywords };
  // Generators say of records that their names are texts, as all names are. A provider's library may warn of it at each request.
  if (JSON.stringify(result['propertyNames']) === '{"type":"string"}') delete result['propertyNames'];
  convertValues(conversion);
  weakenOneOf(conversion);
  removeUnknown(conversion);
  removeUnsupported(conversion);
  convertBelow(conversion);
  if (rules.closed) close(conversion);
  const { notes } = conversion;
  if (rules.known !== undefined)
    for (const keyword of Object.keys(result)) if (!rules.known.has(keyword)) delete result[keyword];
  if (notes.length > 0) result['description'] = [result['description'], ...notes].filter(Boolean).join(' ');
  return result;
}

function remove({ result, path, notes, removedKeywords }: Conversion, keyword: string): void {
  removedKeywords.push({ path, keyword });
  notes.push(keywordText(keyword, result[keyword]));
  delete result[keyword];
}

/** Drops values that contradict the type: the tool does not accept them either. */
function convertValues(conversion: Conversion): void {
  const { result, path, rules } = conversion;
  if (result['const'] !== undefined && rules.constAsEnum) {
    result['enum'] = [result['const']];
    delete result['const'];
  }
  const { enum: values = result['const'] === undefined ? undefined : [result['const']] } = result;
  if (!Array.isArray(values)) return;
  const distinctValues = [...new Map(values.map((value) => [canonicalJson(value), value])).values()];
  const possible = distinctValues.filter((value) => isOfType(result['type'], value));
  if (possible.length === 0 && rules.closed) throw new CannotBeStrict(`${path || 'the root'} has no value of its type`);
  if (possible.length === 0) remove(conversion, result['enum'] === undefined ? 'const' : 'enum');
  else if (possible.length < values.length) result['enum'] = possible;
  if (rules.plainEnums && result['enum'] !== undefined) makePlainEnum(conversion, result['enum'] as readonly unknown[]);
}

function makePlainEnum(conversion: Conversion, values: readonly unknown[]): void {
  const { result } = conversion;
  const others = values.filter((value) => value !== null);
  const isPlain =
    others.length > 0 &&
    others.every((value) => typeof value === 'number' || (typeof value === 'string' && value !== ''));
  addType(result);
  if (!isPlain) {
    remove(conversion, 'enum');
    return;
  }
  if (others.length === values.length || result['anyOf'] !== undefined) return;
  const types = [result['type'] ?? []].flat().filter((name) => name !== 'null');
  result['anyOf'] = [
    { ...(types.length === 0 ? {} : { type: types.length === 1 ? types[0] : types }), enum: others },
    { type: 'null' },
  ];
  delete result['type'];
  delete result['enum'];
}

/** "Exactly one of" becomes "any of", which accepts more, so the keyword counts as removed. */
function weakenOneOf({ result, path, rules, removedKeywords }: Conversion): void {
  if (!Array.isArray(result['oneOf']) || !rules.unknown.has('oneOf') || result['anyOf'] !== undefined) return;
  result['anyOf'] = result['oneOf'];
  removedKeywords.push({ path, keyword: 'oneOf' });
  delete result['oneOf'];
}

function removeUnknown(conversion: Conversion): void {
  const { result, rules } = conversion;
  for (const keyword of Object.keys(result)) {
    if (!rules.unknown.has(keyword)) continue;
    const rest = REMAINDER_OF[keyword];
    const positional = result[keyword];
    const others = rest === undefined ? undefined : result[rest];
    remove(conversion, keyword);
    if (rest === undefined || others === undefined) continue;
    remove(conversion, rest);
    if (keyword === 'prefixItems' && Array.isArray(positional)) result['items'] = anyOfItems(positional, others);
  }
}

/** Removes known keywords whose value the provider does not support. */
function removeUnsupported(conversion: Conversion): void {
  const { result, rules } = conversion;
  if (rules.itemsRequired && isType(result, 'array') && result['items'] === undefined) result['items'] = {};
  if (rules.describedRequired) requireDescribed(conversion);
  removeUnreadable(conversion);
  if (rules.formats !== undefined && result['format'] !== undefined && !rules.formats.has(String(result['format'])))
    remove(conversion, 'format');
  if (Number(result['minItems'] ?? 0) > (rules.largestMinItems ?? Number.POSITIVE_INFINITY))
    remove(conversion, 'minItems');
}

/** Keywords that are or hold patterns and are not converted, in groups. A group without its first keyword would accept less. */
const UNCONVERTED: readonly (readonly string[])[] = [
  ['pattern'],
  ['patternProperties', 'additionalProperties', 'unevaluatedProperties'],
  ['dependentSchemas', 'unevaluatedProperties'],
  ['if', 'then', 'else', 'unevaluatedProperties', 'unevaluatedItems'],
  ['contains', 'minContains', 'maxContains', 'unevaluatedItems'],
  ['not'],
  ['propertyNames'],
  ['unevaluatedProperties'],
  ['unevaluatedItems'],
];

/** Removes the groups with a pattern that the provider cannot read. */
function removeUnreadable(conversion: Conversion): void {
  const { result } = conversion;
  for (const group of UNCONVERTED) {
    const present = group.filter((keyword) => result[keyword] !== undefined);
    const isReadable = present.every((keyword) => hasPortablePatterns({ [keyword]: result[keyword] }));
    if (!isReadable) for (const keyword of present) remove(conversion, keyword);
  }
}

function requireDescribed(conversion: Conversion): void {
  const { result } = conversion;
  const required = (result['required'] ?? []) as readonly string[];
  const described = required.filter((name) => Object.hasOwn(result['properties'] ?? {}, name));
  if (described.length === required.length) return;
  remove(conversion, 'required');
  if (described.length > 0) result['required'] = described;
}

/** Converts the schemas within this one. */
function convertBelow({ result, path, rules, removedKeywords }: Conversion): void {
  const convertPart = (part: unknown, name: string) =>
    convert(part, path === '' ? name : `${path}.${name}`, rules, removedKeywords);
  for (const keyword of ['anyOf', 'oneOf', 'allOf', 'prefixItems'])
    if (Array.isArray(result[keyword]))
      result[keyword] = result[keyword].map((part, index) => convertPart(part, `${keyword}.${index}`));
  if (typeof result['$defs'] === 'object' && result['$defs'] !== null)
    result['$defs'] = mapValues(result['$defs'], (part, name) => convertPart(part, `$defs.${name}`));
  if (result['items'] !== undefined) result['items'] = convertPart(result['items'], 'items');
  if (typeof result['additionalProperties'] === 'object')
    result['additionalProperties'] = convertPart(result['additionalProperties'], 'additionalProperties');
  if (result['properties'] !== undefined || isType(result, 'object')) convertObject(result, path, rules, convertPart);
}

/** Completes a strict schema: adds a type, requires a strict form, and removes annotations that strict modes refuse. */
function close({ result, path, notes }: Conversion): void {
  addType(result);
  requireStrictForm(result, path);
  if (result['default'] !== undefined) notes.push(`Default: ${JSON.stringify(result['default'])}.`);
  delete result['default'];
  delete result['examples'];
}

/** A schema for any item of a list with fixed positions. `others` describes the items after them, if there may be any. */
function anyOfItems(positional: readonly unknown[], others: unknown): unknown {
  const forms = [...positional, ...(others === false ? [] : [others])];
  const distinctValues = [...new Map(forms.map((form) => [JSON.stringify(form), form])).values()];
  return distinctValues.length === 1 ? distinctValues[0] : { anyOf: distinctValues };
}

/**
 * Generators wrap a reference to add keywords to it. Providers accept another form: `allOf` of one schema becomes `anyOf`, and a reference
 * has no keywords next to it.
 */
function unwrapReference(schema: SchemaObject, rules: SubsetRules): SchemaObject {
  const { allOf, $ref, ...siblings } = schema;
  if (siblings['anyOf'] !== undefined) return { ...schema };
  if (rules.unknown.has('allOf') && Array.isArray(allOf) && allOf.length === 1 && $ref === undefined) {
    const [single] = allOf as unknown[];
    const isMerged =
      typeof single === 'object' && Object.keys(siblings).every((keyword) => ANNOTATIONS.includes(keyword));
    return isMerged ? unwrapReference({ ...single, ...siblings }, rules) : { ...siblings, anyOf: allOf };
  }
  if ($ref === undefined || Object.keys(siblings).every((keyword) => keyword.startsWith('$'))) return { ...schema };
  return { ...siblings, ...(allOf !== undefined && { allOf }), anyOf: [{ $ref }] };
}

function convertObject(
  result: SchemaObject,
  path: string,
  rules: SubsetRules,
  convertPart: (part: unknown, name: string) => SchemaObject,
): void {
  const properties = (result['properties'] ?? {}) as SchemaObject;
  const required = (result['required'] as readonly string[] | undefined) ?? [];
  const converted = mapValues(properties, (part, name) => {
    const inner = convertPart(part, `properties.${name}`);
    return rules.nullForOptional && !required.includes(name) ? nullable(inner) : inner;
  });
  if (result['properties'] !== undefined || rules.closed) result['properties'] = converted;
  if (!rules.closed) return;
  if (result['additionalProperties'] !== false)
    throw new CannotBeStrict(`${path || 'the root'} takes any further properties`);
  const undeclared = required.find((name) => !Object.hasOwn(properties, name));
  if (undeclared !== undefined)
    throw new CannotBeStrict(`${path || 'the root'} requires ${undeclared}, which it does not describe`);
  if (rules.nullForOptional) result['required'] = Object.keys(properties);
}

/** OpenAI refuses values without a type beside them. */
function addType(result: SchemaObject): void {
  const values = result['const'] !== undefined ? [result['const']] : result['enum'];
  if (result['type'] !== undefined || !Array.isArray(values)) return;
  const types = [...new Set(values.map(jsonTypeOf))];
  if (types.includes('object') || types.includes('array')) return;
  result['type'] = types.length === 1 ? types[0] : types;
}

function requireStrictForm(result: SchemaObject, path: string): void {
  const place = path || 'the root';
  const isDescribed = ['type', 'anyOf', '$ref', 'enum', 'const'].some((keyword) => result[keyword] !== undefined);
  if (!isDescribed) throw new CannotBeStrict(`${place} accepts anything`);
  if (isType(result, 'array') && result['items'] === undefined)
    throw new CannotBeStrict(`the items of ${place} are not described`);
}

/** Accepts null, too. The description stays outside, where models look for it. */
function nullable(schema: SchemaObject): SchemaObject {
  if (isType(schema, 'null')) return schema;
  const { description, title, ...rest } = schema;
  return { ...defined({ title, description }), anyOf: [rest, { type: 'null' }] };
}

function isType({ type }: SchemaObject, name: string): boolean {
  return type === name || (Array.isArray(type) && type.includes(name));
}

function mapValues(parts: object, map: (part: unknown, name: string) => unknown): SchemaObject {
  return Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, map(part, name)]));
}

/** Describes a keyword: `minLength` 3 is "minLength: 3."; long values are truncated, because descriptions are limited. */
export function keywordText(keyword: string, value: unknown): string {
  return `${keyword}: ${withEllipsis(JSON.stringify(value) ?? '', 200)}.`;
}
