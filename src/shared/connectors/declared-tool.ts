/**
 * A declared tool: its executor is part of the workers, and its definition is a versioned record in Redis that the `admin` role edits at run
 * time. There are three kinds: `http` (a connector), `mcp` (a tool of an MCP server) and `dynamic` (executed by a client). A fourth record,
 * `code`, only switches a tool of the workers' code on and off.
 */
import { z } from 'zod';
import { type Issue, invalidInput, type PawlError, reasonOf } from '../errors/failure.ts';
import { type ToolPolicyRecord, toolRuleSchema } from '../policy/policy-file.ts';
import { EFFECTS } from '../retries/effects.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { parameterFault } from '../schema/known-members.ts';
import { usableSchema, validatorOf } from '../schema/validator.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { conditionSchema, costFault, costUnitsSchema, operationCostsSchema } from '../tools/operation-cost.ts';
import { DEFAULT_NAMESPACE, DEFAULT_TIMEOUT_MS, TIERS, TOOL_FORMS, type ToolReference } from '../tools/tool.ts';
import { annotationShape } from '../tools/tool-options.ts';
import { TRUST_CLASSES } from '../tools/trust-class.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { connectorSchema, placeholdersOf } from './connector.ts';
import { mcpRoutingSchema } from './mcp-routing.ts';

const DECLARED_KINDS = ['http', 'mcp', 'dynamic'] as const;
export type DeclaredToolKind = (typeof DECLARED_KINDS)[number];

const schemaSchema = z.record(z.string(), z.unknown());
const count = z.number().int().min(0);
const circuitName = z.string().min(1).max(256);
const votersSchema = z
  .number()
  .int()
  .min(3)
  .max(99)
  .refine((voters) => voters % 2 === 1, 'must be odd');
const bytes = z.number().int().min(1);

const common = {
  version: z.string().regex(TOOL_FORMS.version.form, `must be ${TOOL_FORMS.version.words}`),
  title: z.string().min(1).max(256).optional(),
  description: z.string().min(1).max(8_192),
  tier: z.enum(TIERS).optional(),
  effects: z.enum(EFFECTS).exclude(['probe']).optional(),
  annotations: z.strictObject(annotationShape).partial().default({}),
  inputSchema: schemaSchema,
  outputSchema: schemaSchema.optional(),
  trustClass: z.enum(TRUST_CLASSES).default('BestEffort'),
  /** The number of workers that run a call of the class `ConsensusRequired`: an odd number. */
  voters: votersSchema.optional(),
  timeoutMs: z.number().int().min(1).max(3_600_000).default(DEFAULT_TIMEOUT_MS),
  maxResultBytes: bytes.optional(),
  maxOutputBytes: bytes.optional(),
  budget: z
    .strictObject({
      costUnits: costUnitsSchema,
      costs: operationCostsSchema,
      maxCallsPerTurn: count,
      maxCallsPerSession: count,
    })
    .partial()
    .optional(),
  /** Restricts calls as a tool's rule in the policy file does; it never allows what another layer denies. */
  policy: toolRuleSchema.optional(),
  circuit: z.strictObject({ dependency: circuitName, targetParameter: circuitName }).partial().optional(),
  enabled: z.boolean().default(true),
  /** False: it can be switched off and on, and otherwise neither changed nor removed. */
  mutable: z.boolean().default(true),
};

/** The number of calls that run in all clients together at a time; further calls wait in the queue. */
const dynamicRoutingSchema = z
  .strictObject({ concurrency: z.number().int().min(1).max(10_000).default(4) })
  .prefault({});

/** The body of `PUT /v1/tools/{name}`. */
export const declaredToolSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('http'), ...common, routing: connectorSchema }),
  z.strictObject({ kind: z.literal('mcp'), ...common, routing: mcpRoutingSchema }),
  z.strictObject({ kind: z.literal('dynamic'), ...common, routing: dynamicRoutingSchema }),
]);
export type DeclaredTool = z.input<typeof declaredToolSchema>;
type ParsedDeclaredTool = z.output<typeof declaredToolSchema>;

/** The writer of a revision, and its time by Redis' clock. */
interface Revision {
  readonly name: string;
  readonly namespace: string;
  /** 1 for the first; it grows with each change, removals included. */
  readonly revision: number;
  readonly updatedAtMs: number;
  readonly updatedBy: string;
}

/** Fields that apply at once, whatever definition a call was validated with. */
type Switches = 'enabled' | 'mutable';

export type DeclaredToolRecord = ParsedDeclaredTool &
  Revision & {
    readonly tier: (typeof TIERS)[number];
    readonly effects: Exclude<(typeof EFFECTS)[number], 'probe'>;
    /** The digest of everything that decides what a call does. Revisions that differ only in their switches share it. */
    readonly definition: string;
  };
export type DeclaredToolOf<Kind extends DeclaredToolKind> = Extract<DeclaredToolRecord, { kind: Kind }>;

/** The switch of a tool of the workers' code. */
export interface CodeSwitchRecord extends Revision {
  readonly kind: 'code';
  readonly enabled: boolean;
  readonly mutable: boolean;
}

/** The record of a removed tool, so that revision numbers continue and queued calls of the tool are refused. */
export interface RemovedRecord extends Revision {
  readonly kind: 'removed';
}

export type RegistryRecord = DeclaredToolRecord | CodeSwitchRecord | RemovedRecord;

export function isDeclaredTool(record: RegistryRecord | undefined): record is DeclaredToolRecord {
  return record !== undefined && record.kind !== 'code' && record.kind !== 'removed';
}

export function toolPolicyOf(record: RegistryRecord | undefined): ToolPolicyRecord | undefined {
  if (record === undefined) return undefined;
  if (record.kind === 'removed') return { enabled: false, reason: 'the tool was removed from the registry' };
  return {
    enabled: record.enabled,
    ...(record.enabled ? {} : { reason: 'the tool is disabled in the registry' }),
    ...(isDeclaredTool(record) && record.policy !== undefined ? { rule: record.policy } : {}),
  };
}

/** Parses `name` or `namespace.name`; the last dot divides. Throws `CONTRACT_INVALID`. */
export function parseToolName(text: string): ToolReference {
  if (typeof text !== 'string') throw invalid([{ path: 'name', message: `must be a text; got ${quoteValue(text)}` }]);
  const dot = text.lastIndexOf('.');
  const parts = { name: text.slice(dot + 1), namespace: dot === -1 ? DEFAULT_NAMESPACE : text.slice(0, dot) };
  for (const path of ['name', 'namespace'] as const) {
    const { form, words } = TOOL_FORMS[path];
    if (!form.test(parts[path]))
      throw invalid([{ path, message: `must be ${words}; got ${JSON.stringify(parts[path])}` }]);
  }
  return parts;
}

export interface CheckedDeclaredTool {
  readonly record: DeclaredToolRecord;
  /** The changes that made foreign schemas usable. */
  readonly changes: readonly string[];
}

/** The record that a declaration makes. Large schemas are checked in a thread. Throws `CONTRACT_INVALID` with every fault. */
export async function declaredToolRecord(declaration: unknown, revision: Revision): Promise<CheckedDeclaredTool> {
  const parsed = declaredToolSchema.safeParse(declaration, WITH_RECEIVED);
  if (!parsed.success) throw invalid(zodIssues(parsed.error));
  const spec = parsed.data;
  const tier = spec.tier ?? defaultTier(spec);
  const effects = spec.effects ?? declaredEffects(spec, tier);
  if (tier === 'read-only' && effects !== 'none')
    throw invalid([{ path: 'effects', message: `must be none in the read-only tier; got ${effects}` }]);
  if (spec.trustClass === 'ConsensusRequired' && tier !== 'read-only')
    throw invalid([{ path: 'trustClass', message: `ConsensusRequired is for the read-only tier; got ${tier}` }]);
  // Pawl cannot know the effects of a client's tool.
  if (spec.kind === 'dynamic' && tier === 'read-only')
    throw invalid([{ path: 'tier', message: 'must not be read-only: dynamic tools always count as mutating' }]);
  if (spec.kind === 'dynamic' && effects === 'none')
    throw invalid([{ path: 'effects', message: 'must not be none: dynamic tools always count as mutating' }]);
  const input = await declaredSchema(spec.inputSchema, 'inputSchema', 'parameters');
  const fault = await declaredCostFault(spec, input.schema);
  if (fault !== undefined)
    throw invalid([{ path: fault.path, message: `must be ${fault.expected}; got ${quoteValue(fault.actual)}` }]);
  const unnamed = parameterFaults(spec, input.schema);
  if (unnamed.length > 0) throw invalid(unnamed);
  const output =
    spec.outputSchema === undefined ? undefined : await declaredSchema(spec.outputSchema, 'outputSchema', 'output');
  const content = {
    ...spec,
    tier,
    effects,
    inputSchema: input.schema,
    ...(output !== undefined && { outputSchema: output.schema }),
  };
  return {
    record: { ...content, ...revision, definition: definitionDigestOf(content, revision) } as DeclaredToolRecord,
    changes: [...input.changes, ...(output?.changes ?? [])],
  };
}

function definitionDigestOf(
  { enabled: _, mutable: __, ...content }: Pick<ParsedDeclaredTool, Switches> & object,
  { namespace, name }: Revision,
): string {
  return digest(canonicalJson(['spec', namespace, name, content]));
}

/** A large schema is compiled in a thread here, too. */
async function declaredCostFault({ budget }: ParsedDeclaredTool, inputSchema: JsonSchema) {
  const { costs = [] } = budget ?? {};
  const schema = costs.length === 0 ? undefined : conditionSchema(inputSchema);
  if (schema === undefined) return undefined;
  const validate = validatorOf(schema);
  return costFault(costs, inputSchema, await Promise.all(costs.map(({ when }) => validate(when))));
}

/** Each member that names a parameter which the tool does not have: it would never have an effect. */
function parameterFaults(spec: ParsedDeclaredTool, inputSchema: JsonSchema): Issue[] {
  const named = [['circuit.targetParameter', spec.circuit?.targetParameter]];
  if (spec.kind === 'http') {
    const { arguments: argumentMap, bodyFrom } = spec.routing;
    named.push(['routing.bodyFrom', bodyFrom]);
    for (const name of Object.keys(argumentMap)) named.push([`routing.arguments.${name}`, name]);
    for (const [path, name] of placeholdersOf(spec.routing)) named.push([path, name]);
  }
  return named.flatMap(([path = '', name]) => {
    const expected = name === undefined ? undefined : parameterFault(name, inputSchema);
    return expected === undefined ? [] : [{ path, message: `must name ${expected}; got ${quoteValue(name)}` }];
  });
}

/** Reading over HTTP is read-only; every other access to the outside is of the system tier. */
function defaultTier(spec: ParsedDeclaredTool): DeclaredToolRecord['tier'] {
  if (spec.kind !== 'http') return 'system';
  return ['GET', 'HEAD'].includes(spec.routing.method) ? 'read-only' : 'system';
}

/** By RFC 9110 a repeated PUT or DELETE ends in the same state; a service that knows idempotency keys gives the same answer. */
function declaredEffects(spec: ParsedDeclaredTool, tier: DeclaredToolRecord['tier']): DeclaredToolRecord['effects'] {
  if (tier === 'read-only') return 'none';
  if (spec.kind !== 'http') return 'once';
  if (spec.routing.idempotencyHeader !== undefined) return 'keyed';
  return ['PUT', 'DELETE', 'GET', 'HEAD'].includes(spec.routing.method) ? 'idempotent' : 'once';
}

/** A schema that is too costly is refused here, whatever its source. */
async function declaredSchema(foreign: JsonSchema, path: string, role: 'parameters' | 'output') {
  try {
    const { schema, changes } = await usableSchema(foreign, role);
    return { schema, changes: changes.map((change) => `${path}.${change}`) };
  } catch (error) {
    throw invalid([{ path, message: reasonOf(error) }]);
  }
}

function invalid(issues: readonly Issue[]): PawlError {
  return invalidInput('The tool cannot be declared', issues, 'it');
}
