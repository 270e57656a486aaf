/**
 * Exports tools in the form that a provider's API accepts, each from its one canonical schema, with a report of what was lost and a map
 * back from the exported names. The same tools give the same bytes, so prompt caches hold. The worker always validates with the canonical
 * schema.
 */
import { PawlError } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { withoutReference } from '../schema/schema-references.ts';
import type { Tool, ToolExample, ToolIcon, ToolVariant } from '../tools/tool.ts';
import { wellFormed } from '../util/text/text-cut.ts';
import { exportedNames, type ToolReference } from './names.ts';
import { flatRoot } from './object-root.ts';
import { renamedParameters, underPlainNames, withPlainNames } from './parameter-names.ts';
import { refusalOf } from './provider-refusals.ts';
import { CannotBeStrict, type Dropped, measure, type SubsetRules, toSubset } from './provider-subset.ts';

export const PROVIDERS = ['openai', 'anthropic', 'gemini', 'mcp'] as const;
export type Provider = (typeof PROVIDERS)[number];

/** The facts that an export needs of a tool: a `Tool`, or what workers publish of one. */
export interface ExportableTool
  extends Pick<Tool, 'name' | 'namespace' | 'description' | 'tier' | 'effects' | 'annotations' | 'inputSchema'> {
  readonly title?: string;
  readonly icon?: ToolIcon;
  readonly examples?: readonly ToolExample[];
  readonly variant?: ToolVariant;
  readonly outputSchema?: JsonSchema;
}

export interface ExportOptions {
  /** Bind models to the schema where the provider can. Default: yes for OpenAI, no for Anthropic. */
  readonly strict?: boolean;
  /** Names or qualified names: these get Anthropic's limited strict places first, in this order. */
  readonly priority?: readonly string[];
  /**
   * Use the provider's own shell, web search and free text for tools that are variants of them (OpenAI). Default: only free text, for tools
   * that take nothing else.
   */
  readonly native?: boolean;
}

export interface ToolReport {
  /** The exported name. */
  readonly name: string;
  /** `namespace.name`. */
  readonly tool: string;
  readonly outcome: 'lossless' | 'lossy' | 'refused-strict';
  readonly strict: boolean;
  /** The keywords that the export leaves out; the description of each place names them, too. */
  readonly dropped: readonly Dropped[];
  /** Maps shown names of parameters to the tool's own, where the provider refuses those. */
  readonly renamed?: Readonly<Record<string, string>>;
  /** The reason why there is no strict form. */
  readonly reason?: string;
  readonly warnings: readonly string[];
}

export type ExportedTool = Readonly<Record<string, unknown>>;

export interface ToolExport {
  readonly provider: Provider;
  /** The tools as the API accepts them, ordered by name. */
  readonly tools: readonly ExportedTool[];
  readonly reports: readonly ToolReport[];
  /** Maps exported names to tools. */
  readonly names: Readonly<Record<string, ToolReference>>;
  /** The setting of the whole request that makes its tools strict. */
  readonly request?: string;
}

const LONGEST_DESCRIPTION = 2_048;
const COMBINING = ['oneOf', 'allOf', 'not', 'if', 'then', 'else', 'dependentRequired', 'dependentSchemas'];
const COUNTING = ['patternProperties', 'propertyNames', 'contains', 'minContains', 'maxContains', 'uniqueItems'];
const REST = ['minProperties', 'maxProperties', 'unevaluatedProperties', 'unevaluatedItems'];
const CONTENT = ['contentEncoding', 'contentMediaType', 'contentSchema'];
const STRICT_FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid'];

const OPENAI: SubsetRules = {
  unknown: new Set([...COMBINING, ...COUNTING, ...REST, ...CONTENT, 'prefixItems']),
  formats: new Set(STRICT_FORMATS),
  nullForOptional: true,
  closed: true,
  constAsEnum: false,
};
const OPENAI_LIMITS = {
  properties: 5_000,
  levels: 10,
  characters: 120_000,
  enumValues: 1_000,
  enumCharacters: 15_000,
} as const;
/** Tools that are not strict are checked, too. */
const PLAIN: SubsetRules = {
  unknown: new Set(['prefixItems']),
  itemsSaid: true,
  nullForOptional: false,
  closed: false,
  constAsEnum: false,
};
const ANTHROPIC: SubsetRules = {
  unknown: new Set([
    ...[...COMBINING, ...COUNTING, ...REST, ...CONTENT, 'prefixItems', 'maxItems', 'pattern'],
    ...['minLength', 'maxLength', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ]),
  formats: new Set([...STRICT_FORMATS, 'uri']),
  largestMinItems: 1,
  nullForOptional: false,
  closed: true,
  constAsEnum: false,
};
/** The limits of one request; beyond them the API answers that the grammar is too large. */
const ANTHROPIC_LIMITS = { tools: 20, optional: 24, unions: 16 } as const;
const GEMINI: SubsetRules = {
  unknown: new Set([
    ...[...COMBINING, ...COUNTING, ...REST, ...CONTENT, 'pattern', 'minLength', 'maxLength'],
    ...['exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ]),
  nullForOptional: false,
  closed: false,
  constAsEnum: true,
};

/** Parameters in a form that every provider accepts, for libraries that talk to all of them. */
export function plainParameters(schema: JsonSchema): JsonSchema {
  return withPlainNames(toSubset(schema, PLAIN).schema);
}

/** Throws `CONFIGURATION` for two tools of one qualified name, and for an unknown provider. */
export function toolsFor(
  provider: Provider,
  tools: readonly ExportableTool[],
  options: ExportOptions = {},
): ToolExport {
  if (!PROVIDERS.includes(provider))
    throw new PawlError(
      'CONFIGURATION',
      `Tools are exported for ${PROVIDERS.join(', ')}; there is no form for ${JSON.stringify(provider) ?? 'undefined'}.`,
    );
  const sorted = wellFormed(tools).toSorted((a, b) => compare(qualified(a), qualified(b)));
  const roots = sorted.map(({ inputSchema }) => flatRoot(inputSchema));
  const named = sorted.map((tool, index) => ({ ...tool, inputSchema: roots[index]?.schema ?? tool.inputSchema }));
  const twice = named.find((tool, index) => index > 0 && qualified(tool) === qualified(named[index - 1] ?? tool));
  if (twice !== undefined) throw new PawlError('CONFIGURATION', `Two tools are named ${qualified(twice)}.`);
  const names = exportedNames(named);
  const strictOnes = provider === 'anthropic' ? anthropicStrict(named, options) : new Set<ExportableTool>();
  const made = named.map((tool, index) => {
    const name = names[index] ?? '';
    const { exported, ...found } = oneFor(provider, tool, name, options, strictOnes.has(tool));
    const dropped = [...(roots[index]?.dropped ?? []), ...found.dropped];
    const long = tool.description.length > LONGEST_DESCRIPTION;
    const warnings = long
      ? [`the description is longer than ${LONGEST_DESCRIPTION} characters; some clients cut it`]
      : [];
    const report: ToolReport = {
      name,
      tool: qualified(tool),
      outcome: found.reason !== undefined ? 'refused-strict' : dropped.length > 0 ? 'lossy' : 'lossless',
      ...found,
      dropped,
      warnings: [...warnings, ...found.warnings],
    };
    return { exported, report, name, tool };
  });
  const ordered = made.toSorted((a, b) => compare(a.name, b.name));
  return {
    provider,
    tools: ordered.map(({ exported }) => exported),
    reports: ordered.map(({ report }) => report),
    names: Object.fromEntries(ordered.map(({ name, tool }) => [name, { namespace: tool.namespace, name: tool.name }])),
    ...(provider === 'gemini' ? { request: 'toolConfig.functionCallingConfig.mode VALIDATED' } : {}),
  };
}

interface Made {
  readonly exported: ExportedTool;
  readonly strict: boolean;
  readonly dropped: readonly Dropped[];
  readonly warnings: readonly string[];
  readonly renamed?: Readonly<Record<string, string>>;
  readonly reason?: string;
}

function oneFor(
  provider: Provider,
  tool: ExportableTool,
  name: string,
  options: ExportOptions,
  anthropicPlace: boolean,
): Made {
  const plain = { strict: false, dropped: [], warnings: [] } as const;
  switch (provider) {
    case 'openai':
      return forOpenAi(tool, name, options);
    case 'anthropic': {
      const { schema, dropped } = anthropicPlace
        ? toSubset(tool.inputSchema, ANTHROPIC)
        : { schema: tool.inputSchema, dropped: [] };
      const examples = (tool.examples ?? []).map(({ params }) => underPlainNames(tool.inputSchema, params));
      const renamed = [...renamedParameters(tool.inputSchema)].map(([own, shown]) => [shown, own]);
      const exported = {
        name,
        description: tool.description,
        input_schema: withPlainNames(schema),
        ...(anthropicPlace ? { strict: true } : {}),
        ...(examples.length === 0 ? {} : { input_examples: examples }),
      };
      const wanted = options.strict === true && !anthropicPlace;
      const names = renamed.length === 0 ? {} : { renamed: Object.fromEntries(renamed) as Record<string, string> };
      const reason = wanted ? { reason: anthropicReason(tool) } : {};
      return { exported, strict: anthropicPlace, dropped, warnings: [], ...reason, ...names };
    }
    case 'gemini': {
      const { schema, dropped } = toSubset(tool.inputSchema, GEMINI);
      const { outputSchema } = tool;
      const exported = {
        name,
        description: tool.description,
        parametersJsonSchema: schema,
        ...(outputSchema === undefined ? {} : { responseJsonSchema: outputSchema }),
      };
      return { exported, strict: false, dropped, warnings: [] };
    }
    case 'mcp':
      return { ...plain, ...forMcp(tool, name) };
  }
}

function forOpenAi(tool: ExportableTool, name: string, { strict = true, native }: ExportOptions): Made {
  const { description, variant = { type: 'function' } } = tool;
  const plain = { strict: false, dropped: [], warnings: [] } as const;
  if (variant.type === 'freeform' && (native ?? variant.parameter === undefined)) {
    const { format } = variant;
    const grammar = {
      type: 'grammar',
      syntax: 'syntax' in format ? format.syntax : '',
      definition: 'definition' in format ? format.definition : '',
    };
    const said = format.type === 'diff' ? `${description}\n${format.definition}` : description;
    const made = format.type === 'grammar' ? grammar : { type: 'text' };
    return { ...plain, exported: { type: 'custom', name, description: said, format: made } };
  }
  if (native && variant.type === 'local-shell') return { ...plain, exported: { type: 'local_shell' } };
  if (native && variant.type === 'web-search') {
    const access = variant.externalWebAccess;
    const exported = { type: 'web_search', ...(access === undefined ? {} : { external_web_access: access }) };
    return { ...plain, warnings: ['searched by the provider, not by a worker'], exported };
  }
  const made = (parameters: JsonSchema, isStrict: boolean) => ({
    type: 'function',
    name,
    description,
    parameters,
    strict: isStrict,
  });
  const loose = () => {
    const { schema, dropped } = toSubset(tool.inputSchema, PLAIN);
    return { ...plain, dropped, exported: made(schema, false) };
  };
  if (!strict) return loose();
  try {
    const { schema, dropped } = toSubset(tool.inputSchema, OPENAI);
    const size = measure(schema);
    for (const [what, limit] of Object.entries(OPENAI_LIMITS))
      if (size[what as keyof typeof OPENAI_LIMITS] > limit)
        throw new CannotBeStrict(
          `it has ${size[what as keyof typeof OPENAI_LIMITS]} ${what}; at most ${limit} are allowed`,
        );
    const refusal = refusalOf('openai-strict', schema);
    if (refusal !== undefined) throw new CannotBeStrict(refusal);
    return { exported: made(schema, true), strict: true, dropped, warnings: [] };
  } catch (error) {
    if (!(error instanceof CannotBeStrict)) throw error;
    return { ...loose(), reason: error.message };
  }
}

function forMcp(tool: ExportableTool, name: string): Pick<Made, 'exported' | 'warnings'> {
  const { title, description, annotations, icon, tier, effects } = tool;
  const outputSchema = tool.outputSchema && withoutReference(tool.outputSchema, tool.outputSchema);
  const isObject = outputSchema?.['type'] === 'object';
  const exported = {
    name,
    ...(title === undefined ? {} : { title }),
    description,
    inputSchema: tool.inputSchema,
    ...(isObject ? { outputSchema } : {}),
    annotations: {
      ...(title === undefined ? {} : { title }),
      readOnlyHint: tier === 'read-only',
      destructiveHint: annotations.destructiveHint ?? tier !== 'read-only',
      idempotentHint: annotations.idempotentHint ?? (effects === 'none' || effects === 'idempotent'),
      openWorldHint: annotations.openWorldHint ?? (tier === 'system' || tier === 'elevated'),
    },
    ...(icon === undefined ? {} : { icons: [icon] }),
  };
  const warnings = outputSchema === undefined || isObject ? [] : ['the output schema is no object, which MCP asks for'];
  return { exported, warnings };
}

/** The tools that get a strict place, while the request's budget of tools, optional parameters and unions lasts. */
function anthropicStrict(tools: readonly ExportableTool[], options: ExportOptions): ReadonlySet<ExportableTool> {
  if (options.strict !== true) return new Set();
  const rank = (tool: ExportableTool) => {
    const at = (options.priority ?? []).findIndex((name) => name === tool.name || name === qualified(tool));
    return at === -1 ? Number.POSITIVE_INFINITY : at;
  };
  const chosen = new Set<ExportableTool>();
  let left = {
    tools: ANTHROPIC_LIMITS.tools,
    optional: ANTHROPIC_LIMITS.optional,
    unions: ANTHROPIC_LIMITS.unions,
  } as Record<keyof typeof ANTHROPIC_LIMITS, number>;
  for (const tool of tools.toSorted((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)))) {
    const size = anthropicSize(tool);
    if (typeof size === 'string') continue;
    const after = { tools: left.tools - 1, optional: left.optional - size.optional, unions: left.unions - size.unions };
    if (Object.values(after).some((rest) => rest < 0)) continue;
    left = after;
    chosen.add(tool);
  }
  return chosen;
}

function anthropicSize(tool: ExportableTool): { readonly optional: number; readonly unions: number } | string {
  try {
    const { schema } = toSubset(tool.inputSchema, ANTHROPIC);
    return refusalOf('anthropic-strict', schema) ?? measure(schema);
  } catch (error) {
    if (!(error instanceof CannotBeStrict)) throw error;
    return error.message;
  }
}

function anthropicReason(tool: ExportableTool): string {
  const size = anthropicSize(tool);
  if (typeof size === 'string') return size;
  const { tools, optional, unions } = ANTHROPIC_LIMITS;
  return `the request’s strict budget (${tools} tools, ${optional} optional parameters, ${unions} unions) is used up`;
}

function qualified({ namespace, name }: ToolReference): string {
  return `${namespace}.${name}`;
}

/** By code units: the same everywhere. */
function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
