/** Runs declared tools of the kind `mcp`: their calls use this worker's connection to their server. */
import type { DeclaredToolOf } from '../../../shared/connectors/declared-tool.ts';
import type {
  McpConnectionOptions,
  McpResourceRouting,
  McpToolRouting,
} from '../../../shared/connectors/mcp-routing.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { canonicalJson } from '../../../shared/schema/canonical-json.ts';
import type { ToolContext } from '../../../shared/tools/tool-context.ts';
import { getOrInsert } from '../../../shared/util/get-or-insert.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import type { Executable } from '../declared-tools.ts';
import { McpConnection, type McpConnectionDeps } from './connection.ts';
import { resourceTool } from './resources.ts';
import { toolResult } from './results.ts';

/** The connections of one worker: one to each server, however many tools and tiers use it. */
export class McpConnections {
  readonly #deps: McpConnectionDeps;
  readonly #connections = new Map<string, McpConnection>();

  constructor(deps: McpConnectionDeps) {
    this.#deps = deps;
  }

  to(server: string, options: McpConnectionOptions): McpConnection {
    const key = canonicalJson([server, options]);
    return getOrInsert(this.#connections, key, () => new McpConnection(server, options, this.#deps));
  }

  /** The functions of a declared tool of this kind. */
  executable({ routing }: Pick<DeclaredToolOf<'mcp'>, 'routing'>): Executable {
    return 'resources' in routing ? this.#resources(routing) : this.#tool(routing);
  }

  #tool(routing: McpToolRouting): Executable {
    return {
      run: (params, ctx) => {
        const connection = this.to(routing.server, routing.connection);
        return connection.call(routing, ctx.signal, async (client, definition, options) => {
          const result = await client.callTool(
            { name: routing.tool, arguments: params, _meta: metaOf(ctx) },
            {
              ...options,
              onprogress: ({ progress, total, message }) =>
                ctx.progress({
                  progress,
                  ...defined({ total, message }),
                }),
              toolDefinition: { name: definition.name, inputSchema: definition.inputSchema as { type: 'object' } },
            },
          );
          return toolResult(result, isObject(definition.outputSchema));
        });
      },
    };
  }

  #resources({ resources, servers }: McpResourceRouting): Executable {
    return {
      run: (params, ctx) => {
        const connectionTo = (server: string): McpConnection => {
          const options = Object.hasOwn(servers, server) ? servers[server] : undefined;
          if (options === undefined)
            throw new PawlError(
              'INVALID_PARAMS',
              `There is no MCP server ${JSON.stringify(server)} with resources; there is ${Object.keys(servers).join(', ')}.`,
            );
          return this.to(server, options);
        };
        return resourceTool(resources, params, { servers: Object.keys(servers), connectionTo, signal: ctx.signal });
      },
    };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#connections.values()].map((connection) => connection.close()));
    this.#connections.clear();
  }
}

/** Metadata for servers that use it: the call's identity over all its attempts, and its trace context. */
function metaOf(ctx: ToolContext): Record<string, string> {
  const { traceparent } = ctx.trace;
  return { 'pawl/idempotencyKey': ctx.idempotencyKey, ...(traceparent !== undefined && { traceparent }) };
}
