/**
 * Exports tools in the form that a provider's API accepts, each from its one canonical schema, with a report of the losses and a map
 * back from the exported names. The same tools give the same bytes, so that prompt caches hit. The worker always validates with the canonical
 * schema.
 */
import { PawlError } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { checkMembers } from '../schema/known-members.ts';
import { withoutReference } from '../schema/schema-references.ts';
import { qualifiedName } from '../tools/tool.ts';
import { isObject } from '../util/json/json-types.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { wellFormed } from '../util/text/text-cut.ts';
import { anthropicForm, chooseStrictTools } from './export-anthropic.ts';
import { openAiForm } from './export-openai.ts';
import {
  EXPORT_OPTION_NAMES,
  type ExportableTool,
  type ExportOptions,
  type NamedTool,
  PROVIDERS,
  type Provider,
  TOOL_LIMITS,
  type ToolExport,
  type ToolForm,
  type ToolReport,
} from './export-types.ts';
import { exportedNames } from './names.ts';
import { flatRoot } from './object-root.ts';
import { withPlainNames } from './parameter-names.ts';
import { providerRefusal, withoutRefusal } from './provider-refusals.ts';
import { GEMINI, PLAIN } from './provider-rules.ts';
import { keywordText, type RemovedKeyword, toSubset } from './provider-subset.ts';

const MAX_DESCRIPTION_LENGTH = 2_048;

/** Parameters in a form that every provider accepts, for libraries that talk to all of them. */
export function plainParameters(schema: JsonSchema): JsonSchema {
  const plain = withPlainNames(toSubset(schema, PLAIN).schema);
  return providerRefusal('openai', plain) === undefined ? plain : { type: 'object', properties: {} };
}

/** Throws `CONFIGURATION` for two tools of one qualified name and for an unknown provider, `CONTRACT_INVALID` for an unknown option. */
export function toolsFor(
  provider: Provider,
  tools: readonly ExportableTool[],
  options: ExportOptions = {},
): ToolExport {
  if (!PROVIDERS.includes(provider))
    throw new PawlError(
      'CONFIGURATION',
      `Tools are exported for ${PROVIDERS.join(', ')}; there is no form for ${quoteValue(provider)}.`,
    );
  checkMembers('options', options, EXPORT_OPTION_NAMES);
  if (!Array.isArray(tools) || !tools.every((tool) => isObject(tool?.inputSchema)))
    throw new PawlError('CONFIGURATION', `Only a list of tools is exported; got ${quoteValue(tools)}.`);
  const sorted = wellFormed(tools).toSorted((a, b) => compare(qualifiedName(a), qualifiedName(b)));
  const roots = sorted.map(({ inputSchema }) => flatRoot(inputSchema));
  const flatTools = sorted.map((tool, index) => ({ ...tool, inputSchema: roots[index]?.schema ?? tool.inputSchema }));
  const duplicate = flatTools.find(
    (tool, index) => index > 0 && qualifiedName(tool) === qualifiedName(flatTools[index - 1] ?? tool),
  );
  if (duplicate !== undefined) throw new PawlError('CONFIGURATION', `Two tools are named ${qualifiedName(duplicate)}.`);
  const names = exportedNames(flatTools);
  const strictTools = provider === 'anthropic' ? chooseStrictTools(flatTools, options) : new Set<ExportableTool>();
  const forms = flatTools.map((tool, index) => {
    const exportedName = names[index] ?? '';
    const form = withAcceptedParameters(
      provider,
      toolForm(provider, { ...tool, exportedName }, options, strictTools.has(tool)),
      tool,
    );
    const report = reportOf(tool, exportedName, form, roots[index]?.removedKeywords ?? []);
    return { exported: form.exported, report, name: exportedName, tool };
  });
  const ordered = forms.toSorted((a, b) => compare(a.name, b.name));
  return {
    provider,
    tools: ordered.map(({ exported }) => exported),
    reports: ordered.map(({ report }, index) =>
      index < TOOL_LIMITS[provider] ? report : withoutPlace(provider, report),
    ),
    names: Object.fromEntries(ordered.map(({ name, tool }) => [name, { namespace: tool.namespace, name: tool.name }])),
    ...(provider === 'gemini' ? { request: 'toolConfig.functionCallingConfig.mode VALIDATED' } : {}),
  };
}

/** The form with parameters that its provider accepts: refused ones become those of any object, and a note in the description. */
function withAcceptedParameters(
  provider: Provider,
  form: ToolForm,
  { description, inputSchema }: ExportableTool,
): ToolForm {
  const { exported, refusal } = withoutRefusal(
    form.strict && (provider === 'openai' || provider === 'anthropic') ? `${provider}-strict` : provider,
    form.exported,
  );
  if (refusal === undefined) return form;
  return {
    ...form,
    exported: { ...exported, description: `${description} ${keywordText('Parameters', inputSchema)}` },
    removedKeywords: [...form.removedKeywords, { path: '', keyword: 'properties' }],
    warnings: [
      ...form.warnings,
      `its parameters are exported as any object, because the provider refuses them: ${refusal}`,
    ],
  };
}

/** The report of a tool that the request has no place for. A provider refuses all of such a request. */
function withoutPlace(provider: Provider, report: ToolReport): ToolReport {
  const warning = `the provider takes ${TOOL_LIMITS[provider]} tools in a request and refuses one with more`;
  return { ...report, warnings: [...report.warnings, warning] };
}

function reportOf(
  tool: ExportableTool,
  name: string,
  { exported: _, ...form }: ToolForm,
  removedAtRoot: readonly RemovedKeyword[],
): ToolReport {
  const removedKeywords = [...removedAtRoot, ...form.removedKeywords];
  const isLong = tool.description.length > MAX_DESCRIPTION_LENGTH;
  const warnings = isLong
    ? [`the description is longer than ${MAX_DESCRIPTION_LENGTH} characters; some clients cut it`]
    : [];
  return {
    name,
    tool: qualifiedName(tool),
    outcome: form.reason !== undefined ? 'refused-strict' : removedKeywords.length > 0 ? 'lossy' : 'lossless',
    ...form,
    removedKeywords,
    warnings: [...warnings, ...form.warnings],
  };
}

/** One tool in the provider's form. `isStrict` says whether it got one of Anthropic's strict places. */
function toolForm(provider: Provider, tool: NamedTool, options: ExportOptions, isStrict: boolean): ToolForm {
  switch (provider) {
    case 'openai':
      return openAiForm(tool, options);
    case 'anthropic':
      return anthropicForm(tool, options, isStrict);
    case 'gemini':
      return geminiForm(tool);
    case 'mcp':
      return mcpForm(tool);
  }
}

function geminiForm({ exportedName: name, description, inputSchema, outputSchema }: NamedTool): ToolForm {
  const { schema, removedKeywords } = toSubset(inputSchema, GEMINI);
  const exported = {
    name,
    description,
    parametersJsonSchema: schema,
    ...(outputSchema !== undefined && { responseJsonSchema: outputSchema }),
  };
  return { exported, strict: false, removedKeywords, warnings: [] };
}

function mcpForm(tool: NamedTool): ToolForm {
  const { exportedName: name, title, description, annotations, icon, tier, effects } = tool;
  const outputSchema = tool.outputSchema && withoutReference(tool.outputSchema, tool.outputSchema);
  const isObject = outputSchema?.['type'] === 'object';
  const exported = {
    name,
    ...(title !== undefined && { title }),
    description,
    inputSchema: tool.inputSchema,
    ...(isObject ? { outputSchema } : {}),
    annotations: {
      ...(title !== undefined && { title }),
      readOnlyHint: tier === 'read-only',
      destructiveHint: annotations.destructiveHint ?? tier !== 'read-only',
      idempotentHint: annotations.idempotentHint ?? (effects === 'none' || effects === 'idempotent'),
      openWorldHint: annotations.openWorldHint ?? (tier === 'system' || tier === 'elevated'),
    },
    ...(icon !== undefined && { icons: [icon] }),
  };
  const warnings =
    outputSchema === undefined || isObject ? [] : ['the output schema is not an object, which MCP requires'];
  return { exported, strict: false, removedKeywords: [], warnings };
}

/** Compares code units, so that the order is the same in every locale. */
function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
