/**
 * What a tool is (A1): name, semantic version, tier, effects, schemas, annotations and one function `run(params, ctx)`.
 */
import type { z } from 'zod';
import { DEFAULT_VOTERS, TRUST_CLASSES, type TrustClass } from '../calls/consensus.ts';
import type { CircuitOverrides } from '../circuits/circuit-breaker.ts';
import { PawlError, ToolError } from '../errors/failure.ts';
import { EFFECTS, type Effects } from '../retries/effects.ts';
import type { RetryOverrides } from '../retries/retry.ts';
import { compileSchema, inputJsonSchema, type JsonSchema, outputJsonSchema, parsedBy } from '../schema/schema.ts';
import { withoutReference } from '../schema/schema-references.ts';
import { CAPABILITIES, type Capability, capabilitiesOf, NEEDS, type Need } from './capabilities.ts';
import type { ToolContext } from './tool-context.ts';
import { optionsCheck } from './tool-options.ts';
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

import { MAX_WAIT_MS } from '../util/time.ts';

export { EFFECTS, type Effects } from '../retries/effects.ts';
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

const toolBrand: unique symbol = Symbol.for('pawl.tool');

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

const NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/;
const NAMESPACE = /^[a-zA-Z][a-zA-Z0-9_.-]{0,127}$/;
const SEMANTIC_VERSION = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/;
const ICON = /^(?:https:|data:image\/)/;

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

/** Effects when a tool does not say (DESIGN, decision 5): the careful reading of its tier and annotations. */
export function defaultEffects(tier: Tier, annotations: ToolAnnotations): Effects {
  if (tier === 'read-only') return 'none';
  return annotations.idempotentHint === true ? 'idempotent' : 'once';
}

const checkOptions = optionsCheck(['name', 'input', 'schema', 'variant']);

/**
 * Defines a tool; `run` is typed by the zod schema `input`, callers by the same schema's input side.
 * Throws `CONFIGURATION` naming the field when the definition is unusable, at definition time and not at the first call.
 */
export function defineTool<const Name extends string, Schema extends z.ZodType, Output>(
  spec: ToolSpec<Name, Schema, Output>,
): Tool<Name, z.input<Schema>, z.output<Schema>, Output> {
  checkOptions(spec);
  return makeTool<Name, z.input<Schema>, z.output<Schema>, Output>(spec.name, spec, {
    inputSchema: spec.schema ?? namingTool(spec.name, () => inputJsonSchema(spec.input)),
    variant: spec.variant ?? { type: 'function' },
    parse: (params) => parsedBy(spec.input, params),
  });
}

/** The tool that options describe, checked. The way of all definitions. */
export function makeTool<Name extends string, Input, Params, Output>(
  name: Name,
  options: ToolOptions<Params, Output>,
  form: Pick<Tool<Name, Input, Params, Output>, 'inputSchema' | 'variant' | 'parse'>,
): Tool<Name, Input, Params, Output> {
  const { version, description, tier, title, icon, maxOutputBytes, budget, output } = options;
  const { run, probe, compensate, normalise, ready, preview, isMutating, resource } = options;
  const { trustClass = 'BestEffort', voters } = options;
  const annotations = options.annotations ?? {};
  // What is read of the parameters is read at the root.
  const inputSchema = withoutReference(form.inputSchema, form.inputSchema);
  const tool: Tool<Name, Input, Params, Output> = {
    [toolBrand]: true,
    name,
    namespace: options.namespace ?? DEFAULT_NAMESPACE,
    version,
    description,
    examples: options.examples ?? [],
    tier,
    effects: options.effects ?? defaultEffects(tier, annotations),
    annotations,
    ...(output === undefined ? {} : { outputSchema: namingTool(name, () => outputJsonSchema(output)) }),
    needs: capabilitiesOf(options.needs ?? [], tier !== 'read-only'),
    parallel: options.parallel ?? true,
    timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    maxResultBytes: options.maxResultBytes ?? DEFAULT_MAX_RESULT_BYTES,
    trustClass,
    retry: options.retry ?? {},
    circuit: options.circuit ?? {},
    ...form,
    inputSchema,
    run,
    ...present({
      title,
      icon,
      maxOutputBytes,
      budget,
      voters,
      probe,
      compensate,
      normalise,
      ready,
      preview,
      isMutating,
      resource,
    }),
  };
  checkDefinition(tool);
  return tool;
}

/** What is wrong with a schema, said with whose it is: a file may define many tools. */
export function namingTool<T>(name: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    throw new PawlError(error.code, `Tool ${JSON.stringify(name)}: ${error.message}`, { cause: error });
  }
}

/** Without the members that are undefined. */
function present<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, member]) => member !== undefined)) as never;
}

function checkDefinition(tool: AnyTool): void {
  const wrong = (field: string, expected: string, came: unknown): never => {
    throw new PawlError(
      'CONFIGURATION',
      `Tool ${JSON.stringify(tool.name)}: ${field} must be ${expected}; got ${typeof came === 'number' ? came : JSON.stringify(came)}.`,
    );
  };
  // Callers without types may leave out what nobody who lists or exports tools can do without.
  if (typeof tool.name !== 'string' || !NAME.test(tool.name))
    wrong('name', 'a letter and up to 63 letters, digits, _ or -', tool.name);
  if (!NAMESPACE.test(tool.namespace))
    wrong('namespace', 'a letter and up to 127 letters, digits, _, . or -', tool.namespace);
  if (typeof tool.description !== 'string') wrong('description', 'a text', tool.description);
  if (!SEMANTIC_VERSION.test(tool.version)) wrong('version', 'a semantic version such as 1.0.0', tool.version);
  if (!TIERS.includes(tool.tier)) wrong('tier', `one of ${TIERS.join(', ')}`, tool.tier);
  if (!EFFECTS.includes(tool.effects)) wrong('effects', `one of ${EFFECTS.join(', ')}`, tool.effects);
  if (tool.effects === 'probe' && tool.probe === undefined)
    wrong('probe', "a function, because effects is 'probe'", undefined);
  if (tool.tier === 'read-only' && tool.effects !== 'none')
    wrong('effects', "'none' in the read-only tier", tool.effects);
  if (!TRUST_CLASSES.includes(tool.trustClass))
    wrong('trustClass', `one of ${TRUST_CLASSES.join(', ')}`, tool.trustClass);
  if (tool.trustClass === 'ConsensusRequired' && tool.tier !== 'read-only')
    wrong('trustClass', "'BestEffort' outside of the read-only tier", tool.trustClass);
  const { voters = DEFAULT_VOTERS } = tool;
  if (!(Number.isInteger(voters) && voters >= 3 && voters % 2 === 1))
    wrong('voters', 'an odd number from 3 on', voters);
  for (const need of tool.needs) if (!CAPABILITIES.includes(need)) wrong('needs', `some of ${NEEDS.join(', ')}`, need);
  if (tool.icon !== undefined && !ICON.test(tool.icon.src))
    wrong('icon.src', 'an https: address or an image as data: address', tool.icon.src);
  if (typeof tool.run !== 'function') wrong('run', 'a function', typeof tool.run);
  if (!(Number.isSafeInteger(tool.timeoutMs) && tool.timeoutMs >= 1 && tool.timeoutMs <= MAX_WAIT_MS))
    wrong('timeoutMs', `whole milliseconds from 1 to ${MAX_WAIT_MS} (a week)`, tool.timeoutMs);
  const { type = 'object' } = tool.inputSchema as { readonly type?: unknown };
  if (![type].flat().includes('object')) wrong('input', 'a schema of an object, such as z.object({ … })', { type });
  const command = (tool.inputSchema['properties'] as { readonly command?: unknown } | undefined)?.command;
  if (tool.variant.type === 'local-shell' && command === undefined)
    wrong('input', 'a schema with the parameter command, because variant is local-shell', tool.inputSchema);
  if (tool.variant.type === 'freeform') checkFreeform(tool, tool.variant, wrong);
  checkCosts(tool, wrong);
  checkExamples(tool, wrong);
}

type Wrong = (field: string, expected: string, came: unknown) => never;

function checkFreeform(
  { inputSchema }: AnyTool,
  { parameter = 'input' }: { readonly parameter?: string },
  wrong: Wrong,
): void {
  const { [parameter]: text } = (inputSchema['properties'] ?? {}) as Readonly<
    Record<string, { readonly type?: unknown }>
  >;
  const others = ((inputSchema['required'] ?? []) as readonly string[]).filter((name) => name !== parameter);
  if (text?.type !== 'string' || others.length > 0)
    wrong(
      'input',
      `a schema with the text ${parameter} and nothing else that is required, because variant is freeform`,
      inputSchema,
    );
}

/** A condition on a parameter that the tool does not have would never hold. */
function checkCosts({ budget, inputSchema }: AnyTool, wrong: Wrong): void {
  const { properties = {}, additionalProperties = false } = inputSchema as Readonly<Record<string, unknown>>;
  const names = Object.keys(properties as object);
  if (additionalProperties !== false || names.length === 0) return;
  for (const [index, { when }] of (budget?.costs ?? []).entries())
    for (const name of Object.keys(when))
      if (!names.includes(name)) wrong(`budget.costs[${index}].when`, `about ${names.join(', ')}`, name);
}

function checkExamples(tool: AnyTool, wrong: Wrong): void {
  if (tool.examples.length === 0) return;
  const validate = namingTool(tool.name, () => compileSchema(tool.inputSchema));
  for (const [index, { params }] of tool.examples.entries()) {
    const [issue] = validate(params);
    if (issue !== undefined) wrong(`examples[${index}].params.${issue.path}`, 'as the schema says', issue.message);
  }
}

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
