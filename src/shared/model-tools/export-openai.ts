/** Exports a tool in OpenAI's form. */
import type { JsonSchema } from '../schema/json-schema.ts';
import type { ToolVariant } from '../tools/tool-variant.ts';
import type { ExportedTool, ExportOptions, NamedTool, ToolForm } from './export-types.ts';
import { providerRefusal } from './provider-refusals.ts';
import { OPENAI, OPENAI_LIMITS, PLAIN } from './provider-rules.ts';
import { CannotBeStrict, toSubset } from './provider-subset.ts';
import { measureSchema } from './schema-size.ts';

const NOT_STRICT = { strict: false, removedKeywords: [], warnings: [] } as const;

/** The provider's own tool where the options ask for it, else a strict function, else a function with the reason why it is not strict. */
export function openAiForm(tool: NamedTool, { strict = true, native }: ExportOptions): ToolForm {
  const { variant = { type: 'function' } } = tool;
  if (variant.type === 'freeform' && (native ?? variant.parameter === undefined)) return freeText(tool, variant.format);
  if (native && variant.type === 'local-shell') return { ...NOT_STRICT, exported: { type: 'local_shell' } };
  if (native && variant.type === 'web-search') {
    const access = variant.externalWebAccess;
    const exported = { type: 'web_search', ...(access !== undefined && { external_web_access: access }) };
    return { ...NOT_STRICT, warnings: ['searched by the provider, not by a worker'], exported };
  }
  if (!strict) return plainFunction(tool);
  try {
    return strictFunction(tool);
  } catch (error) {
    if (!(error instanceof CannotBeStrict)) throw error;
    return { ...plainFunction(tool), reason: error.message };
  }
}

function freeText(
  { exportedName: name, description }: NamedTool,
  format: Extract<ToolVariant, { type: 'freeform' }>['format'],
): ToolForm {
  const grammar = {
    type: 'grammar',
    syntax: 'syntax' in format ? format.syntax : '',
    definition: 'definition' in format ? format.definition : '',
  };
  const exported = {
    type: 'custom',
    name,
    description: format.type === 'diff' ? `${description}\n${format.definition}` : description,
    format: format.type === 'grammar' ? grammar : { type: 'text' },
  };
  return { ...NOT_STRICT, exported };
}

function plainFunction(tool: NamedTool): ToolForm {
  const { schema, removedKeywords } = toSubset(tool.inputSchema, PLAIN);
  return { ...NOT_STRICT, removedKeywords, exported: buildFunction(tool, schema, false) };
}

/** Throws `CannotBeStrict` for parameters without a strict form, and for those that are larger than OpenAI allows. */
function strictFunction(tool: NamedTool): ToolForm {
  const { schema, removedKeywords } = toSubset(tool.inputSchema, OPENAI);
  const size = measureSchema(schema);
  for (const [measure, limit] of Object.entries(OPENAI_LIMITS)) {
    const value = size[measure as keyof typeof OPENAI_LIMITS];
    if (value > limit) throw new CannotBeStrict(`it has ${value} ${measure}; at most ${limit} are allowed`);
  }
  const refusal = providerRefusal('openai-strict', schema);
  if (refusal !== undefined) throw new CannotBeStrict(refusal);
  return { exported: buildFunction(tool, schema, true), strict: true, removedKeywords, warnings: [] };
}

function buildFunction(
  { exportedName: name, description }: NamedTool,
  parameters: JsonSchema,
  strict: boolean,
): ExportedTool {
  return { type: 'function', name, description, parameters, strict };
}
