/**
 * The schemas that providers refuse in a tool's parameters. One refused tool fails the whole request, so every export is checked against
 * this table before it is returned.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import { decodeStep } from '../schema/json-pointer.ts';

type SchemaObject = Readonly<Record<string, unknown>>;

/** A provider's API in one of its modes. */
export type ProviderForm = 'openai-strict' | 'openai' | 'anthropic-strict' | 'anthropic' | 'gemini' | 'mcp';

interface Refusal {
  readonly forms: readonly ProviderForm[];
  readonly what: string;
  /** Whether a schema within the parameters, or their root (`isRoot`), is refused. */
  readonly holds: (schema: SchemaObject, isRoot: boolean) => boolean;
}

const STRICT: readonly ProviderForm[] = ['openai-strict', 'anthropic-strict'];
const READ_BY_PROVIDERS: readonly ProviderForm[] = [...STRICT, 'openai', 'gemini'];
const ALL: readonly ProviderForm[] = [...READ_BY_PROVIDERS, 'anthropic', 'mcp'];

const has = (schema: SchemaObject, keyword: string) => schema[keyword] !== undefined;
const hasType = ({ type }: SchemaObject, name: string) => [type].flat().includes(name);

const REFUSALS: readonly Refusal[] = [
  { forms: ALL, what: 'is no object', holds: (schema, isRoot) => isRoot && schema['type'] !== 'object' },
  {
    forms: ALL.filter((form) => form !== 'mcp'),
    what: 'is combined at its root',
    holds: (schema, isRoot) =>
      isRoot && ['anyOf', 'oneOf', 'allOf', 'not', 'enum', '$ref'].some((each) => has(schema, each)),
  },
  {
    forms: READ_BY_PROVIDERS,
    what: 'has an enum without values',
    holds: ({ enum: values }) => Array.isArray(values) && values.length === 0,
  },
  {
    forms: READ_BY_PROVIDERS,
    what: 'has values that are not of its type',
    holds: (schema) => (valuesOf(schema) ?? []).some((value) => !isOfType(schema, value)),
  },
  {
    forms: ['openai-strict'],
    what: 'has values without a type',
    holds: (schema) => valuesOf(schema) !== undefined && !has(schema, 'type'),
  },
  {
    forms: READ_BY_PROVIDERS,
    what: 'has a value twice',
    holds: ({ enum: values }) =>
      Array.isArray(values) && new Set(values.map((value) => canonicalJson(value))).size < values.length,
  },
  {
    forms: ['anthropic-strict'],
    what: 'has values that are objects or lists',
    holds: (schema) => (valuesOf(schema) ?? []).some((value) => typeof value === 'object' && value !== null),
  },
  {
    forms: ['gemini'],
    what: 'has values that are neither texts nor numbers',
    holds: (schema) =>
      (valuesOf(schema) ?? []).some(
        (value) => typeof value !== 'number' && (typeof value !== 'string' || value === ''),
      ),
  },
  {
    forms: ['openai-strict', 'openai'],
    what: 'has a list that says nothing of its items',
    holds: (schema) => hasType(schema, 'array') && !has(schema, 'items'),
  },
  {
    forms: STRICT,
    what: 'has an open object',
    holds: (schema) => hasType(schema, 'object') && schema['additionalProperties'] !== false,
  },
  {
    forms: ['openai-strict'],
    what: 'has an optional property',
    holds: ({ properties = {}, required = [] }) =>
      Object.keys(properties as object).some((name) => !(required as readonly string[]).includes(name)),
  },
  {
    forms: STRICT,
    what: 'accepts anything',
    holds: (schema) => !['type', 'anyOf', '$ref', 'enum', 'const'].some((keyword) => has(schema, keyword)),
  },
  {
    forms: STRICT,
    what: 'has something beside a reference',
    holds: (schema) => has(schema, '$ref') && Object.keys(schema).some((keyword) => !keyword.startsWith('$')),
  },
  {
    forms: STRICT,
    what: 'has a keyword that is not understood',
    holds: (schema) =>
      ['oneOf', 'allOf', 'not', 'if', 'patternProperties', 'prefixItems'].some((each) => has(schema, each)),
  },
];

/** The names under which the forms of exported tools have their parameters. */
const PARAMETERS = ['parameters', 'input_schema', 'parametersJsonSchema', 'inputSchema'] as const;

/** Parameters that every provider accepts. The worker validates with the tool's own schema all the same. */
const ANY_OBJECT = { type: 'object', properties: {} } as const;

/**
 * Replaces parameters that the provider refuses by those of any object, because one refused tool fails the whole request. `refusal` is the
 * reason; without one, the tool is unchanged.
 */
export function withoutRefusal(
  form: ProviderForm,
  exported: SchemaObject,
): { readonly exported: SchemaObject; readonly refusal?: string } {
  const name = PARAMETERS.find((each) => exported[each] !== undefined);
  if (name === undefined) return { exported };
  const refusal = providerRefusal(form, exported[name] as SchemaObject);
  return refusal === undefined ? { exported } : { exported: { ...exported, [name]: ANY_OBJECT }, refusal };
}

/** The reason why a provider refuses the parameters, with its path; undefined where it accepts them. */
export function providerRefusal(form: ProviderForm, parameters: SchemaObject): string | undefined {
  const table = REFUSALS.filter(({ forms }) => forms.includes(form));
  const visit = (schema: unknown, path: string): string | undefined => {
    if (typeof schema !== 'object' || schema === null) return undefined;
    const parts = schema as SchemaObject;
    const refused = table.find(({ holds: applies }) => applies(parts, path === ''));
    if (refused !== undefined) return `${path === '' ? 'the root' : path.slice(1)} ${refused.what}`;
    for (const [name, child] of schemasBelow(parts)) {
      const found = visit(child, `${path}.${name}`);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const cycleScope = form === 'anthropic-strict' ? 'always' : form === 'gemini' ? 'required' : undefined;
  const recursive = cycleScope !== undefined && isRecursive(parameters, cycleScope);
  return (
    visit(parameters, '') ??
    (recursive ? `the root refers to itself${cycleScope === 'required' ? ' in required properties' : ''}` : undefined)
  );
}

/** Whether a schema is recursive, through any property or through required ones alone. */
function isRecursive(root: SchemaObject, scope: 'always' | 'required'): boolean {
  const definitions = (root['$defs'] ?? {}) as SchemaObject;
  const done = new Set<unknown>();
  const isCyclic = (schema: unknown, ancestors: readonly unknown[]): boolean => {
    if (typeof schema !== 'object' || schema === null || done.has(schema)) return false;
    if (ancestors.includes(schema)) return true;
    const parts = schema as SchemaObject;
    const path = [...ancestors, schema];
    const reference = parts['$ref'];
    const target = reference === '#' ? root : definitions[decodeStep(String(reference ?? '').slice('#/$defs/'.length))];
    if (reference !== undefined && isCyclic(target, path)) return true;
    const required = (parts['required'] ?? []) as readonly string[];
    const isFollowed = (name: string) =>
      !name.startsWith('$defs.') &&
      (scope === 'always' || !name.startsWith('properties.') || required.includes(name.slice('properties.'.length)));
    if (schemasBelow(parts).some(([name, child]) => isFollowed(name) && isCyclic(child, path))) return true;
    done.add(schema);
    return false;
  };
  return [root, ...Object.values(definitions)].some((schema) => isCyclic(schema, []));
}

function schemasBelow(parts: SchemaObject): (readonly [name: string, schema: unknown])[] {
  const named = (keyword: string) =>
    Object.entries((parts[keyword] ?? {}) as object).map(([name, part]) => [`${keyword}.${name}`, part] as const);
  const single = ['items', 'additionalProperties'].map((keyword) => [keyword, parts[keyword]] as const);
  return [...['properties', '$defs', 'anyOf', 'oneOf', 'allOf'].flatMap(named), ...single];
}

function valuesOf({ const: constant, enum: allowed }: SchemaObject): readonly unknown[] | undefined {
  if (constant !== undefined) return [constant];
  return Array.isArray(allowed) ? allowed : undefined;
}

/** Whether a value is of a type that the schema names. */
export function isOfType({ type }: SchemaObject, value: unknown): boolean {
  if (type === undefined) return true;
  return [type].flat().some((name) => {
    if (name === 'null') return value === null;
    if (name === 'array') return Array.isArray(value);
    if (name === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value);
    return name === 'integer' ? Number.isInteger(value) : typeof value === name;
  });
}
