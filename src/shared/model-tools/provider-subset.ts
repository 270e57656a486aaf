/**
 * Converts a schema to the subset that a provider understands. Only restrictions are removed, so the exported schema accepts at least what
 * the tool does. Each removed keyword is reported, and written into the description.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { startOf } from '../util/text/text-cut.ts';
import { isOfType } from './provider-refusals.ts';
import { ANNOTATIONS } from './schema-size.ts';

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
  /** Whether every array must describe its items, if only as anything. OpenAI refuses the whole request otherwise. */
  readonly itemsRequired?: boolean;
  /** Whether every property is required. Optional ones then accept null. */
  readonly nullForOptional: boolean;
  /**
   * Whether every object is closed, every array typed, and nothing accepts anything. A schema that cannot be converted throws
   * `CannotBeStrict`.
   */
  readonly closed: boolean;
  /** Whether `const` becomes an `enum` of one value. */
  readonly constAsEnum: boolean;
  /** Whether an `enum` holds nothing but numbers and texts that are not empty. Null becomes a choice beside it. */
  readonly plainEnums?: boolean;
  /** The keywords that the provider knows. Annotations and extensions beyond them are left out; undefined keeps all. */
  readonly known?: ReadonlySet<string>;
}

/** The reason why a schema has no strict form. */
export class CannotBeStrict extends Error {}

type Parts = Record<string, unknown>;

/** The keyword that describes the rest of another one is removed with it: alone, it would refuse what the other allows. */
const REST_OF: Readonly<Record<string, string>> = {
  prefixItems: 'items',
  patternProperties: 'additionalProperties',
};

export function toSubset(
  schema: JsonSchema,
  rules: SubsetRules,
): { readonly schema: JsonSchema; readonly removedKeywords: readonly RemovedKeyword[] } {
  const removedKeywords: RemovedKeyword[] = [];
  const made = convert(schema as Parts, '', rules, removedKeywords);
  const combined = ['anyOf', 'oneOf', 'allOf', 'enum', 'not', '$ref'].find((keyword) => made[keyword] !== undefined);
  if (rules.closed && (made['type'] !== 'object' || combined !== undefined))
    throw new CannotBeStrict(`the root is ${combined === undefined ? 'no object' : `combined by ${combined}`}`);
  return { schema: made, removedKeywords };
}

/** One schema on its way, changed in place. */
interface Conversion {
  readonly made: Parts;
  readonly path: string;
  readonly rules: SubsetRules;
  /** The words that the description gets for what is removed. */
  readonly words: string[];
  readonly removedKeywords: RemovedKeyword[];
}

function convert(schema: unknown, path: string, rules: SubsetRules, removedKeywords: RemovedKeyword[]): Parts {
  if (typeof schema === 'boolean') {
    if (rules.closed) throw new CannotBeStrict(`${path || 'the root'} accepts ${schema ? 'anything' : 'nothing'}`);
    if (schema || !rules.unknown.has('not')) return schema ? {} : { not: {} };
    removedKeywords.push({ path, keyword: 'not' });
    return {};
  }
  const made = standingAlone(schema as Parts, rules);
  const conversion: Conversion = { made, path, rules, words: [], removedKeywords };
  convertValues(conversion);
  weakenOneOf(conversion);
  removeUnknown(conversion);
  removeUnsupported(conversion);
  convertBelow(conversion);
  if (rules.closed) close(conversion);
  const { words } = conversion;
  if (rules.known !== undefined)
    for (const keyword of Object.keys(made)) if (!rules.known.has(keyword)) delete made[keyword];
  if (words.length > 0) made['description'] = [made['description'], ...words].filter(Boolean).join(' ');
  return made;
}

function remove({ made, path, words, removedKeywords }: Conversion, keyword: string): void {
  removedKeywords.push({ path, keyword });
  words.push(keywordText(keyword, made[keyword]));
  delete made[keyword];
}

/** Values that contradict the type beside them are not accepted by the tool either. */
function convertValues(conversion: Conversion): void {
  const { made, path, rules } = conversion;
  if (made['const'] !== undefined && rules.constAsEnum) {
    made['enum'] = [made['const']];
    delete made['const'];
  }
  const { enum: values = made['const'] === undefined ? undefined : [made['const']] } = made;
  if (!Array.isArray(values)) return;
  const different = [...new Map(values.map((value) => [canonicalJson(value), value])).values()];
  const possible = different.filter((value) => isOfType(made, value));
  if (possible.length === 0 && rules.closed) throw new CannotBeStrict(`${path || 'the root'} has no value of its type`);
  if (possible.length === 0) remove(conversion, made['enum'] === undefined ? 'const' : 'enum');
  else if (possible.length < values.length) made['enum'] = possible;
  if (rules.plainEnums && made['enum'] !== undefined) makePlainEnum(conversion, made['enum'] as readonly unknown[]);
}

function makePlainEnum(conversion: Conversion, values: readonly unknown[]): void {
  const { made } = conversion;
  const others = values.filter((value) => value !== null);
  const isPlain =
    others.length > 0 &&
    others.every((value) => typeof value === 'number' || (typeof value === 'string' && value !== ''));
  addType(made);
  if (!isPlain) {
    remove(conversion, 'enum');
    return;
  }
  if (others.length === values.length || made['anyOf'] !== undefined) return;
  const types = [made['type'] ?? []].flat().filter((name) => name !== 'null');
  made['anyOf'] = [
    { ...(types.length === 0 ? {} : { type: types.length === 1 ? types[0] : types }), enum: others },
    { type: 'null' },
  ];
  delete made['type'];
  delete made['enum'];
}

/** "Exactly one of" becomes "any of", which accepts more, so the keyword counts as removed. */
function weakenOneOf({ made, path, rules, removedKeywords }: Conversion): void {
  if (!Array.isArray(made['oneOf']) || !rules.unknown.has('oneOf') || made['anyOf'] !== undefined) return;
  made['anyOf'] = made['oneOf'];
  removedKeywords.push({ path, keyword: 'oneOf' });
  delete made['oneOf'];
}

function removeUnknown(conversion: Conversion): void {
  const { made, rules } = conversion;
  for (const keyword of Object.keys(made)) {
    if (!rules.unknown.has(keyword)) continue;
    const rest = REST_OF[keyword];
    const first = made[keyword];
    const others = rest === undefined ? undefined : made[rest];
    remove(conversion, keyword);
    if (rest === undefined || others === undefined) continue;
    remove(conversion, rest);
    if (keyword === 'prefixItems' && Array.isArray(first)) made['items'] = anyOfItems(first, others);
  }
}

/** Removes values that the provider does not know of keywords that it knows. */
function removeUnsupported(conversion: Conversion): void {
  const { made, rules } = conversion;
  if (rules.itemsRequired && isType(made, 'array') && made['items'] === undefined) made['items'] = {};
  if (rules.formats !== undefined && made['format'] !== undefined && !rules.formats.has(String(made['format'])))
    remove(conversion, 'format');
  if (Number(made['minItems'] ?? 0) > (rules.largestMinItems ?? Number.POSITIVE_INFINITY))
    remove(conversion, 'minItems');
}

/** Converts the schemas within this one. */
function convertBelow({ made, path, rules, removedKeywords }: Conversion): void {
  const below = (part: unknown, name: string) =>
    convert(part, path === '' ? name : `${path}.${name}`, rules, removedKeywords);
  for (const keyword of ['anyOf', 'oneOf', 'allOf', 'prefixItems'])
    if (Array.isArray(made[keyword]))
      made[keyword] = made[keyword].map((part, index) => below(part, `${keyword}.${index}`));
  if (typeof made['$defs'] === 'object' && made['$defs'] !== null)
    made['$defs'] = mapValues(made['$defs'], (part, name) => below(part, `$defs.${name}`));
  if (made['items'] !== undefined) made['items'] = below(made['items'], 'items');
  if (typeof made['additionalProperties'] === 'object')
    made['additionalProperties'] = below(made['additionalProperties'], 'additionalProperties');
  if (made['properties'] !== undefined || isType(made, 'object')) convertObject(made, path, rules, below);
}

/** Completes a strict schema: a type, something that it accepts, and no annotations that strict modes refuse. */
function close({ made, path, words }: Conversion): void {
  addType(made);
  requireStrictForm(made, path);
  if (made['default'] !== undefined) words.push(`Default: ${JSON.stringify(made['default'])}.`);
  delete made['default'];
  delete made['examples'];
}

/** A schema for any item of a list with fixed positions. `others` describes the items after them, if there may be any. */
function anyOfItems(first: readonly unknown[], others: unknown): unknown {
  const forms = [...first, ...(others === false ? [] : [others])];
  const different = [...new Map(forms.map((form) => [JSON.stringify(form), form])).values()];
  return different.length === 1 ? different[0] : { anyOf: different };
}

/**
 * Generators wrap a reference to add to it. Providers accept another form: `allOf` of one schema becomes `anyOf`, and nothing stands beside
 * a reference.
 */
function standingAlone(schema: Parts, rules: SubsetRules): Parts {
  const { allOf, $ref, ...beside } = schema;
  if (beside['anyOf'] !== undefined) return { ...schema };
  if (rules.unknown.has('allOf') && Array.isArray(allOf) && allOf.length === 1 && $ref === undefined) {
    const [only] = allOf as unknown[];
    const isMerged = typeof only === 'object' && Object.keys(beside).every((keyword) => ANNOTATIONS.includes(keyword));
    return isMerged ? standingAlone({ ...only, ...beside }, rules) : { ...beside, anyOf: allOf };
  }
  if ($ref === undefined || Object.keys(beside).every((keyword) => keyword.startsWith('$'))) return { ...schema };
  return { ...beside, ...(allOf === undefined ? {} : { allOf }), anyOf: [{ $ref }] };
}

function convertObject(
  made: Parts,
  path: string,
  rules: SubsetRules,
  below: (part: unknown, name: string) => Parts,
): void {
  const properties = (made['properties'] ?? {}) as Parts;
  const required = (made['required'] as readonly string[] | undefined) ?? [];
  const converted = mapValues(properties, (part, name) => {
    const inner = below(part, `properties.${name}`);
    return rules.nullForOptional && !required.includes(name) ? nullable(inner) : inner;
  });
  if (made['properties'] !== undefined || rules.closed) made['properties'] = converted;
  if (!rules.closed) return;
  if (made['additionalProperties'] !== false)
    throw new CannotBeStrict(`${path || 'the root'} takes any further properties`);
  const undeclared = required.find((name) => !Object.hasOwn(properties, name));
  if (undeclared !== undefined)
    throw new CannotBeStrict(`${path || 'the root'} requires ${undeclared}, which it does not describe`);
  if (rules.nullForOptional) made['required'] = Object.keys(properties);
}

/** OpenAI refuses values without a type beside them. */
function addType(made: Parts): void {
  const values = made['const'] !== undefined ? [made['const']] : made['enum'];
  if (made['type'] !== undefined || !Array.isArray(values)) return;
  const types = [...new Set(values.map(typeOf))];
  if (types.includes('object') || types.includes('array')) return;
  made['type'] = types.length === 1 ? types[0] : types;
}

function typeOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

function requireStrictForm(made: Parts, path: string): void {
  const place = path || 'the root';
  const says = ['type', 'anyOf', '$ref', 'enum', 'const'].some((keyword) => made[keyword] !== undefined);
  if (!says) throw new CannotBeStrict(`${place} accepts anything`);
  if (isType(made, 'array') && made['items'] === undefined)
    throw new CannotBeStrict(`the items of ${place} are not described`);
}

/** Accepts null, too. The description stays outside, where models look for it. */
function nullable(schema: Parts): Parts {
  if (isType(schema, 'null')) return schema;
  const { description, title, ...rest } = schema;
  const said = { ...(title === undefined ? {} : { title }), ...(description === undefined ? {} : { description }) };
  return { ...said, anyOf: [rest, { type: 'null' }] };
}

function isType({ type }: Parts, name: string): boolean {
  return type === name || (Array.isArray(type) && type.includes(name));
}

function mapValues(parts: object, map: (part: unknown, name: string) => unknown): Parts {
  return Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, map(part, name)]));
}

/** Describes a keyword: `minLength` 3 is "minLength: 3."; long values are truncated, because descriptions are limited. */
export function keywordText(keyword: string, value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return `${keyword}: ${text.length <= 200 ? text : `${startOf(text, 200)}…`}.`;
}
