/** `pawl tools import-mcp`: reads an MCP server's tools from this machine, and declares them for the whole fleet. */
import { existsSync } from 'node:fs';
import { basename, isAbsolute, resolve } from 'node:path';
import type { Registry } from '../../producer/tools/registry.ts';
import {
  type DeclaredTool,
  type DeclaredToolOf,
  declaredToolRecord,
  isDeclaredTool,
  parseToolName,
} from '../../shared/connectors/declared-tool.ts';
import {
  type ImportPlan,
  type ImportPolicy,
  namespaceOf,
  planImport,
  resourceTools,
} from '../../shared/connectors/mcp.ts';
import { type McpConnectionOptions, type McpValue, mcpConnectionSchema } from '../../shared/connectors/mcp-routing.ts';
import { PawlError, reasonOf, ToolError } from '../../shared/errors/failure.ts';
import { loadOptional } from '../../shared/errors/optional-packages.ts';
import { TIERS, type Tier } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { McpConnections } from '../../workers/connectors/mcp/tools.ts';
import { type CliContext, printResult, say, usageError } from '../context.ts';
import { withSigningPawl } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { table } from '../print.ts';
import { type SchemaChanges, sayChanged } from './registry.ts';

/** More than a program may take to start. */
const LIST_TIMEOUT_MS = 90_000;

interface McpImportRequest {
  readonly registry: Registry;
  readonly connections: McpConnections;
  readonly server: string;
  /** Default: the connection of the previous import. */
  readonly connection?: McpConnectionOptions | undefined;
  readonly policy: ImportPolicy;
  /** The operator accepts the changes of the server. */
  readonly accept: boolean;
}

export type ImportOutcome = Awaited<ReturnType<typeof importServer>>;

/** Reads a server's tools and declares them. If declared tools differ, `accept` is required. */
export async function importServer(request: McpImportRequest) {
  const { registry, connections, server, policy } = request;
  const existing = (await registry.list()).filter(
    (record): record is DeclaredToolOf<'mcp'> =>
      isDeclaredTool(record) && record.kind === 'mcp' && 'tool' in record.routing && record.routing.server === server,
  );
  const connection = request.connection ?? connectionOf(existing);
  if (connection === undefined)
    throw usageError(`No MCP server ${server} was imported yet: give its address, by -- COMMAND… or --url URL.`);
  const connected = connections.to(server, connection);
  const definitions = await connected.definitions(AbortSignal.timeout(LIST_TIMEOUT_MS));
  const resources = await connected.hasResources();
  const version = await connected.version();
  const plan = await planImport({ server, version, connection, definitions, policy, existing, invalidReason });
  const drifted = plan.drifted && !request.accept;
  const declared: Declared = drifted ? { refused: [], changed: [] } : await declare(registry, plan);
  const refused = [...plan.refused, ...declared.refused];
  if (!drifted) {
    await declareResources(registry, server, resources ? connection : undefined);
  }
  const refusedTools = new Set(refused.map(({ tool }) => tool));
  const tools = plan.tools
    .filter(({ tool }) => !refusedTools.has(tool))
    .map(({ tool, spec: { tier = 'system', effects = 'once' }, change, differs }) => ({
      tool,
      tier,
      effects,
      change,
      differs,
    }));
  /** `drifted`: the server differs from what was accepted, and nothing was changed. */
  const state: 'declared' | 'drifted' = drifted ? 'drifted' : 'declared';
  return { server, state, tools, gone: plan.gone, refused, changed: declared.changed, resources };
}

function connectionOf(declared: readonly DeclaredToolOf<'mcp'>[]): McpConnectionOptions | undefined {
  const routing = declared[0]?.routing;
  return routing !== undefined && 'connection' in routing ? routing.connection : undefined;
}

/** The reason for which a tool cannot be declared, such as an unusable schema. The import leaves it out and reports it. */
async function invalidReason(tool: string, spec: DeclaredTool): Promise<string | undefined> {
  try {
    await declaredToolRecord(spec, { ...parseToolName(tool), revision: 1, updatedAtMs: 0, updatedBy: 'import-mcp' });
    return undefined;
  } catch (error) {
    if (!(error instanceof PawlError) || error.code !== 'CONTRACT_INVALID') throw error;
    return error.message;
  }
}

interface Declared {
  readonly refused: ImportPlan['refused'];
  readonly changed: readonly SchemaChanges[];
}

/** Declares and removes tools. A tool whose name belongs to a worker's own tool is refused, and the others are declared. */
async function declare(registry: Registry, plan: ImportPlan): Promise<Declared> {
  const refused: { tool: string; why: string }[] = [];
  const changed: SchemaChanges[] = [];
  for (const { tool, spec, change } of plan.tools) {
    if (change === 'same') continue;
    try {
      const { changes } = await registry.put(tool, spec, { by: 'import-mcp', imported: true });
      if (changes.length > 0) changed.push({ tool, changes });
    } catch (error) {
      if (!(error instanceof PawlError) || error.code !== 'CONTRACT_INVALID') throw error;
      refused.push({ tool, why: error.message });
    }
  }
  for (const tool of plan.gone) await registry.remove(tool, { by: 'import-mcp' });
  return { refused, changed };
}

/** Declares the tools for resources again, which name all servers that have resources. */
async function declareResources(
  registry: Registry,
  server: string,
  connection: McpConnectionOptions | undefined,
): Promise<void> {
  const existingRecord = await registry.read('list_mcp_resources');
  const existingServers =
    isDeclaredTool(existingRecord) && existingRecord.kind === 'mcp' && 'servers' in existingRecord.routing
      ? existingRecord.routing.servers
      : {};
  const { [server]: _, ...rest } = existingServers;
  const servers = connection === undefined ? rest : { ...rest, [server]: connection };
  if (JSON.stringify(servers) === JSON.stringify(existingServers)) return;
  for (const [tool, spec] of Object.entries(resourceTools(servers))) {
    if (Object.keys(servers).length > 0) await registry.put(tool, spec, { by: 'import-mcp', imported: true });
    else if ((await registry.read(tool)) !== undefined) await registry.remove(tool, { by: 'import-mcp' });
  }
}

interface ImportMcpOptions {
  readonly url?: string;
  readonly header?: readonly string[];
  readonly env?: readonly string[];
  readonly folder?: string;
  readonly network?: boolean;
  readonly tier?: string;
  readonly readOnly?: readonly string[];
  readonly only?: readonly string[];
  readonly trustAnnotations?: boolean;
  readonly accept?: boolean;
}

export async function importMcp(
  context: CliContext,
  server: string,
  command: readonly string[],
  options: ImportMcpOptions,
): Promise<number> {
  const connection = connectionFrom(server, command, options);
  const { createLogger, loadSettings } = await import('../../main.ts');
  const { McpConnections } = await loadOptional('mcpServers', () => import('../../workers/connectors/mcp/tools.ts'));
  const settings = await loadSettings();
  return withSigningPawl(context, async (pawl) => {
    const connections = new McpConnections({
      settings,
      environment: context.environment,
      log: createLogger({ ...settings, logLevel: 'error' }),
    });
    try {
      const outcome = await importServer({
        registry: pawl.registry,
        connections,
        server,
        connection,
        policy: { ...options, tier: tierFrom(options.tier) },
        accept: options.accept ?? false,
      }).catch((error: unknown) => {
        warnAboutRelativePath(context, command);
        if (error instanceof ToolError && error.code === 'MCP_UNAVAILABLE') adviseNetwork(context, command, options);
        throw withoutStack(context, error);
      });
      printResult(context, outcome, summaryOf(outcome));
      for (const { tool, why } of outcome.refused) say(context, `${tool} was left out: ${why}`);
      sayChanged(context, outcome.changed);
      if (outcome.state === 'declared') return EXIT_CODES.success.code;
      const advice = `To accept it: pawl tools import-mcp ${server} --accept`;
      say(context, `${server} differs from what was accepted: nothing was changed. ${advice}`);
      return EXIT_CODES.failed.code;
    } finally {
      await connections.close();
    }
  });
}

/** Warns of relative paths: the program runs in a folder of its own, maybe on another machine, where they do not exist. */
function warnAboutRelativePath(context: CliContext, command: readonly string[]): void {
  const relative = command.find((argument) => !isAbsolute(argument) && existsSync(resolve(context.cwd, argument)));
  if (relative === undefined) return;
  const advice = `write ${resolve(context.cwd, relative)}`;
  say(context, `${relative} leads from this folder, and MCP servers are started in one of their own: ${advice}.`);
}

/** A server that refuses by an HTTP status is no fault of this program. */
function withoutStack(context: CliContext, error: unknown): unknown {
  const { status } = error as { readonly status?: unknown };
  if (typeof status !== 'number') return error;
  if (status === 404 || status === 405)
    say(context, 'Pawl speaks streamable HTTP, whose address often ends in /mcp, and not the older HTTP with SSE.');
  return new ToolError(reasonOf(error), { cause: error });
}

/** Programs that may install a server before they start it. */
const INSTALLERS = /^(?:npx|bunx|pnpx|pnpm|yarn|uvx|uv|pipx|docker)(?:\.cmd|\.exe)?$/;

function adviseNetwork(context: CliContext, [program = '']: readonly string[], { network }: ImportMcpOptions): void {
  const name = basename(program);
  if (network === true || !INSTALLERS.test(name)) return;
  say(context, `${name} has no network to install from: install the server and name its file, or add --network.`);
}

function connectionFrom(
  server: string,
  command: readonly string[],
  { url, header = [], env = [], folder, network }: ImportMcpOptions,
): McpConnectionOptions | undefined {
  if (!/^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/.test(server))
    throw usageError(
      `The server's name must be a letter and up to 63 letters, digits, _ or -; got ${JSON.stringify(server)}.`,
    );
  if (url !== undefined && command.length > 0) throw usageError('Give --url or a command, not both.');
  if (url === undefined && command.length === 0) return undefined;
  const environment = Object.fromEntries(env.map(variable));
  const entries =
    url === undefined
      ? { transport: 'stdio', command, environment, network: network ?? false, ...defined({ folder }) }
      : { transport: 'http', url, headers: Object.fromEntries(header.map(headerFrom)) };
  const parsed = mcpConnectionSchema.safeParse(entries);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  throw usageError(`The server cannot be reached like this: ${faults.join('; ')}.`);
}

/** `NAME=VALUE`, or `NAME` alone for the worker's own variable of that name. */
function variable(text: string): [string, McpValue] {
  const separator = text.indexOf('=');
  return separator === -1 ? [text, { env: text }] : [text.slice(0, separator), text.slice(separator + 1)];
}

/** `Name: value`, or `Name: env:VARIABLE` for the value of the worker's variable. */
function headerFrom(text: string): [string, McpValue] {
  const separator = text.indexOf(':');
  if (separator < 1) throw usageError(`A header is written as "Name: value"; got ${JSON.stringify(text)}.`);
  const value = text.slice(separator + 1).trim();
  return [text.slice(0, separator).trim(), value.startsWith('env:') ? { env: value.slice('env:'.length) } : value];
}

function tierFrom(text: string | undefined): Tier | undefined {
  if (text === undefined || (TIERS as readonly string[]).includes(text)) return text as Tier | undefined;
  throw usageError(`--tier must be one of ${TIERS.join(', ')}; got ${JSON.stringify(text)}.`);
}

function summaryOf({ server, tools, gone, resources }: ImportOutcome): string {
  const rows = [
    ...tools.map(({ tool, tier, effects, change, differs }) => ({
      tool,
      tier,
      effects,
      change: differs.length === 0 ? change : `${change}: ${differs.join(', ')}`,
    })),
    ...gone.map((tool) => ({ tool, tier: '', effects: '', change: 'gone' })),
  ];
  if (rows.length === 0) return `${namespaceOf(server)} offers no tools`;
  const lines = table(rows, [
    { title: 'TOOL', text: ({ tool }) => tool },
    { title: 'TIER', text: ({ tier }) => tier },
    { title: 'EFFECTS', text: ({ effects }) => effects },
    { title: 'CHANGE', text: ({ change }) => change },
  ]);
  return resources
    ? `${lines}\nits resources: list_mcp_resources, list_mcp_resource_templates, read_mcp_resource`
    : lines;
}
