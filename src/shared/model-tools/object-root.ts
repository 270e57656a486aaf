/**
 * Turns parameters into one object. Providers refuse a schema that is combined at its root or has no type there, and one such tool fails
 * the whole request. Alternatives become one object with the properties of all; the description lists the alternatives.
 */
import type { JsonSchema } from '../schema/json-schema.ts';
import { isTooCostly } from '../schema/schema-cost.ts';
import { resolvedParts } from '../schema/schema-references.ts';
import { isObject, listOf } from '../util/json/json-types.ts';
import { withEllipsis } from '../util/text/text-cut.ts';
import { keywordText, type RemovedKeyword } from './provider-subset.ts';

type Properties = Readonly<Record<string, unknown>>;

/** Keywords that no root may have. */
const CHOICES = ['anyOf', 'oneOf'];
const FORBIDDEN_AT_ROOT = [...CHOICES, 'allOf', 'not', 'enum', 'const'];
const MAX_ALTERNATIVE_LENGTH = 300;
const MAX_ALTERNATIVES = 20;
const MAX_DEPTH = 32;

interface FlatObject {
  readonly properties: Properties;
  readonly required: readonly string[];
  readonly isClosed: boolean;
}

/**
 * Returns the schema itself where it is one object already. The flat schema accepts at least what the original does, with one exception: a
 * property that an open alternative leaves undescribed gets the form of another alternative.
 */
export function flatRoot(schema: JsonSchema): {
  readonly schema: JsonSchema;
  readonly removedKeywords: readonly RemovedKeyword[];
} {
  // A schema that is too costly to validate is too costly to convert.
  if (isTooCostly(schema))
    return { schema: { type: 'object', properties: {} }, removedKeywords: [{ path: '', keyword: '$ref' }] };
  const root = resolvedParts(schema, schema);
  const combiners = FORBIDDEN_AT_ROOT.filter((keyword) => root[keyword] !== undefined);
  if (combiners.length === 0 && schema['$ref'] === undefined) {
    const isComplete = schema['type'] === 'object' && isObject(schema['properties']);
    return { schema: isComplete ? schema : { properties: {}, ...schema, type: 'object' }, removedKeywords: [] };
  }
  const { $defs } = root;
  const isCombined = [...CHOICES, 'allOf'].some((keyword) => combiners.includes(keyword));
  const droppedKeywords = [
    ...combiners,
    ...['unevaluatedProperties'].filter((name) => isCombined && root[name] !== undefined),
  ];
  const keptEntries = Object.entries(root).filter(
    ([keyword]) => !(droppedKeywords.includes(keyword) || ['$ref', 'required'].includes(keyword)),
  );
  const { properties, required, isClosed } = flatten(schema, schema, []);
  const notes = droppedKeywords.map((keyword) =>
    CHOICES.includes(keyword) ? describeChoice(keyword, root[keyword], schema) : keywordText(keyword, root[keyword]),
  );
  const description = [root['description'], ...notes].filter(Boolean).join(' ');
  const { additionalProperties: _, ...others } = Object.fromEntries(keptEntries);
  const rest = isCombined ? others : Object.fromEntries(keptEntries);
  return {
    schema: {
      ...rest,
      type: 'object',
      ...(description === '' ? {} : { description }),
      properties,
      ...(required.length === 0 ? {} : { required }),
      ...(isCombined && isClosed ? { additionalProperties: false } : {}),
      ...($defs === undefined ? {} : { $defs }),
    },
    removedKeywords: droppedKeywords.map((keyword) => ({ path: '', keyword })),
  };
}

/** The properties of an object and of all its alternatives. */
function flatten(schema: unknown, root: JsonSchema, ancestors: readonly unknown[]): FlatObject {
  // A recursive definition adds no further properties.
  if (ancestors.includes(schema) || ancestors.length > MAX_DEPTH)
    return { properties: {}, required: [], isClosed: false };
  const parts = resolvedParts(schema, root);
  const flattenPart = (part: unknown) => flatten(part, root, [...ancestors, schema]);
  const base: FlatObject = {
    properties: (parts['properties'] ?? {}) as Properties,
    required: (parts['required'] as readonly string[] | undefined) ?? [],
    isClosed: parts['additionalProperties'] === false && parts['patternProperties'] === undefined,
  };
  const choices = CHOICES.map((keyword) => listOf(parts[keyword]))
    .filter((branches) => branches.length > 0)
    .map((branches) => alternatives(branches.filter((branch) => acceptsObject(branch, root)).map(flattenPart)));
  const all = [base, ...listOf(parts['allOf']).map(flattenPart), ...choices];
  return {
    properties: mergeProperties(all.map(({ properties }) => properties)),
    required: [...new Set(all.flatMap(({ required }) => required))],
    isClosed: all.some(({ isClosed }) => isClosed),
  };
}

function alternatives(branches: readonly FlatObject[]): FlatObject {
  const [first, ...others] = branches;
  return {
    properties: mergeProperties(branches.map(({ properties }) => properties)),
    required: (first?.required ?? []).filter((name) => others.every(({ required }) => required.includes(name))),
    isClosed: branches.every(({ isClosed }) => isClosed),
  };
}

/** A property that differs between alternatives may have any of their forms. */
function mergeProperties(propertySets: readonly Properties[]): Properties {
  const names = [...new Set(propertySets.flatMap((properties) => Object.keys(properties)))];
  return Object.fromEntries(
    names.map((name) => {
      const matchingSets = propertySets.filter((properties) => Object.hasOwn(properties, name));
      const forms = new Map(matchingSets.map(({ [name]: form }) => [JSON.stringify(form), form]));
      return [name, anyOf([...forms.values()])];
    }),
  );
}

/** Alternatives that are lists of values become one list. */
function anyOf(forms: readonly unknown[]): unknown {
  if (forms.length === 1) return forms[0];
  const values = forms.map(valuesOf);
  if (values.some((each) => each === undefined)) {
    const flattened = forms.flatMap((form) => (isOnlyChoice(form) ? form.anyOf : [form]));
    return { anyOf: [...new Map(flattened.map((form) => [JSON.stringify(form), form])).values()] };
  }
  const types = new Set(forms.map((form) => JSON.stringify((form as JsonSchema)['type'])));
  const { type } = forms[0] as JsonSchema;
  return {
    ...(types.size === 1 && type !== undefined ? { type } : {}),
    enum: [...new Map(values.flatMap((each) => each ?? []).map((value) => [JSON.stringify(value), value])).values()],
  };
}

function isOnlyChoice(form: unknown): form is { readonly anyOf: readonly unknown[] } {
  return typeof form === 'object' && form !== null && 'anyOf' in form && Object.keys(form).length === 1;
}

function valuesOf(form: unknown): readonly unknown[] | undefined {
  if (typeof form !== 'object' || form === null) return undefined;
  const { const: constant, enum: allowed, type: _, title, description, ...rest } = form as JsonSchema;
  if (Object.keys(rest).length > 0) return undefined;
  return constant !== undefined ? [constant] : Array.isArray(allowed) ? allowed : undefined;
}

/** Describes a choice: `Exactly one of: {op: "create", title, tags?}; {op: "delete", id}.` */
function describeChoice(keyword: string, branches: unknown, root: JsonSchema): string {
  const all = listOf(branches);
  const described = all.slice(0, MAX_ALTERNATIVES).map((branch) => describeAlternative(flatten(branch, root, [])));
  const more = all.length > described.length ? [`${all.length - described.length} more`] : [];
  return `${keyword === 'oneOf' ? 'Exactly one of' : 'Any of'}: ${[...described, ...more].join('; ')}.`;
}

function describeAlternative({ properties, required }: FlatObject): string {
  const members = Object.entries(properties).map(([name, form]) => {
    const values = valuesOf(form)
      ?.map((value) => JSON.stringify(value))
      .join('|');
    return `${name}${required.includes(name) ? '' : '?'}${values === undefined ? '' : `: ${values}`}`;
  });
  // For alternatives that only require more, the root describes the properties.
  const undescribed = required.filter((name) => !Object.hasOwn(properties, name));
  const text = [...members, ...undescribed].join(', ');
  return `{${withEllipsis(text, MAX_ALTERNATIVE_LENGTH)}}`;
}

/** Parameters are never null, even if a choice allows it. */
function acceptsObject(branch: unknown, root: JsonSchema): boolean {
  const { type = 'object' } = resolvedParts(branch, root);
  return branch !== false && [type].flat().includes('object');
}
