/**
 * What a tool is (A1): name, semantic version, tier, effects, schemas, annotations and one function `run(params, ctx)`.
 */
import type { z } from 'zod';
import type { CircuitOverrides } from './breaker.ts';
import { EFFECTS, type Effects } from './effects.ts';
import { PawlError } from './failure.ts';
import type { RetryOverrides } from './retry.ts';
import { inputJsonSchema, type JsonSchema, outputJsonSchema } from './schema.ts';

export { EFFECTS, type Effects } from './effects.ts';

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

/** A handle that a tool may ask for. Which ones a call gets depends on the session's kind and the worker (A9, A10). */
export const CAPABILITIES = [
  'workspace:read',
  'workspace:write',
  'processes',
  'memory:search',
  'memory:store',
  'channel',
  'network',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

export interface WorkspaceEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'other';
  readonly bytes: number;
}

/**
 * Files below the session's workspace root, and nothing else (A11): a path that leaves it, through `..`, an absolute path
 * or a symbolic link, is refused with `PERMISSION_DENIED`; a device, socket or FIFO with `INVALID_PARAMS`.
 */
export interface Workspace {
  /** Absolute path of the root. */
  readonly root: string;
  /** Bytes of a regular file. Throws `NOT_FOUND` when absent and `RESULT_TOO_LARGE` above `maxBytes` (16 MiB). */
  read(path: string, options?: { readonly maxBytes?: number }): Promise<Uint8Array>;
  /** One level of a directory, sorted by path. */
  list(path: string): Promise<readonly WorkspaceEntry[]>;
  /** Replaces or creates a file in one step: readers see the old content or the new one. Makes missing folders. */
  write(path: string, content: string | Uint8Array): Promise<{ readonly created: boolean; readonly bytes: number }>;
}

export interface ProcessRequest {
  /** Program and arguments; no shell interprets them. */
  readonly argv: readonly [string, ...string[]];
  /** Relative to the workspace root. */
  readonly cwd?: string;
  /** Added to the allow-listed environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly timeoutMs?: number;
  /** Cap on each of the two outputs; the rest is dropped and `truncated` tells (default 256 KiB). */
  readonly maxOutputBytes?: number;
}

export interface ProcessResult {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** How many bytes were dropped from each output. */
  readonly truncated: { readonly stdoutBytes: number; readonly stderrBytes: number };
  readonly timedOut: boolean;
  readonly durationMs: number;
}

/** Child processes whose whole tree ends with the call, on a timeout or cancel, and when the worker dies. */
export interface Processes {
  run(request: ProcessRequest): Promise<ProcessResult>;
}

/** Long-term memory (A24). */
export interface Memory {
  search(
    query: string,
    options?: { readonly limit?: number },
  ): Promise<readonly { readonly id: string; readonly text: string; readonly score: number }[]>;
  store(text: string, metadata?: Readonly<Record<string, string>>): Promise<{ readonly id: string }>;
}

/** Where a session talks to people (A19). */
export interface Channel {
  readonly kind: string;
  send(text: string): Promise<void>;
}

export interface ToolLogger {
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void;
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

export interface Progress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

/** The capability handles of a context. An absent one throws `PERMISSION_DENIED` at its first use. */
export interface ToolCapabilities {
  readonly workspace: Workspace;
  readonly processes: Processes;
  readonly memory: Memory;
  readonly channel: Channel;
  /** `fetch` that refuses private addresses and counts decompressed bytes. */
  readonly fetch: (input: string | URL, init?: RequestInit) => Promise<Response>;
}

/** What a running tool knows and may use (A8). */
export interface ToolContext extends ToolCapabilities {
  readonly callId: string;
  readonly sessionKey: string;
  readonly agentId?: string;
  readonly actorId: string;
  readonly tenantId?: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Grows with every attempt of the call; a sink that remembers the highest it saw can refuse a stale writer. */
  readonly fence: number;
  /** Stable over all attempts of the call: send it downstream as the idempotency key. */
  readonly idempotencyKey: string;
  /** Aborted on timeout, cancel, drain and a lost lease. `signal.reason` is a PawlError that says which. */
  readonly signal: AbortSignal;
  readonly deadlineAtMs?: number;
  readonly trace: { readonly traceparent?: string };
  /** Shared between hooks and the tool during one attempt. */
  readonly values: Map<string, unknown>;
  readonly log: ToolLogger;
  progress(progress: Progress): void;
}

export interface Artifact {
  readonly kind: 'file-created' | 'file-modified' | 'memory-record' | 'other';
  readonly reference: string;
}

/** What a tool returns (A12): `output` for the model, `display` for people. */
export interface ToolResult<Output> {
  readonly output: Output;
  readonly display?: string;
  readonly artifacts?: readonly Artifact[];
}

/** A probe's answer about an attempt that left no record. `not-done` lets the call run again. */
export type ProbeAnswer<Output> =
  | { readonly state: 'done'; readonly result: ToolResult<Output> }
  | { readonly state: 'not-done' }
  | { readonly state: 'unknown' };

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
