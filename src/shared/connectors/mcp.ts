/**
 * MCP servers as tools: the names and tiers of a server's tools, and the accepted definitions. A server is a foreign program, so its own
 * annotations never lower a tier unless the operator trusts them.
 */
import { distinctNames, repeatedIn } from '../model-tools/names.ts';
import type { Effects } from '../retries/effects.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { TIERS, type Tier, type ToolAnnotations } from '../tools/tool.ts';
import { getOrInsert } from '../util/get-or-insert.ts';
import { isObject } from '../util/json/json-types.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { DeclaredTool, DeclaredToolRecord } from './declared-tool.ts';
import {
  type McpConnectionOptions,
  type McpResourceRouting,
  type McpToolRouting,
  mcpRoutingSchema,
} from './mcp-routing.ts';

/** A tool as its server describes it. */
export interface McpDefinition {
  readonly name: string;
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  readonly inputSchema: unknown;
  readonly outputSchema?: unknown;
  readonly annotations?: ToolAnnotations | undefined;
  /** `required`: it answers only with a task, which Pawl does not support. */
  readonly taskSupport?: string | undefined;
  /** The reason why the definition is unusable; `name` is then its position. */
  readonly unusable?: string | undefined;
}

/**
 * The digest of everything that a server states about a tool. Definitions that differ in anything that a model or a policy reads have
 * different digests.
 */
export function definitionDigest(definition: McpDefinition): string {
  const { name, title, description, inputSchema, outputSchema, annotations, taskSupport } = definition;
  const statedFields = { name, title, description, inputSchema, outputSchema, annotations, taskSupport };
  return digest(canonicalJson(['mcp', JSON.parse(JSON.stringify(statedFields))]));
}

const NAMESPACE_PREFIX = 'mcp.';

export function namespaceOf(server: string): string {
  return `${NAMESPACE_PREFIX}${server}`;
}

/** Names for a server's tools, in order. A name that would collide, or is not allowed here, ends in a digest of the original. */
export function toolNames(names: readonly string[]): readonly string[] {
  const plain = names.map((name) => name.replaceAll(/[^A-Za-z0-9_-]/g, '_').replace(/^(?![A-Za-z])/, 't_'));
  return distinctNames(plain, names, (name) => name.toLowerCase());
}

/** An operator's decisions about a server's tools. */
export interface ImportPolicy {
  /** Default `system`. */
  readonly tier?: Tier | undefined;
  /** Tools, under the server's names, that the operator declares read-only. */
  readonly readOnly?: readonly string[] | undefined;
  /** Trust `readOnlyHint` and `idempotentHint` of tools that are imported for the first time. */
  readonly trustAnnotations?: boolean | undefined;
  /** Import only these. */
  readonly only?: readonly string[] | undefined;
}

/**
 * The tier of a server's tool. Annotations can raise it. They lower it only where the operator trusts them, and never below the tier with
 * which the tool was imported.
 */
export function tierOf(definition: McpDefinition, policy: ImportPolicy, previousTier?: Tier): Tier {
  const { annotations = {}, name } = definition;
  if (policy.readOnly?.includes(name)) return 'read-only';
  const base = policy.tier ?? 'system';
  const destructive = annotations.destructiveHint === true;
  const isReadOnly = policy.trustAnnotations === true && annotations.readOnlyHint === true && !destructive;
  const statedTier = isReadOnly ? 'read-only' : destructive ? stricter(base, 'system') : base;
  return previousTier === undefined || policy.tier !== undefined ? statedTier : stricter(statedTier, previousTier);
}

function stricter(one: Tier, other: Tier): Tier {
  return TIERS.indexOf(one) >= TIERS.indexOf(other) ? one : other;
}

function effectsOf(tier: Tier, { annotations }: McpDefinition, policy: ImportPolicy): Exclude<Effects, 'probe'> {
  if (tier === 'read-only') return 'none';
  return policy.trustAnnotations === true && annotations?.idempotentHint === true ? 'idempotent' : 'once';
}

interface McpImport {
  readonly server: string;
  /** The version that the server reports. */
  readonly version?: string | undefined;
  readonly connection: McpConnectionOptions;
  readonly definitions: readonly McpDefinition[];
  readonly policy: ImportPolicy;
  /** The registry's records of this server. */
  readonly existing: readonly DeclaredToolRecord[];
  /** The reason why a tool cannot be declared as it is; undefined where it can. */
  readonly invalidReason: (tool: string, spec: DeclaredTool) => Promise<string | undefined>;
}

interface PlannedTool {
  readonly tool: string;
  readonly spec: DeclaredTool & { readonly kind: 'mcp' };
  readonly change: 'added' | 'changed' | 'same';
  readonly differs: readonly string[];
}

export interface ImportPlan {
  readonly tools: readonly PlannedTool[];
  /** The qualified names of tools that the server does not offer any more. */
  readonly gone: readonly string[];
  readonly refused: readonly { readonly tool: string; readonly why: string }[];
  /** Whether the server differs from the accepted definitions: a person must review it before anything is declared. */
  readonly drifted: boolean;
}

/** The changes that importing a server would make. */
export async function planImport(request: McpImport): Promise<ImportPlan> {
  const { server, definitions, policy, existing, invalidReason } = request;
  const imported = new Map(
    existing.map((record) => [(mcpRoutingSchema.parse(record.routing) as McpToolRouting).tool, record]),
  );
  const refused = new Map<string, { tool: string; why: string }>();
  const refuse = (tool: string, why: string) => getOrInsert(refused, tool, () => ({ tool, why }));
  const repeated = repeatedIn(definitions.map(({ name }) => name));
  const importable = definitions.filter((definition) => {
    const why = unusableReason(definition, repeated);
    if (why !== undefined) refuse(definition.name, why);
    return why === undefined && (policy.only === undefined || policy.only.includes(definition.name));
  });
  // Names depend on all tools that the server offers, so that importing only some does not rename them.
  const names = new Map(
    toolNames(definitions.map(({ name }) => name)).map((name, index) => [definitions[index]?.name, name]),
  );
  const planned = importable.map((definition): PlannedTool => {
    const existingRecord = imported.get(definition.name);
    // A known tool keeps its name, whatever else the server offers by now.
    const tool = `${namespaceOf(server)}.${existingRecord?.name ?? names.get(definition.name)}`;
    const spec = declarationOf(definition, request, existingRecord?.tier);
    const differs = existingRecord === undefined ? [] : differences(existingRecord, spec);
    return {
      tool,
      spec,
      change: existingRecord === undefined ? 'added' : differs.length > 0 ? 'changed' : 'same',
      differs,
    };
  });
  const tools: PlannedTool[] = [];
  for (const candidate of planned) {
    const why = candidate.change === 'same' ? undefined : await invalidReason(candidate.tool, candidate.spec);
    if (why === undefined) tools.push(candidate);
    else refuse(candidate.tool, why);
  }
  const retained = new Set(tools.map(({ tool }) => tool));
  const gone = existing.map((record) => `${record.namespace}.${record.name}`).filter((tool) => !retained.has(tool));
  const changed = gone.length > 0 || tools.some(({ change }) => change !== 'same');
  return { tools, gone, refused: [...refused.values()], drifted: existing.length > 0 && changed };
}

function unusableReason(definition: McpDefinition, repeated: ReadonlySet<string>): string | undefined {
  if (definition.unusable !== undefined) return definition.unusable;
  if (definition.name.length > 1_024) return 'its name is longer than 1024 characters';
  // Two such names may have one digest, and so one name here.
  if (!definition.name.isWellFormed()) return 'its name holds half a character';
  if (repeated.has(definition.name)) return 'the server offers two tools of this name';
  if (definition.taskSupport === 'required') return 'it answers with a task alone, which is not supported';
  const definitionText = orUndefined(() => definitionDigest(definition));
  return definitionText === undefined ? 'its definition is nested too deep' : undefined;
}

const MAX_DESCRIPTION = 8_000;

function declarationOf(
  definition: McpDefinition,
  { server, version, connection, policy }: McpImport,
  previousTier?: Tier,
) {
  const { name, title, description, inputSchema, outputSchema, annotations = {} } = definition;
  const tier = tierOf(definition, policy, previousTier);
  const { readOnlyHint, destructiveHint, idempotentHint } = annotations;
  const hints = { readOnlyHint, destructiveHint, idempotentHint };
  return {
    kind: 'mcp' as const,
    version: /^\d+\.\d+\.\d+$/.test(version ?? '') ? (version as string) : '1.0.0',
    ...(title === undefined || title === '' ? {} : { title: startOf(title, 256) }),
    description: startOf(description?.trim() || `${name}, a tool of the MCP server ${server}.`, MAX_DESCRIPTION),
    tier,
    effects: effectsOf(tier, definition, policy),
    // `openWorldHint` is left out: a server's answers come from outside in any case.
    annotations: Object.fromEntries(Object.entries(hints).filter(([, hint]) => typeof hint === 'boolean')),
    inputSchema: (isObject(inputSchema) ? inputSchema : {}) as JsonSchema,
    // The root of a result may be of any type; the schema of a declared tool's is an object's.
    ...(isObject(outputSchema) && outputSchema['type'] === 'object' ? { outputSchema } : {}),
    circuit: { dependency: `mcp:${server}` },
    routing: { server, connection, tool: name, digest: definitionDigest(definition) } satisfies McpToolRouting,
  };
}

function differences(existingRecord: DeclaredToolRecord, spec: PlannedTool['spec']): readonly string[] {
  const routing = mcpRoutingSchema.parse(existingRecord.routing) as McpToolRouting;
  const newRouting = spec.routing as McpToolRouting;
  const isSame = (one: unknown, other: unknown) => canonicalJson(plain(one)) === canonicalJson(plain(other));
  return [
    ...(routing.digest === newRouting.digest ? [] : ['definition']),
    ...(isSame(existingRecord.description, spec.description) ? [] : ['description']),
    ...(existingRecord.tier === spec.tier ? [] : [`tier (${existingRecord.tier} → ${spec.tier})`]),
    ...(existingRecord.effects === spec.effects ? [] : [`effects (${existingRecord.effects} → ${spec.effects})`]),
    ...(isSame(routing.connection, newRouting.connection) ? [] : ['connection']),
  ];
}

/** The value without undefined members, as JSON writes it. */
function plain(value: unknown): unknown {
  return value === undefined ? null : (JSON.parse(JSON.stringify(value)) as unknown);
}

const server = (names: readonly string[]) => ({ type: 'string', enum: names, description: 'Name of the MCP server.' });
const cursor = { type: 'string', description: 'Where the next page begins, as the page before said. Needs `server`.' };

/** The tools that read the resources of MCP servers, for all imported servers that have resources. */
export function resourceTools(
  servers: Readonly<Record<string, McpConnectionOptions>>,
): Readonly<Record<string, DeclaredTool & { readonly kind: 'mcp' }>> {
  const names = Object.keys(servers).sort();
  const spec = (
    resources: McpResourceRouting['resources'],
    description: string,
    properties: JsonSchema,
    required: readonly string[] = [],
  ) => ({
    kind: 'mcp' as const,
    version: '1.0.0',
    description,
    // These are the protocol's own reads: an operator who imported the server allows reading from it.
    tier: 'read-only' as const,
    inputSchema: { type: 'object', properties, required, additionalProperties: false },
    // One failing server hides none of the others.
    circuit: { targetParameter: 'server' },
    routing: { resources, servers } satisfies McpResourceRouting,
  });
  return {
    list_mcp_resources: spec(
      'list',
      'Lists the resources that MCP servers offer, such as files or database schemas. Without `server`, those of all servers.',
      { server: server(names), cursor },
    ),
    list_mcp_resource_templates: spec(
      'templates',
      'Lists the templates of resources that MCP servers offer: addresses with parameters. Without `server`, those of all servers.',
      { server: server(names), cursor },
    ),
    read_mcp_resource: spec(
      'read',
      'Reads one resource of an MCP server by its address.',
      {
        server: server(names),
        uri: { type: 'string', minLength: 1, description: 'As the list of resources gives it.' },
      },
      ['server', 'uri'],
    ),
  };
}
