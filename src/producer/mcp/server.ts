/**
 * One MCP server for one request (2026-07-28) or one connection (2025-11-25), with the same handlers for both versions. Servers keep no
 * state of their own: calls and tasks are in the ledger.
 */
import { type CallToolResult, Server, type ServerContext, type Tool } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { PAWL_VERSION } from '../../shared/store/redis/own-files.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { PendingSubmission } from '../calls/submission.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { callTool } from './calls.ts';
import { toProtocolError } from './errors.ts';
import { clientOf, clientSession, type McpClient, TASKS_EXTENSION, tasksUnsupported } from './request.ts';
import { cancelTask, getTask, updateTask } from './tasks.ts';
import { publishedToolsFor, toMcpTool } from './tools.ts';

export interface McpServerDeps {
  readonly pawl: Pawl;
  /** Adds resources and prompts. Called for every server that is made. */
  readonly extend?: (server: Server) => void;
  /** Throws `HttpError` while the server accepts no calls. */
  readonly checkAccepting?: () => Promise<void>;
  /** True while this server closes: requests that end then do not cancel their calls. */
  readonly isClosing?: () => boolean;
  /** Takes over the calls of requests that were answered before their calls' ends. */
  readonly follow?: (submission: PendingSubmission) => void;
}

const taskSchema = z.looseObject({ taskId: z.string() });
const updateSchema = z.looseObject({
  taskId: z.string(),
  inputResponses: z.record(z.string(), z.unknown()).default({}),
});

/** A server that speaks for one caller; without a session of the client's own, its calls belong to `sessionKey`. */
export function createMcpServer(deps: McpServerDeps, caller: Caller, sessionKey: string): Server {
  const { pawl, extend } = deps;
  const server = new Server(
    { name: 'pawl', version: PAWL_VERSION },
    {
      capabilities: { tools: { listChanged: true }, logging: {}, extensions: { [TASKS_EXTENSION]: {} } },
      instructions:
        'Each call runs once: repeat a call with the same idempotency key (_meta "pawl/idempotencyKey", the header ' +
        'Idempotency-Key or the argument idempotency_key) to get the same result. Elevated tools wait for a person.',
    },
  );
  const handler: HandlerFactory = (handle) => async (params, ctx) => {
    try {
      // A client of 2025-11-25 declared its capabilities in its handshake. Newer clients declare them with each request.
      return await handle(clientOf(ctx, caller, sessionKey, server.getClientCapabilities()), params, ctx);
    } catch (error) {
      throw toProtocolError(error);
    }
  };
  serveTools(server, deps, handler);
  serveTasks(server, pawl, handler);
  // The HTTP endpoint notifies its clients itself.
  if (caller.id === 'stdio')
    server.onclose = pawl.onCatalogueChange(() => void server.sendToolListChanged().catch(() => {}));
  extend?.(server);
  return server;
}

/** Makes a handler of the SDK: it describes the client of a request, and turns every failure into an error of the protocol. */
type HandlerFactory = <Params, Reply>(
  handle: (client: McpClient, params: Params, ctx: ServerContext) => Promise<Reply>,
) => (params: Params, ctx: ServerContext) => Promise<Reply>;

function serveTools(
  server: Server,
  { pawl, checkAccepting, isClosing = () => false, follow }: McpServerDeps,
  handler: HandlerFactory,
): void {
  server.setRequestHandler(
    'tools/list',
    handler(async (client, _request, ctx) => {
      const session = await clientSession(pawl, client);
      const tools = await publishedToolsFor(pawl, session.key);
      const mcpTools = tools.map((tool) => toMcpTool(tool, ctx.mcpReq.envelope !== undefined));
      // The SDK's type allows some shapes of schema only. The schemas were checked when the tools were defined.
      return { tools: mcpTools as readonly object[] as Tool[] };
    }),
  );
  server.setRequestHandler(
    'tools/call',
    handler(async (client, { params }, ctx) => {
      await checkAccepting?.();
      // A task or a question may replace the result, which the SDK's type does not know.
      return (await callTool(pawl, client, params, { ctx, isClosing, ...defined({ follow }) })) as CallToolResult;
    }),
  );
}

function serveTasks(server: Server, pawl: Pawl, handler: HandlerFactory): void {
  const task = <Params extends { readonly taskId: string }>(
    handle: (client: McpClient, params: Params) => Promise<object>,
  ) =>
    handler(async (client, params: Params) => {
      if (!client.supportsTasks) throw tasksUnsupported();
      return (await handle(client, params)) as Record<string, unknown>;
    });
  server.setRequestHandler(
    'tasks/get',
    { params: taskSchema },
    task((client, { taskId }) => getTask(pawl, client, taskId)),
  );
  server.setRequestHandler('tasks/update', { params: updateSchema }, (params, ctx) =>
    // The SDK lifts the responses out of the parameters, as for every method that takes some.
    task((client) =>
      updateTask(pawl, client, {
        taskId: params.taskId,
        inputResponses: { ...params.inputResponses, ...ctx.mcpReq.inputResponses },
      }),
    )(params, ctx),
  );
  server.setRequestHandler(
    'tasks/cancel',
    { params: taskSchema },
    task((client, { taskId }) => cancelTask(pawl, client, taskId)),
  );
}
