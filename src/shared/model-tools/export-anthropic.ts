/** Exports tools in Anthropic's form, and chooses the strict ones within the limits of a request. */
import { qualifiedName } from '../tools/tool.ts';
import type { ExportableTool, ExportOptions, NamedTool, ToolForm } from './export-types.ts';
import { renamedParameters, toPlainNames, withPlainNames } from './parameter-names.ts';
import { providerRefusal } from './provider-refusals.ts';
import { ANTHROPIC, ANTHROPIC_LIMITS } from './provider-rules.ts';
import { CannotBeStrict, toSubset } from './provider-subset.ts';
import { measureSchema } from './schema-size.ts';

/** A tool in Anthropic's form. A tool that is not strict keeps its own schema. */
export function anthropicForm(tool: NamedTool, { strict }: ExportOptions, isStrict: boolean): ToolForm {
  const { schema, removedKeywords } = isStrict
    ? toSubset(tool.inputSchema, ANTHROPIC)
    : { schema: tool.inputSchema, removedKeywords: [] };
  const examples = (tool.examples ?? []).map(({ params }) => toPlainNames(tool.inputSchema, params));
  const renamed = [...renamedParameters(tool.inputSchema)].map(([ownParameter, exportedParameter]) => [
    exportedParameter,
    ownParameter,
  ]);
  return {
    exported: {
      name: tool.exportedName,
      description: tool.description,
      input_schema: withPlainNames(schema),
      ...(isStrict ? { strict: true } : {}),
      ...(examples.length === 0 ? {} : { input_examples: examples }),
    },
    strict: isStrict,
    removedKeywords,
    warnings: [],
    ...(strict === true && !isStrict ? { reason: notStrictReason(tool) } : {}),
    ...(renamed.length === 0 ? {} : { renamed: Object.fromEntries(renamed) as Record<string, string> }),
  };
}

/** The strict tools: as many as the request's limits of tools, optional parameters and unions allow. */
export function chooseStrictTools(
  tools: readonly ExportableTool[],
  options: ExportOptions,
): ReadonlySet<ExportableTool> {
  if (options.strict !== true) return new Set();
  const rank = (tool: ExportableTool) => {
    const index = (options.priority ?? []).findIndex((name) => name === tool.name || name === qualifiedName(tool));
    return index === -1 ? Number.POSITIVE_INFINITY : index;
  };
  const chosen = new Set<ExportableTool>();
  let remaining = {
    tools: ANTHROPIC_LIMITS.tools,
    optional: ANTHROPIC_LIMITS.optional,
    unions: ANTHROPIC_LIMITS.unions,
  } as Record<keyof typeof ANTHROPIC_LIMITS, number>;
  for (const tool of tools.toSorted((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)))) {
    const size = anthropicSize(tool);
    if (typeof size === 'string') continue;
    const next = {
      tools: remaining.tools - 1,
      optional: remaining.optional - size.optional,
      unions: remaining.unions - size.unions,
    };
    if (Object.values(next).some((rest) => rest < 0)) continue;
    remaining = next;
    chosen.add(tool);
  }
  return chosen;
}

function anthropicSize(tool: ExportableTool): { readonly optional: number; readonly unions: number } | string {
  try {
    const { schema } = toSubset(tool.inputSchema, ANTHROPIC);
    return providerRefusal('anthropic-strict', schema) ?? measureSchema(schema);
  } catch (error) {
    if (!(error instanceof CannotBeStrict)) throw error;
    return error.message;
  }
}

function notStrictReason(tool: ExportableTool): string {
  const size = anthropicSize(tool);
  if (typeof size === 'string') return size;
  const { tools, optional, unions } = ANTHROPIC_LIMITS;
  return `the request’s strict budget (${tools} tools, ${optional} optional parameters, ${unions} unions) is used up`;
}
