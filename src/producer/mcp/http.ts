/**
 * `/mcp`: streamable HTTP for both versions of the protocol on one address. A request of 2026-07-28 needs no session. A client of
 * 2025-11-25 opens a session, which this process keeps while it is used. A lost session answers 404, and the client opens another.
 */
import {
  classifyInboundRequest,
  createMcpHandler,
  isInitializeRequest,
  isJsonContentType,
  type McpRequestContext,
} from '@modelcontextprotocol/server';
import express, { type Request as HttpRequest, type Response as HttpResponse, type RequestHandler } from 'express';
import type { Logger } from '../../shared/telemetry/log.ts';
import { splitName } from '../../shared/tools/tool.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { countAnotherRequest } from '../http/core/rate-limit.ts';
import { callerOf, MAX_BODY_BYTES } from '../http/core/route.ts';
import { INVALID_REQUEST, readClientMessage, repeatedIdMessage } from './client-message.ts';
import { headerMismatch } from './headers.ts';
import { LegacySessions } from './legacy-sessions.ts';
import { createMcpServer, type McpServerDeps } from './server.ts';
import { type RpcRefusal, send, sendRpcError, sendWhenReady, webRequest } from './web-response.ts';

export interface McpEndpoint {
  /** The handlers of the route, in order. */
  readonly handlers: readonly RequestHandler[];
  readonly notify: ReturnType<typeof createMcpHandler>['notify'];
  /** Ends all sessions and streams; the calls go on. */
  close(): Promise<void>;
}

/** The code of the specification for headers that differ from the body. */
const HEADER_MISMATCH = -32_020;
const SESSION_NOT_FOUND = -32_001;

interface EndpointDeps {
  readonly pawl: Pawl;
  readonly modern: ReturnType<typeof createMcpHandler>;
  readonly sessions: LegacySessions;
}

export function mcpEndpoint(options: McpServerDeps & { readonly log: Logger }): McpEndpoint {
  const { pawl, log } = options;
  let closing = false;
  const serverDeps = { ...options, isClosing: () => closing };
  const onerror = (error: Error) => log.debug({ event: 'mcp', error: error.message }, 'an MCP request failed');
  const createServer = (caller: Caller) => createMcpServer(serverDeps, caller, sessionOf(caller));
  const createForRequest = ({ authInfo }: McpRequestContext) => createServer(authInfo?.extra?.['caller'] as Caller);
  // The requests of each token are limited already. One limit for all would let a token's subscriptions keep out the others.
  const modern = createMcpHandler(createForRequest, { onerror, maxSubscriptions: Number.POSITIVE_INFINITY });
  const sessions = new LegacySessions((caller) => Object.assign(createServer(caller), { onerror }));
  const deps = { pawl, modern, sessions };
  const stopWatching = pawl.onCatalogueChange(() => {
    modern.notify.toolsChanged();
    sessions.notifyToolsChanged();
  });
  return {
    handlers: [
      express.raw({ type: () => true, limit: MAX_BODY_BYTES }),
      (request, response) => handle(deps, request, response),
    ],
    notify: modern.notify,
    close: async () => {
      closing = true;
      stopWatching();
      await sessions.close();
      await modern.close();
    },
  };
}

async function handle(deps: EndpointDeps, request: HttpRequest, response: HttpResponse): Promise<void> {
  const disconnected = new AbortController();
  response.once('close', () => disconnected.abort());
  const web = webRequest(request, disconnected.signal);
  if (request.method !== 'POST') return dispatch(deps, web, undefined, response);
  const body = readBody(request, web);
  if (body.kind === 'refused') return sendRpcError(response, body);
  // An older client may send a batch: each message after the first counts as a further request.
  if (Array.isArray(body.value)) for (const _message of body.value.slice(1)) countAnotherRequest(response);
  return dispatch(deps, web, body.value, response);
}

type Body = { readonly kind: 'read'; readonly value: unknown } | ({ readonly kind: 'refused' } & RpcRefusal);

function readBody(request: HttpRequest, web: Request): Body {
  if (!isJsonContentType(web.headers.get('content-type'))) {
    const message = 'The body must be JSON: Content-Type: application/json.';
    return { kind: 'refused', status: 415, code: INVALID_REQUEST, message };
  }
  const read = readClientMessage(Buffer.isBuffer(request.body) ? request.body : '');
  return read.kind === 'refused' ? { ...read, status: 400 } : read;
}

/** Gives a request to its session, or to the handler of requests that stand for themselves. */
async function dispatch(
  { pawl, modern, sessions }: EndpointDeps,
  web: Request,
  body: unknown,
  response: HttpResponse,
): Promise<void> {
  const caller = callerOf(response);
  const isPost = web.method === 'POST';
  const authInfo = { token: '', clientId: caller.id, scopes: [caller.role], extra: { caller } };
  const options = { authInfo, ...(isPost ? { parsedBody: body } : {}) };
  const route = classify(web, body);
  if (route.kind === 'legacy' || !isPost) {
    const sessionId = web.headers.get('mcp-session-id');
    if (sessionId !== null) {
      const session = sessions.find(sessionId, caller);
      if (session === undefined)
        return sendRpcError(response, { status: 404, code: SESSION_NOT_FOUND, message: 'Session not found' });
      const repeated = session.openRequests.findOpen(body);
      if (repeated !== undefined) {
        const message = repeatedIdMessage(repeated);
        return sendRpcError(response, { status: 400, code: INVALID_REQUEST, message, id: repeated });
      }
      const handle = () => session.transport.handleRequest(web, options);
      return send(response, await session.openRequests.handle(body, handle));
    }
    if (isInitializeRequest(body))
      return send(response, await (await sessions.open(caller)).handleRequest(web, options));
  }
  if (route.kind === 'modern' && route.messageKind === 'request') {
    const mismatch = await headerMismatch(route.message, web.headers, (tool) => schemaOf(pawl, tool));
    const message = `Headers and body disagree: ${mismatch}.`;
    if (mismatch !== undefined)
      return sendRpcError(response, { status: 400, code: HEADER_MISMATCH, message, id: route.message.id });
  }
  return sendWhenReady(response, modern.fetch(web, options));
}

function classify(web: Request, body: unknown): ReturnType<typeof classifyInboundRequest> {
  return classifyInboundRequest({
    httpMethod: web.method,
    protocolVersionHeader: web.headers.get('mcp-protocol-version') ?? undefined,
    mcpMethodHeader: web.headers.get('mcp-method') ?? undefined,
    ...(body !== undefined && { body }),
  } as Parameters<typeof classifyInboundRequest>[0]);
}

/** The session of a client that names none: one for each token. */
export function sessionOf({ id }: Pick<Caller, 'id'>): string {
  return `mcp-${id}`;
}

async function schemaOf(pawl: Pawl, mcpName: string): Promise<unknown> {
  const { namespace, name } = splitName(mcpName);
  return pawl.published(namespace, name)?.inputSchema;
}
