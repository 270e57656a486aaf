/** A tool: name, semantic version, tier, effects, schemas, annotations and one function `run(params, ctx)`. */
import type { z } from 'zod';
import type { CircuitOverrides } from '../circuits/circuit-policy.ts';
import { ToolError } from '../errors/failure.ts';
import type { Effects } from '../retries/effects.ts';
import type { RetryOverrides } from '../retries/retry.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import type { ZodSchema } from '../schema/schema.ts';
import type { Capability, Need } from './capabilities.ts';
import { answerFault } from './tool-answers.ts';
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

/** The permission tiers. Each has queues of its own. */
export const TIERS = ['read-only', 'workspace', 'system', 'elevated'] as const;
export type Tier = (typeof TIERS)[number];

/** Hints in the sense of MCP. They inform; only tier and effects decide. */
export interface ToolAnnotations {
  readonly readOnlyHint?: boolean;
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
  readonly openWorldHint?: boolean;
  readonly editHint?: boolean;
  readonly title?: string;
  /**
   * Whether an MCP client that supports tasks gets one for a call: `forbidden` never, `required` always (other clients are refused),
   * `optional` (the default) when the call takes a while.
   */
  readonly taskSupport?: 'forbidden' | 'optional' | 'required';
}

/** Whether a call can go on, or the time after which to ask again at the latest. */
export type Readiness = { readonly ready: true } | { readonly ready: false; readonly againInMs: number };

export const toolBrand: unique symbol = Symbol.for('pawl.tool');

/** A tool as workers run it. Callers pass `Input`; `run` receives `Params`, with defaults. */
export interface Tool<Name extends string = string, Input = unknown, Params = unknown, Output = unknown>
  extends ToolFunctions<Params, Output> {
  readonly [toolBrand]: true;
  /** The type of the callers' parameters, for the type system alone. */
  readonly inputType?: Input;
  readonly name: Name;
  readonly namespace: string;
  readonly version: string;
  /** The name for people; models see `name`. */
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
  /** False runs the session's calls of the tool one at a time, as if all of them used one resource. */
  readonly parallel: boolean;
  /** The time limit of one attempt. */
  readonly timeoutMs: number;
  readonly maxResultBytes: number;
  /** The most bytes of output for the model. Of more, it sees the beginning, a mark, and the address of the whole. */
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
  /** Finds out the end of an attempt that left no record (effects `probe`). */
  probe?(params: Params, ctx: ToolContext): Promise<ProbeAnswer<Output>> | ProbeAnswer<Output>;
  compensate?(params: Params, result: ToolResult<Output>, ctx: ToolContext): Promise<void>;
  /** The part of an output on which workers must agree. Default: all of it. */
  normalise?(output: Output): unknown;
  /**
   * Whether the call can start; `waitedMs` is the time since the first question. A call that cannot is parked: it holds no worker and
   * consumes no attempt, and the question comes again when the call is due or promoted. The function must change nothing.
   */
  ready?(params: Params, ctx: ToolContext, waitedMs: number): Promise<Readiness> | Readiness;
  /** Describes the call for a person who decides on it. The function must change nothing. */
  preview?(params: Params, ctx: PreviewContext): Promise<ToolPreview> | ToolPreview;
  /** Whether this very call changes something. Default: true, unless the tool is of the read-only tier. */
  isMutating?(params: Params): boolean;
  /**
   * The resource that the call uses, such as a file or an account. Calls that change the same resource run one at a time, over all
   * workers of a tenant; calls that only read it run side by side.
   */
  resource?(params: Params): string | undefined;
}

// biome-ignore lint/suspicious/noExplicitAny: a tool's parameters are contravariant; only `any` accepts every tool.
export type AnyTool = Tool<string, any, any, any>;

/** The parameters that callers pass to a tool. For a tool that is given by its name alone, they are any object. */
export type InputOf<T> = T extends string
  ? // biome-ignore lint/suspicious/noExplicitAny: values that are `unknown` would refuse every interface.
    Readonly<Record<string, any>>
  : T extends Tool<string, infer Input, infer _Params, infer _Output>
    ? Input
    : never;
/** The `output.content` of a tool's calls; unknown for a tool that is given by its name alone. */
export type OutputOf<T> = T extends string
  ? unknown
  : T extends Tool<string, infer _Input, infer _Params, infer Output>
    ? Output
    : never;

/** The options of every kind of definition. */
export interface ToolOptions<Params, Output> extends ToolFunctions<Params, Output> {
  readonly version: string;
  readonly description: string;
  readonly tier: Tier;
  /** The namespace. Default `tools`. */
  readonly namespace?: string;
  readonly title?: string;
  readonly icon?: ToolIcon;
  readonly examples?: readonly ToolExample[];
  readonly effects?: Effects;
  readonly annotations?: ToolAnnotations;
  /** The schema of the output, which checks every result. */
  readonly output?: ZodSchema<Output>;
  /** Capabilities, or handles of the context: `workspace`, `memory`, `fetch`. Default: those that the session and the tier allow. */
  readonly needs?: readonly Need[];
  /** False runs the session's calls of the tool one at a time. Default true. */
  readonly parallel?: boolean;
  readonly timeoutMs?: number;
  readonly maxResultBytes?: number;
  readonly maxOutputBytes?: number;
  readonly budget?: ToolBudget;
  /** `ConsensusRequired`: several workers run each call and must come to the same result; for the read-only tier. Default `BestEffort`. */
  readonly trustClass?: TrustClass;
  /** The number of these workers, which is odd. Default 3. */
  readonly voters?: number;
  readonly retry?: RetryOverrides;
  readonly circuit?: CircuitOverrides;
}

export interface ToolSpec<Name extends string, Schema extends ZodSchema, Output>
  extends ToolOptions<z.output<Schema>, Output> {
  readonly name: Name;
  readonly input: Schema;
  /** A JSON Schema in place of the one that is made from `input`. `input` still parses the parameters that it accepts. */
  readonly schema?: JsonSchema;
  readonly variant?: VariantWithParameters;
}

export const DEFAULT_NAMESPACE = 'tools';

/** The forms of a tool's name, namespace and version, each with the words of errors. */
export const TOOL_FORMS = {
  name: { form: /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/, words: 'a letter and up to 63 letters, digits, _ or -' },
  namespace: { form: /^[a-zA-Z][a-zA-Z0-9_.-]{0,127}$/, words: 'a letter and up to 127 letters, digits, _, . or -' },
  version: { form: /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/, words: 'a semantic version' },
} as const;

/** The tool that a person means by `namespace.name` or by a name alone. For a name alone, the default namespace comes first. */
export function toolNamed<T extends ToolReference>(tools: readonly T[], name: string): T | undefined {
  return (
    tools.find((tool) => `${tool.namespace}.${tool.name}` === name) ??
    tools.find((tool) => tool.namespace === DEFAULT_NAMESPACE && tool.name === name) ??
    tools.find((tool) => tool.name === name)
  );
}

/** The parts of `namespace.name`. A tool's own name has no dots; a namespace may. */
export function splitName(tool: string): ToolReference {
  const dot = tool.lastIndexOf('.');
  return dot <= 0 || dot === tool.length - 1
    ? { namespace: DEFAULT_NAMESPACE, name: tool }
    : { namespace: tool.slice(0, dot), name: tool.slice(dot + 1) };
}

/** The most that a setting lets run at a time: attempts of a worker, or calls of a tool in the whole fleet. */
export const MAX_CONCURRENCY = 10_000;
export const DEFAULT_TIMEOUT_MS = 30_000;
export const DEFAULT_MAX_RESULT_BYTES = 16 * 1024 * 1024;

/** Whether a call changes something: the tool's own answer for these parameters, else its tier. */
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

/** The full name of a tool, in its two parts. */
export interface ToolReference {
  readonly namespace: string;
  readonly name: string;
}

export interface TieredTool extends ToolReference {
  readonly tier: Tier;
}

/** `namespace.name`, the tool's name where several namespaces meet. */
export function qualifiedName(tool: ToolReference): string {
  return `${tool.namespace}.${tool.name}`;
}

/** The name that `pawl call` takes: without the namespace if that is the default one. */
export function shortName(tool: ToolReference): string {
  return tool.namespace === DEFAULT_NAMESPACE ? tool.name : qualifiedName(tool);
}
