/**
 * The schemas that providers refuse in a tool's parameters. One refused tool fails the whole request, so every export is checked against
 * this table before it is returned.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import { hasPortablePatterns } from '../schema/ecma-pattern.ts';
import { decodeStep } from '../schema/json-pointer.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { isObject, isOfType } from '../util/json/json-types.ts';
import { type ExportedTool, PROVIDERS, type Provider } from './export-types.ts';

/** A provider's API in one of its modes. */
export type ProviderForm = Provider | `${'openai' | 'anthropic'}-strict`;

interface Refusal {
  readonly forms: readonly ProviderForm[];
  readonly fault: string;
  /** Whether a schema within the parameters, or their root (`isRoot`), is refused. */
  readonly applies: (schema: JsonSchema, isRoot: boolean) => boolean;
}

const STRICT: readonly ProviderForm[] = ['openai-strict', 'anthropic-strict'];
const READ_BY_PROVIDERS: readonly ProviderForm[] = [...STRICT, 'openai', 'gemini'];
const ALL: readonly ProviderForm[] = [...STRICT, ...PROVIDERS];

const has = (schema: JsonSchema, keyword: string) => schema[keyword] !== undefined;
const isEmptyList = (value: unknown) => Array.isArray(value) && value.length === 0;
const hasType = ({ type }: JsonSchema, name: string) => [type].flat().includes(name);

const REFUSALS: readonly Refusal[] = [
  { forms: ALL, fault: 'is no object', applies: (schema, isRoot) => isRoot && schema['type'] !== 'object' },
  {
    forms: ALL.filter((form) => form !== 'mcp'),
    fault: 'is combined at its root',
    applies: (schema, isRoot) =>
      isRoot && ['anyOf', 'oneOf', 'allOf', 'not', 'enum', '$ref'].some((each) => has(schema, each)),
  },
  {
    forms: ALL,
    fault: 'has no properties',
    applies: (schema, isRoot) => isRoot && !isObject(schema['properties']),
  },
  {
    forms: ALL,
    fault: 'has a choice without alternatives',
    applies: (schema) => ['anyOf', 'oneOf', 'allOf', 'prefixItems'].some((each) => isEmptyList(schema[each])),
  },
  {
    forms: READ_BY_PROVIDERS,
    fault: 'has a pattern that Python or Rust does not know',
    applies: (schema, isRoot) => isRoot && !hasPortablePatterns(schema),
  },
  {
    forms: ['gemini'],
    fault: 'requires a property that it does not describe',
    applies: ({ properties = {}, required = [] }) =>
      (required as readonly string[]).some((name) => !Object.hasOwn(properties as object, name)),
  },
  {
    forms: READ_BY_PROVIDERS,
    fault: 'has an enum without values',
    applies: ({ enum: values }) => Array.isArray(values) && values.length === 0,
  },
  {
    forms: READ_BY_PROVIDERS,
    fault: 'has values that are not of its type',
    applies: (schema) => (valuesOf(schema) ?? []).some((value) => !isOfType(schema['type'], value)),
  },
  {
    forms: ['openai-strict'],
    fault: 'has values without a type',
    applies: (schema) => valuesOf(schema) !== undefined && !has(schema, 'type'),
  },
  {
    forms: READ_BY_PROVIDERS,
    fault: 'has a value twice',
    applies: ({ enum: values }) =>
      Array.isArray(values) && new Set(values.map((value) => canonicalJson(value))).size < values.length,
  },
  {
    forms: ['anthropic-strict'],
    fault: 'has values that are objects or lists',
    applies: (schema) => (valuesOf(schema) ?? []).some((value) => typeof value === 'object' && value !== null),
  },
  {
    forms: ['gemini'],
    fault: 'has values that are neither texts nor numbers',
    applies: (schema) =>
      (valuesOf(schema) ?? []).some(
        (value) => typeof value !== 'number' && (typeof value !== 'string' || value === ''),
      ),
  },
  {
    forms: ['openai-strict', 'openai', 'gemini'],
    fault: 'has a list that says nothing of its items',
    applies: (schema) => hasType(schema, 'array') && !has(schema, 'items'),
  },
  {
    forms: STRICT,
    fault: 'has an open object',
    applies: (schema) => hasType(schema, 'object') && schema['additionalProperties'] !== false,
  },
  {
    forms: ['openai-strict'],
    fault: 'has an optional property',
    applies: ({ properties = {}, required = [] }) =>
      Object.keys(properties as object).some((name) => !(required as readonly string[]).includes(name)),
  },
  {
    forms: STRICT,
    fault: 'accepts anything',
    applies: (schema) => !['type', 'anyOf', '$ref', 'enum', 'const'].some((keyword) => has(schema, keyword)),
  },
  {
    forms: STRICT,
    fault: 'has something beside a reference',
    applies: (schema) => has(schema, '$ref') && Object.keys(schema).some((keyword) => !keyword.startsWith('$')),
  },
  {
    forms: STRICT,
    fault: 'has a keyword that is not understood',
    applies: (schema) =>
      ['oneOf', 'allOf', 'not', 'if', 'patternProperties', 'prefixItems'].some((each) => has(schema, each)),
  },
];

/** The names under which the forms of exported tools have their parameters. */
const PARAMETERS = ['parameters', 'input_schema', 'parametersJsonSchema', 'inputSchema'] as const;

function parametersName(exported: JsonSchema): (typeof PARAMETERS)[number] | undefined {
  return PARAMETERS.find((name) => exported[name] !== undefined);
}

/** The parameters of an exported tool; undefined for a tool of the provider's own. */
export function parametersOf(exported: ExportedTool): JsonSchema | undefined {
  const name = parametersName(exported);
  return name && (exported[name] as JsonSchema);
}

/** Parameters that every provider accepts. The worker validates with the tool's own schema all the same. */
const ANY_OBJECT = { type: 'object', properties: {} } as const;

/**
 * Replaces parameters that the provider refuses by those of any object, because one refused tool fails the whole request. `refusal` is the
 * reason; without one, the tool is unchanged.
 */
export function withoutRefusal(
  form: ProviderForm,
  exported: JsonSchema,
): { readonly exported: JsonSchema; readonly refusal?: string } {
  const name = parametersName(exported);
  if (name === undefined) return { exported };
  const refusal = providerRefusal(form, exported[name] as JsonSchema);
  return refusal === undefined ? { exported } : { exported: { ...exported, [name]: ANY_OBJECT }, refusal };
}

/** The reason why a provider refuses the parameters, with its path; undefined where it accepts them. */
export function providerRefusal(form: ProviderForm, parameters: JsonSchema): string | undefined {
  const table = REFUSALS.filter(({ forms }) => forms.includes(form));
  const visit = (schema: unknown, path: string): string | undefined => {
    if (typeof schema !== 'object' || schema === null) return undefined;
    const parts = schema as JsonSchema;
    const refused = table.find(({ applies }) => applies(parts, path === ''));
    if (refused !== undefined) return `${path === '' ? 'the root' : path.slice(1)} ${refused.fault}`;
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
function isRecursive(root: JsonSchema, scope: 'always' | 'required'): boolean {
  const definitions = (root['$defs'] ?? {}) as JsonSchema;
  const done = new Set<unknown>();
  const isCyclic = (schema: unknown, ancestors: readonly unknown[]): boolean => {
    if (typeof schema !== 'object' || schema === null || done.has(schema)) return false;
    if (ancestors.includes(schema)) return true;
    const parts = schema as JsonSchema;
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

function schemasBelow(parts: JsonSchema): (readonly [name: string, schema: unknown])[] {
  const named = (keyword: string) =>
    Object.entries(parts[keyword] ?? {}).map(([name, part]) => [`${keyword}.${name}`, part] as const);
  const single = ['items', 'additionalProperties'].map((keyword) => [keyword, parts[keyword]] as const);
  return [...['properties', '$defs', 'anyOf', 'oneOf', 'allOf'].flatMap(named), ...single];
}

function valuesOf({ const: constant, enum: allowed }: JsonSchema): readonly unknown[] | undefined {
  if (constant !== undefined) return [constant];
  return Array.isArray(allowed) ? allowed : undefined;
}
