/**
 * One MCP server for one request (2026-07-28) or one connection (2025-11-25), with the same handlers for both versions. Servers keep no
 * state of their own: calls and tasks are in the ledger.
 */
import {
  type CallToolResult,
  type ClientCapabilities,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
  type ServerContext,
  type Tool,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import { backendError } from '../../shared/store/redis/backend-error.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { HttpError } from '../http/core/errors.ts';
import { callTool } from './calls.ts';
import { clientOf, clientSession, type McpClient, TASKS_EXTENSION } from './request.ts';
import { cancelTask, getTask, updateTask } from './tasks.ts';
import { publishedToolsFor, toMcpTool } from './tools.ts';

export interface McpServerDeps {
  readonly pawl: Pawl;
  readonly version: string;
  /** Adds resources and prompts. Called for every server that is made. */
  readonly extend?: (server: Server) => void;
  /** Throws `HttpError` while the server accepts no calls. */
  readonly checkAccepting?: () => Promise<void>;
  /** True while this server closes: requests that end then do not cancel their calls. */
  readonly isClosing?: () => boolean;
}

/** Codes of JSON-RPC. */
const INVALID_PARAMS = -32_602;
const INTERNAL_ERROR = -32_603;

const taskSchema = z.looseObject({ taskId: z.string() });
const updateSchema = z.looseObject({
  taskId: z.string(),
  inputResponses: z.record(z.string(), z.unknown()).default({}),
});

/** A server that speaks for one caller; without a session of the client's own, its calls belong to `sessionKey`. */
export function createMcpServer(deps: McpServerDeps, caller: Caller, sessionKey: string): Server {
  const { pawl, version, extend } = deps;
  const server = new Server(
    { name: 'pawl', version },
    {
      capabilities: { tools: { listChanged: true }, logging: {}, extensions: { [TASKS_EXTENSION]: {} } },
      instructions:
        'Each call runs once: repeat a call with the same idempotency key (_meta "pawl/idempotencyKey", the header ' +
        'Idempotency-Key or the argument idempotency_key) to get the same result. Elevated tools wait for a person.',
    },
  );
  const handler: HandlerFactory = (handle) => async (params, ctx) => {
    try {
      return await handle(clientOf(ctx, caller, sessionKey, handshakeCapabilities(server)), params, ctx);
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
  { pawl, checkAccepting, isClosing = () => false }: McpServerDeps,
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
      return (await callTool(pawl, client, params, { ctx, isClosing })) as CallToolResult;
    }),
  );
}

function serveTasks(server: Server, pawl: Pawl, handler: HandlerFactory): void {
  const task = <Params extends { readonly taskId: string }>(
    handle: (client: McpClient, params: Params) => Promise<object>,
  ) =>
    handler(async (client, params: Params) => {
      if (!client.supportsTasks)
        throw new MissingRequiredClientCapabilityError({
          requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } },
        });
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

/** The capabilities that a client of 2025-11-25 declared in its handshake. Newer clients declare them with each request. */
function handshakeCapabilities(server: Server): ClientCapabilities | undefined {
  return server.getClientCapabilities();
}

/** A typed refusal is passed on as it is; a defect is reported without its message. */
function toProtocolError(thrown: unknown): unknown {
  if (thrown instanceof ProtocolError) return thrown;
  if (thrown instanceof HttpError) return new ProtocolError(INTERNAL_ERROR, thrown.message, { code: thrown.code });
  const error = backendError(thrown);
  if (!(error instanceof PawlError))
    return new ProtocolError(INTERNAL_ERROR, 'Internal error: see the log of this server.');
  const { code, message } = error;
  const isClientError = code === 'CONTRACT_INVALID' || code === 'PERMISSION_DENIED' || code === 'SESSION_CLOSED';
  const text = code === 'BACKEND_UNAVAILABLE' ? 'The queue cannot be reached.' : message;
  return new ProtocolError(isClientError ? INVALID_PARAMS : INTERNAL_ERROR, text, { code });
}
