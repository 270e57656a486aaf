/**
 * One MCP server for one request (2026-07-28) or one connection (2025-11-25): the same handlers serve both eras. All that lasts is
 * in the ledger, so that servers come and go.
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
import { clientOf, type McpClient, sessionFor, TASKS_EXTENSION } from './request.ts';
import { cancelTask, getTask, updateTask } from './tasks.ts';
import { publishedToolsFor, toolView } from './tools.ts';

export interface McpServerDeps {
  readonly pawl: Pawl;
  readonly version: string;
  /** Adds what is not a tool: resources, prompts. Called for every server that is made. */
  readonly extend?: (server: Server) => void;
  /** Throws `HttpError` while no further call is taken. */
  readonly checkAccepting?: () => Promise<void>;
  /** While it answers true, requests end because this server does: their calls go on. */
  readonly isClosing?: () => boolean;
}

/** Of JSON-RPC. */
const INVALID_PARAMS = -32_602;
const INTERNAL_ERROR = -32_603;

const taskSchema = z.looseObject({ taskId: z.string() });
const updateSchema = z.looseObject({
  taskId: z.string(),
  inputResponses: z.record(z.string(), z.unknown()).default({}),
});

/** A server that speaks for one caller; without a session of the client's own, its calls belong to `sessionKey`. */
export function createMcpServer(
  { pawl, version, extend, checkAccepting, isClosing = () => false }: McpServerDeps,
  caller: Caller,
  sessionKey: string,
): Server {
  const server = new Server(
    { name: 'pawl', version },
    {
      capabilities: { tools: { listChanged: true }, logging: {}, extensions: { [TASKS_EXTENSION]: {} } },
      instructions:
        'Each call runs once: repeat a call with the same idempotency key (_meta "pawl/idempotencyKey", the header ' +
        'Idempotency-Key or the argument idempotency_key) to get the same result. Elevated tools wait for a person.',
    },
  );
  /** The client as it shows itself in this request, and one place that turns failures into errors of the protocol. */
  const serve =
    <Asked, Answer>(handle: (client: McpClient, asked: Asked, ctx: ServerContext) => Promise<Answer>) =>
    async (asked: Asked, ctx: ServerContext): Promise<Answer> => {
      try {
        return await handle(clientOf(ctx, caller, sessionKey, initialized(server)), asked, ctx);
      } catch (error) {
        throw protocolError(error);
      }
    };
  server.setRequestHandler(
    'tools/list',
    serve(async (client, _asked, ctx) => {
      const session = await sessionFor(pawl, client);
      // The schemas are JSON Schema of any shape, checked when the tool was defined: the protocol's type knows some shapes only.
      return {
        tools: (await publishedToolsFor(pawl, session.key)).map((published) =>
          toolView(published, ctx.mcpReq.envelope !== undefined),
        ) as readonly object[] as Tool[],
      };
    }),
  );
  server.setRequestHandler(
    'tools/call',
    // A task or a question may stand in place of a result, which the method's type does not know.
    serve(async (client, { params }, ctx) => {
      await checkAccepting?.();
      return (await callTool(pawl, client, params, ctx, isClosing)) as CallToolResult;
    }),
  );
  const task = <Asked extends { readonly taskId: string }>(
    handle: (client: McpClient, asked: Asked) => Promise<object>,
  ) =>
    serve(async (client, asked: Asked) => {
      if (!client.takesTasks)
        throw new MissingRequiredClientCapabilityError({
          requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } },
        });
      return (await handle(client, asked)) as Record<string, unknown>;
    });
  server.setRequestHandler(
    'tasks/get',
    { params: taskSchema },
    task((client, { taskId }) => getTask(pawl, client, taskId)),
  );
  server.setRequestHandler('tasks/update', { params: updateSchema }, (asked, ctx) =>
    // The responses are lifted out of the parameters, as those of every method that takes some.
    task((client) =>
      updateTask(pawl, client, {
        taskId: asked.taskId,
        inputResponses: { ...asked.inputResponses, ...ctx.mcpReq.inputResponses },
      }),
    )(asked, ctx),
  );
  server.setRequestHandler(
    'tasks/cancel',
    { params: taskSchema },
    task((client, { taskId }) => cancelTask(pawl, client, taskId)),
  );
  // Over HTTP it is the endpoint that tells all its clients.
  if (caller.id === 'stdio')
    server.onclose = pawl.onCatalogueChange(() => void server.sendToolListChanged().catch(() => {}));
  extend?.(server);
  return server;
}

/** Of a client of 2025-11-25, from its handshake; others say it with each request. */
function initialized(server: Server): ClientCapabilities | undefined {
  return server.getClientCapabilities();
}

/** What the client may hear: a typed refusal as it is, a defect as no more than that. */
function protocolError(thrown: unknown): unknown {
  if (thrown instanceof ProtocolError) return thrown;
  if (thrown instanceof HttpError) return new ProtocolError(INTERNAL_ERROR, thrown.message, { code: thrown.code });
  const error = backendError(thrown);
  if (!(error instanceof PawlError)) return new ProtocolError(INTERNAL_ERROR, 'Something in this server is broken.');
  const { code, message } = error;
  const isRequest = code === 'CONTRACT_INVALID' || code === 'PERMISSION_DENIED' || code === 'SESSION_CLOSED';
  const text = code === 'BACKEND_UNAVAILABLE' ? 'The queue cannot be reached.' : message;
  return new ProtocolError(isRequest ? INVALID_PARAMS : INTERNAL_ERROR, text, { code });
}
