/**
 * What a tool is (A1): name, semantic version, tier, effects, schemas, annotations and one function `run(params, ctx)`.
 */
import type { z } from 'zod';
import type { CircuitOverrides } from './breaker.ts';
import { CAPABILITIES, type Capability } from './capability.ts';
import { EFFECTS, type Effects } from './effects.ts';
import { PawlError } from './failure.ts';
import type { RetryOverrides } from './retry.ts';
import { inputJsonSchema, type JsonSchema, outputJsonSchema } from './schema.ts';
import type { ToolContext } from './tool-context.ts';
import type { ProbeAnswer, ToolResult } from './tool-result.ts';

export {
  type Answer,
  CAPABILITIES,
  type Capability,
  type CapabilityOwner,
  type Channel,
  type ChannelMessage,
  type Channels,
  type CommittedChange,
  type DiffTracker,
  type FileChange,
  type Memory,
  type MemoryHit,
  type MemorySearchOptions,
  type MemoryStore,
  type MemoryStoreOptions,
  type Processes,
  type ProcessRequest,
  type ProcessResult,
  type Question,
  type ToolCapabilities,
  type Workspace,
  type WorkspaceChange,
  type WorkspaceEntry,
  type WorkspaceFinding,
  type WorkspaceLine,
  type WorkspaceSearch,
} from './capability.ts';
export { EFFECTS, type Effects } from './effects.ts';
export type { Progress, ToolContext, ToolLogger } from './tool-context.ts';
export type { Artifact, ContentBlock, ProbeAnswer, ToolResult } from './tool-result.ts';

/** Permission tiers (A3). One queue each. */
export const TIERS = ['read-only', 'workspace', 'system', 'elevated'] as const;
export type Tier = (typeof TIERS)[number];

/** Hints in the sense of MCP (D3). They inform; only tier and effects decide. */
export interface ToolAnnotations {
  readonly readOnlyHint?: boolean;
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
  readonly openWorldHint?: boolean;
  readonly editHint?: boolean;
}

const toolBrand: unique symbol = Symbol.for('pawl.tool');

/** A tool as workers run it. `Input` is what callers pass, `Params` what `run` receives after defaults. */
export interface Tool<Name extends string = string, Input = unknown, Params = unknown, Output = unknown> {
  readonly [toolBrand]: true;
  /** Only for the type system: what callers pass. */
  readonly inputType?: Input;
  readonly name: Name;
  readonly namespace: string;
  readonly version: string;
  readonly description: string;
  readonly tier: Tier;
  readonly effects: Effects;
  readonly annotations: ToolAnnotations;
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  readonly needs: readonly Capability[];
  /** Time limit of one attempt. */
  readonly timeoutMs: number;
  readonly maxResultBytes: number;
  readonly retry: RetryOverrides;
  readonly circuit: CircuitOverrides;
  /** Applies defaults and transforms after the JSON Schema has accepted the parameters. */
  parse(params: unknown): Params;
  run(params: Params, ctx: ToolContext): Promise<ToolResult<Output>> | ToolResult<Output>;
  probe?(params: Params, ctx: ToolContext): Promise<ProbeAnswer<Output>> | ProbeAnswer<Output>;
  compensate?(params: Params, result: ToolResult<Output>, ctx: ToolContext): Promise<void>;
  preview?(params: Params): { readonly summary: string; readonly details?: string };
}

// biome-ignore lint/suspicious/noExplicitAny: a tool's parameters are contravariant; only `any` accepts every tool.
export type AnyTool = Tool<string, any, any, any>;

/** What callers pass to a tool, and what comes back as `output.content`. */
export type InputOf<T> = T extends Tool<string, infer Input, infer _Params, infer _Output> ? Input : never;
export type OutputOf<T> = T extends Tool<string, infer _Input, infer _Params, infer Output> ? Output : never;

export interface ToolSpec<Name extends string, Schema extends z.ZodType, Output> {
  readonly name: Name;
  readonly version: string;
  readonly description: string;
  readonly tier: Tier;
  readonly input: Schema;
  readonly namespace?: string;
  readonly effects?: Effects;
  readonly annotations?: ToolAnnotations;
  readonly output?: z.ZodType<Output>;
  readonly needs?: readonly Capability[];
  readonly timeoutMs?: number;
  readonly maxResultBytes?: number;
  readonly retry?: RetryOverrides;
  readonly circuit?: CircuitOverrides;
  run(params: z.output<Schema>, ctx: ToolContext): Promise<ToolResult<Output>> | ToolResult<Output>;
  probe?(params: z.output<Schema>, ctx: ToolContext): Promise<ProbeAnswer<Output>> | ProbeAnswer<Output>;
  compensate?(params: z.output<Schema>, result: ToolResult<Output>, ctx: ToolContext): Promise<void>;
  preview?(params: z.output<Schema>): { readonly summary: string; readonly details?: string };
}

const NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/;
const NAMESPACE = /^[a-zA-Z][a-zA-Z0-9_.-]{0,127}$/;
const SEMANTIC_VERSION = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/;

export const DEFAULT_NAMESPACE = 'tools';
export const DEFAULT_TIMEOUT_MS = 30_000;
export const DEFAULT_MAX_RESULT_BYTES = 16 * 1024 * 1024;

/** Effects when a tool does not say (DESIGN, decision 5): the careful reading of its tier and annotations. */
export function defaultEffects(tier: Tier, annotations: ToolAnnotations): Effects {
  if (tier === 'read-only') return 'none';
  return annotations.idempotentHint === true ? 'idempotent' : 'once';
}

/**
 * Defines a tool; `run` is typed by the zod schema `input`, callers by the same schema's input side.
 * Throws `CONFIGURATION` naming the field when the definition is unusable, at definition time and not at the first call.
 */
export function defineTool<const Name extends string, Schema extends z.ZodType, Output>(
  spec: ToolSpec<Name, Schema, Output>,
): Tool<Name, z.input<Schema>, z.output<Schema>, Output> {
  const annotations = spec.annotations ?? {};
  const tool: Tool<Name, z.input<Schema>, z.output<Schema>, Output> = {
    [toolBrand]: true,
    name: spec.name,
    namespace: spec.namespace ?? DEFAULT_NAMESPACE,
    version: spec.version,
    description: spec.description,
    tier: spec.tier,
    effects: spec.effects ?? defaultEffects(spec.tier, annotations),
    annotations,
    inputSchema: inputJsonSchema(spec.input),
    ...(spec.output === undefined ? {} : { outputSchema: outputJsonSchema(spec.output) }),
    needs: spec.needs ?? [],
    timeoutMs: spec.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    maxResultBytes: spec.maxResultBytes ?? DEFAULT_MAX_RESULT_BYTES,
    retry: spec.retry ?? {},
    circuit: spec.circuit ?? {},
    parse: (params) => spec.input.parse(params),
    run: spec.run,
    ...(spec.probe === undefined ? {} : { probe: spec.probe }),
    ...(spec.compensate === undefined ? {} : { compensate: spec.compensate }),
    ...(spec.preview === undefined ? {} : { preview: spec.preview }),
  };
  checkDefinition(tool);
  return tool;
}

function checkDefinition(tool: AnyTool): void {
  const wrong = (field: string, expected: string, came: unknown): never => {
    throw new PawlError(
      'CONFIGURATION',
      `Tool ${JSON.stringify(tool.name)}: ${field} must be ${expected}; got ${JSON.stringify(came)}.`,
    );
  };
  if (!NAME.test(tool.name)) wrong('name', 'a letter and up to 63 letters, digits, _ or -', tool.name);
  if (!NAMESPACE.test(tool.namespace))
    wrong('namespace', 'a letter and up to 127 letters, digits, _, . or -', tool.namespace);
  if (!SEMANTIC_VERSION.test(tool.version)) wrong('version', 'a semantic version such as 1.0.0', tool.version);
  if (!TIERS.includes(tool.tier)) wrong('tier', `one of ${TIERS.join(', ')}`, tool.tier);
  if (!EFFECTS.includes(tool.effects)) wrong('effects', `one of ${EFFECTS.join(', ')}`, tool.effects);
  if (tool.effects === 'probe' && tool.probe === undefined)
    wrong('probe', "a function, because effects is 'probe'", undefined);
  if (tool.tier === 'read-only' && tool.effects !== 'none')
    wrong('effects', "'none' in the read-only tier", tool.effects);
  for (const need of tool.needs)
    if (!CAPABILITIES.includes(need)) wrong('needs', `some of ${CAPABILITIES.join(', ')}`, need);
  if (!(tool.timeoutMs > 0)) wrong('timeoutMs', 'a number of milliseconds above 0', tool.timeoutMs);
  if (!(tool.maxResultBytes > 0)) wrong('maxResultBytes', 'a number of bytes above 0', tool.maxResultBytes);
  if (typeof tool.run !== 'function') wrong('run', 'a function', typeof tool.run);
}

export function isTool(value: unknown): value is AnyTool {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[toolBrand] === true;
}

/** `namespace.name`: how a tool is called where names of several namespaces meet. */
export function qualifiedName(tool: { readonly namespace: string; readonly name: string }): string {
  return `${tool.namespace}.${tool.name}`;
}
