/**
 * What a tool is (A1): name, semantic version, tier, effects, schemas, annotations and one function `run(params, ctx)`.
 */
import type { z } from 'zod';
import type { CircuitOverrides } from '../circuits/circuit-policy.ts';
import { ToolError } from '../errors/failure.ts';
import type { Effects } from '../retries/effects.ts';
import type { RetryOverrides } from '../retries/retry.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import type { Capability, Need } from './capabilities.ts';
import type { ToolContext } from './tool-context.ts';
import type { ProbeAnswer, ToolResult } from './tool-result.ts';
import type {
  PreviewContext,
  ToolBudget,
  ToolExample,
  ToolIcon,
  ToolPreview,
  ToolVariant,
  VariantWithParameters,
} from './tool-variant.ts';
import type { TrustClass } from './trust-class.ts';

export { EFFECTS, type Effects } from '../retries/effects.ts';
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
  type MemoryRecord,
  type MemorySearchOptions,
  type MemoryStore,
  type MemoryStoreOptions,
  type Processes,
  type ProcessRequest,
  type ProcessResult,
  type Question,
  type StoredMemory,
  type TerminalReport,
  type TerminalRequest,
  type Terminals,
  type ToolCapabilities,
  type Workspace,
  type WorkspaceChange,
  type WorkspaceEntry,
  type WorkspaceFinding,
  type WorkspaceLine,
  type WorkspaceSearch,
} from './capabilities.ts';
export type { AgentReport, AgentState, Agents } from './sub-agent.ts';
export type { AgentTool, CallingAgent, Progress, ToolContext, ToolLogger } from './tool-context.ts';
export type { Artifact, ContentBlock, ProbeAnswer, ToolResult } from './tool-result.ts';
export type {
  FreeformFormat,
  PreviewContext,
  ToolBudget,
  ToolExample,
  ToolIcon,
  ToolPreview,
  ToolVariant,
} from './tool-variant.ts';

import { answerFault } from './tool-answers.ts';

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
  readonly title?: string;
  /**
   * Whether an MCP client that knows tasks gets one for a call: `forbidden` never, `required` always (and others are refused),
   * `optional` (the default) when the call takes a while.
   */
  readonly taskSupport?: 'forbidden' | 'optional' | 'required';
}

/** Whether a call can go on, or when to ask again at the latest. */
export type Readiness = { readonly ready: true } | { readonly ready: false; readonly againInMs: number };

export const toolBrand: unique symbol = Symbol.for('pawl.tool');

/** A tool as workers run it. `Input` is what callers pass, `Params` what `run` receives after defaults. */
export interface Tool<Name extends string = string, Input = unknown, Params = unknown, Output = unknown>
  extends ToolFunctions<Params, Output> {
  readonly [toolBrand]: true;
  /** Only for the type system: what callers pass. */
  readonly inputType?: Input;
  readonly name: Name;
  readonly namespace: string;
  readonly version: string;
  /** For people; models see `name`. */
  readonly title?: string;
  readonly description: string;
  readonly icon?: ToolIcon;
  readonly examples: readonly ToolExample[];
  readonly variant: ToolVariant;
  readonly tier: Tier;
  readonly effects: Effects;
  readonly annotations: ToolAnnotations;
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  readonly needs: readonly Capability[];
  /** False: this session's calls of the tool take turns, as if all of them used one resource. */
  readonly parallel: boolean;
  /** Time limit of one attempt. */
  readonly timeoutMs: number;
  readonly maxResultBytes: number;
  /** Above this, the model sees the beginning, a mark, and where the whole can be read. */
  readonly maxOutputBytes?: number;
  readonly budget?: ToolBudget;
  readonly trustClass: TrustClass;
  readonly voters?: number;
  readonly retry: RetryOverrides;
  readonly circuit: CircuitOverrides;
  /** Applies defaults and transforms after the JSON Schema has accepted the parameters. */
  parse(params: unknown): Params;
}

/** The functions of a tool. All but `run` may be absent. */
interface ToolFunctions<Params, Output> {
  run(params: Params, ctx: ToolContext): Promise<ToolResult<Output>> | ToolResult<Output>;
  /** What became of an attempt that left no record (effects `probe`). */
  probe?(params: Params, ctx: ToolContext): Promise<ProbeAnswer<Output>> | ProbeAnswer<Output>;
  compensate?(params: Params, result: ToolResult<Output>, ctx: ToolContext): Promise<void>;
  /** What of an output counts when workers have to agree on it (I11). Default: all of it. */
  normalise?(output: Output): unknown;
  /**
   * Whether what the call waits for has come; `waitedMs` since it was first asked. While it has not, the call is put aside: it holds no
   * worker and spends no attempt, and is asked again when it is due or woken. Changes nothing.
   */
  ready?(params: Params, ctx: ToolContext, waitedMs: number): Promise<Readiness> | Readiness;
  /** What the call would do, for a person who decides on it (D4). Changes nothing. */
  preview?(params: Params, ctx: PreviewContext): Promise<ToolPreview> | ToolPreview;
  /** Whether this very call changes something (C3). Default: the tool does, unless it is of the read-only tier. */
  isMutating?(params: Params): boolean;
  /**
   * What the call works on, such as a file or an account. Calls that change the same resource take turns, over all workers of
   * a tenant; those that only read it run side by side.
   */
  resource?(params: Params): string | undefined;
}

// biome-ignore lint/suspicious/noExplicitAny: a tool's parameters are contravariant; only `any` accepts every tool.
export type AnyTool = Tool<string, any, any, any>;

/** What callers pass to a tool, and what comes back as `output.content`. Of a tool that is only named, nothing is known of either. */
export type InputOf<T> = T extends string
  ? Readonly<Record<string, unknown>>
  : T extends Tool<string, infer Input, infer _Params, infer _Output>
    ? Input
    : never;
export type OutputOf<T> = T extends string
  ? unknown
  : T extends Tool<string, infer _Input, infer _Params, infer Output>
    ? Output
    : never;

/** What every way of defining a tool takes. */
export interface ToolOptions<Params, Output> extends ToolFunctions<Params, Output> {
  readonly version: string;
  readonly description: string;
  readonly tier: Tier;
  /** Default `tools`. */
  readonly namespace?: string;
  readonly title?: string;
  readonly icon?: ToolIcon;
  readonly examples?: readonly ToolExample[];
  readonly effects?: Effects;
  readonly annotations?: ToolAnnotations;
  /** Checked on every result. */
  readonly output?: z.ZodType<Output>;
  /** Capabilities, or handles of the context: `workspace`, `memory`, `fetch`. Default: whatever the session and the tier allow. */
  readonly needs?: readonly Need[];
  /** Default true. */
  readonly parallel?: boolean;
  readonly timeoutMs?: number;
  readonly maxResultBytes?: number;
  readonly maxOutputBytes?: number;
  readonly budget?: ToolBudget;
  /** `ConsensusRequired`: several workers run each call and must find the same (I11); for the read-only tier. Default `BestEffort`. */
  readonly trustClass?: TrustClass;
  /** How many workers that are: an odd number. Default 3. */
  readonly voters?: number;
  readonly retry?: RetryOverrides;
  readonly circuit?: CircuitOverrides;
}

export interface ToolSpec<Name extends string, Schema extends z.ZodType, Output>
  extends ToolOptions<z.output<Schema>, Output> {
  readonly name: Name;
  readonly input: Schema;
  /** In place of the JSON Schema that is made from `input` (D7); `input` still parses what it accepts. */
  readonly schema?: JsonSchema;
  readonly variant?: VariantWithParameters;
}

export const DEFAULT_NAMESPACE = 'tools';

/** The tool that a person means by `namespace.name` or by a name alone: then the default namespace's, before any other's. */
export function toolNamed<T extends { readonly namespace: string; readonly name: string }>(
  tools: readonly T[],
  name: string,
): T | undefined {
  return (
    tools.find((tool) => `${tool.namespace}.${tool.name}` === name) ??
    tools.find((tool) => tool.namespace === DEFAULT_NAMESPACE && tool.name === name) ??
    tools.find((tool) => tool.name === name)
  );
}
export const DEFAULT_TIMEOUT_MS = 30_000;
export const DEFAULT_MAX_RESULT_BYTES = 16 * 1024 * 1024;

/** Whether a call changes something (C3): the tool's own word for these parameters, else its tier. */
export function isMutating(tool: AnyTool, params: unknown): boolean {
  if (tool.tier === 'read-only') return false;
  const answer: unknown = tool.isMutating?.(params);
  const fault = answerFault('isMutating', tool.name, answer);
  if (fault !== undefined) throw new ToolError(fault, { code: 'RESULT_INVALID', nothingHappened: true });
  return answer !== false;
}

export function isTool(value: unknown): value is AnyTool {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[toolBrand] === true;
}

/** `namespace.name`: how a tool is called where names of several namespaces meet. */
export function qualifiedName(tool: { readonly namespace: string; readonly name: string }): string {
  return `${tool.namespace}.${tool.name}`;
}
