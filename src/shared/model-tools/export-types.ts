/** The types of an export: what goes in, and what comes out. */
import type { JsonSchema } from '../schema/json-schema.ts';
import type { Tool, ToolReference } from '../tools/tool.ts';
import type { ToolExample, ToolIcon, ToolVariant } from '../tools/tool-variant.ts';
import type { RemovedKeyword } from './provider-subset.ts';

/** The providers, each with the number of tools that one request may have. */
export const TOOL_LIMITS = {
  openai: 128,
  anthropic: Number.POSITIVE_INFINITY,
  gemini: 512,
  mcp: Number.POSITIVE_INFINITY,
} as const;

export type Provider = keyof typeof TOOL_LIMITS;
export const PROVIDERS = Object.keys(TOOL_LIMITS) as readonly Provider[];

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

export const EXPORT_OPTION_NAMES = Object.keys({
  strict: true,
  priority: true,
  native: true,
} satisfies Record<keyof ExportOptions, true>);

export interface ToolReport extends Omit<ToolForm, 'exported'> {
  readonly name: string;
  /** `namespace.name`. */
  readonly tool: string;
  readonly outcome: 'lossless' | 'lossy' | 'refused-strict';
}

export type ExportedTool = Readonly<Record<string, unknown>>;

export interface ToolExport {
  readonly provider: Provider;
  /** The tools as the API accepts them, ordered by name. */
  readonly tools: readonly ExportedTool[];
  readonly reports: readonly ToolReport[];
  readonly names: Readonly<Record<string, ToolReference>>;
  /** The setting of the whole request that makes its tools strict. */
  readonly request?: string;
}

/** A tool under the name that it is exported with. */
export interface NamedTool extends ExportableTool {
  readonly exportedName: string;
}

export interface ToolForm {
  readonly exported: ExportedTool;
  readonly strict: boolean;
  /** The keywords that the export leaves out; the description of each place names them, too. */
  readonly removedKeywords: readonly RemovedKeyword[];
  readonly warnings: readonly string[];
  /** Maps shown names of parameters to the tool's own, where the provider refuses those. */
  readonly renamed?: Readonly<Record<string, string>>;
  /** The reason why there is no strict form. */
  readonly reason?: string;
}
