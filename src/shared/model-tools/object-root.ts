/**
 * Turns parameters into one object. Providers refuse a schema that is combined at its root or has no type there, and one such tool fails
 * the whole request. Alternatives become one object with the properties of all; the description says what tells them apart.
 */
import type { JsonSchema } from '../schema/json-schema.ts';
import { isTooCostly } from '../schema/schema-cost.ts';
import { withoutReference } from '../schema/schema-references.ts';
import { startOf } from '../util/text/text-cut.ts';
import { keywordText, type RemovedKeyword } from './provider-subset.ts';

type Parts = Readonly<Record<string, unknown>>;
type Named = Readonly<Record<string, unknown>>;

/** Keywords that no root may have. `unevaluated…` keywords become the properties that are left out. */
const CHOICES = ['anyOf', 'oneOf'];
const FORBIDDEN_AT_ROOT = [...CHOICES, 'allOf', 'not', 'enum', 'const'];
const MAX_ALTERNATIVE_LENGTH = 300;
const MAX_ALTERNATIVES = 20;
const MAX_DEPTH = 32;

interface Flat {
  readonly properties: Named;
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
  const root = resolved(schema, schema);
  const left = FORBIDDEN_AT_ROOT.filter((keyword) => root[keyword] !== undefined);
  if (left.length === 0 && schema['$ref'] === undefined)
    return { schema: schema['type'] === 'object' ? schema : { ...schema, type: 'object' }, removedKeywords: [] };
  const { $defs } = root;
  const isCombined = [...CHOICES, 'allOf'].some((keyword) => left.includes(keyword));
  const unsaid = [...left, ...['unevaluatedProperties'].filter((name) => isCombined && root[name] !== undefined)];
  const kept = Object.entries(root).filter(
    ([keyword]) => !(unsaid.includes(keyword) || ['$ref', 'required'].includes(keyword)),
  );
  const { properties, required, isClosed } = flat(schema, schema, []);
  const words = unsaid.map((keyword) =>
    CHOICES.includes(keyword) ? describeChoice(keyword, root[keyword], schema) : keywordText(keyword, root[keyword]),
  );
  const description = [root['description'], ...words].filter(Boolean).join(' ');
  const { additionalProperties: _, ...others } = Object.fromEntries(kept);
  const rest = isCombined ? others : Object.fromEntries(kept);
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
    removedKeywords: unsaid.map((keyword) => ({ path: '', keyword })),
  };
}

/** The properties of an object and of all its alternatives. */
function flat(schema: unknown, root: Parts, within: readonly unknown[]): Flat {
  // A definition that consists of itself describes nothing more.
  if (within.includes(schema) || within.length > MAX_DEPTH) return { properties: {}, required: [], isClosed: false };
  const parts = resolved(schema, root);
  const below = (part: unknown) => flat(part, root, [...within, schema]);
  const own: Flat = {
    properties: (parts['properties'] ?? {}) as Named,
    required: (parts['required'] as readonly string[] | undefined) ?? [],
    isClosed: parts['additionalProperties'] === false && parts['patternProperties'] === undefined,
  };
  const choices = CHOICES.map((keyword) => listOf(parts[keyword]))
    .filter((branches) => branches.length > 0)
    .map((branches) => alternatives(branches.filter((branch) => isObjects(branch, root)).map(below)));
  const all = [own, ...listOf(parts['allOf']).map(below), ...choices];
  return {
    properties: merged(all.map(({ properties }) => properties)),
    required: [...new Set(all.flatMap(({ required }) => required))],
    isClosed: all.some(({ isClosed }) => isClosed),
  };
}

function alternatives(branches: readonly Flat[]): Flat {
  const [first, ...others] = branches;
  return {
    properties: merged(branches.map(({ properties }) => properties)),
    required: (first?.required ?? []).filter((name) => others.every(({ required }) => required.includes(name))),
    isClosed: branches.every(({ isClosed }) => isClosed),
  };
}

/** A property that differs between alternatives may have any of their forms. */
function merged(described: readonly Named[]): Named {
  const names = [...new Set(described.flatMap((properties) => Object.keys(properties)))];
  return Object.fromEntries(
    names.map((name) => {
      const having = described.filter((properties) => Object.hasOwn(properties, name));
      const forms = new Map(having.map(({ [name]: form }) => [JSON.stringify(form), form]));
      return [name, anyOf([...forms.values()])];
    }),
  );
}

/** Forms that are lists of values become one list, which tells the alternatives apart. */
function anyOf(forms: readonly unknown[]): unknown {
  if (forms.length === 1) return forms[0];
  const values = forms.map(valuesOf);
  if (values.some((each) => each === undefined)) {
    const flattened = forms.flatMap((form) => (isOnlyChoice(form) ? form.anyOf : [form]));
    return { anyOf: [...new Map(flattened.map((form) => [JSON.stringify(form), form])).values()] };
  }
  const types = new Set(forms.map((form) => JSON.stringify((form as Parts)['type'])));
  const { type } = forms[0] as Parts;
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
  const { const: only, enum: several, type: _, title, description, ...more } = form as Parts;
  if (Object.keys(more).length > 0) return undefined;
  return only !== undefined ? [only] : Array.isArray(several) ? several : undefined;
}

/** Describes a choice: `Exactly one of: {op: "create", title, tags?}; {op: "delete", id}.` */
function describeChoice(keyword: string, branches: unknown, root: Parts): string {
  const all = listOf(branches);
  const described = all.slice(0, MAX_ALTERNATIVES).map((branch) => describeAlternative(flat(branch, root, [])));
  const more = all.length > described.length ? [`${all.length - described.length} more`] : [];
  return `${keyword === 'oneOf' ? 'Exactly one of' : 'Any of'}: ${[...described, ...more].join('; ')}.`;
}

function describeAlternative({ properties, required }: Flat): string {
  const members = Object.entries(properties).map(([name, form]) => {
    const values = valuesOf(form)
      ?.map((value) => JSON.stringify(value))
      .join('|');
    return `${name}${required.includes(name) ? '' : '?'}${values === undefined ? '' : `: ${values}`}`;
  });
  // For alternatives that only require more, the root describes the properties.
  const asked = required.filter((name) => !Object.hasOwn(properties, name));
  const text = [...members, ...asked].join(', ');
  return `{${text.length <= MAX_ALTERNATIVE_LENGTH ? text : `${startOf(text, MAX_ALTERNATIVE_LENGTH)}…`}}`;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Parameters are never null, even if a choice allows it. */
function isObjects(branch: unknown, root: Parts): boolean {
  const { type = 'object' } = resolved(branch, root);
  return branch !== false && [type].flat().includes('object');
}

/** The schema with its own reference replaced by the target. */
function resolved(schema: unknown, root: Parts): Parts {
  return typeof schema === 'object' && schema !== null ? withoutReference(schema as Parts, root) : {};
}
