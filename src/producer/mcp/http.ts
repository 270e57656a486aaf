/**
 * `/mcp`: streamable HTTP for both eras on one address. A request of 2026-07-28 stands for itself; a client of 2025-11-25 opens a
 * session, which this process keeps while it is used. A session that is gone is 404, and the client opens another.
 */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import {
  classifyInboundRequest,
  createMcpHandler,
  isInitializeRequest,
  isJsonContentType,
  type McpRequestContext,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import express, { type Request as HttpRequest, type Response as HttpResponse, type RequestHandler } from 'express';
import type { Logger } from '../../shared/telemetry/log.ts';
import { readExactJson } from '../../shared/util/json/exact-json.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { enterAgain } from '../http/core/rate-limit.ts';
import { callerOf, MAX_BODY_BYTES } from '../http/core/route.ts';
import { splitName } from '../http/routes/calls.ts';
import { headerMismatch } from './headers.ts';
import { createMcpServer, type McpServerDeps } from './server.ts';

export interface McpEndpoint {
  /** One for the route, in order. */
  readonly steps: readonly RequestHandler[];
  readonly notify: ReturnType<typeof createMcpHandler>['notify'];
  /** Ends all sessions and streams; the calls go on. */
  close(): Promise<void>;
}

const MAX_SESSIONS = 10_000;
/** How long an answer may be silent before what stands between closes its connection, which would cancel the call. */
const SILENCE_MS = 15_000;
/** Of the specification. */
const HEADER_MISMATCH = -32_020;

interface LegacySession {
  readonly callerId: string;
  readonly server: Server;
  readonly transport: WebStandardStreamableHTTPServerTransport;
}

export function mcpEndpoint(given: McpServerDeps & { readonly log: Logger }): McpEndpoint {
  let closing = false;
  const parts = { ...given, isClosing: () => closing };
  const { pawl, log } = parts;
  const onerror = (error: Error) => log.debug({ event: 'mcp', error: error.message }, 'an MCP request failed');
  const modern = createMcpHandler(
    (context: McpRequestContext) => {
      const caller = callerIn(context);
      return createMcpServer(parts, caller, sessionOf(caller));
    },
    { onerror },
  );
  const sessions = new Map<string, LegacySession>();

  const openSession = async (caller: Caller): Promise<WebStandardStreamableHTTPServerTransport> => {
    const server = createMcpServer(parts, caller, sessionOf(caller));
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => uuidv7(),
      onsessioninitialized: (id) => {
        sessions.set(id, { callerId: caller.id, server, transport });
        const surplus = sessions.size > MAX_SESSIONS ? oldestOfMost(sessions) : undefined;
        if (surplus !== undefined) void endSession(surplus);
      },
      onsessionclosed: (id) => void sessions.delete(id),
    });
    server.onerror = onerror;
    await server.connect(transport);
    return transport;
  };
  const endSession = async (id: string): Promise<void> => {
    const session = sessions.get(id);
    sessions.delete(id);
    await session?.server.close();
  };
  /** The session that the header names, as the one that was used last. Another caller's is as good as none. */
  const sessionNamed = (id: string, caller: Caller): LegacySession | undefined => {
    const session = sessions.get(id);
    if (session === undefined || session.callerId !== caller.id) return undefined;
    sessions.delete(id);
    sessions.set(id, session);
    return session;
  };

  const handle = async (request: HttpRequest, response: HttpResponse): Promise<void> => {
    const caller = callerOf(response);
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const asked = webRequest(request, gone.signal);
    let parsedBody: unknown;
    if (request.method === 'POST') {
      if (!isJsonContentType(asked.headers.get('content-type')))
        return refuse(response, 415, -32_600, 'The body must be JSON: Content-Type: application/json.');
      const read = readExactJson(Buffer.isBuffer(request.body) ? request.body : '');
      if (read.kind === 'problem') return refuse(response, 400, -32_700, `Parse error: the body ${read.problem}.`);
      parsedBody = read.value;
      const lossy = [parsedBody].flat().find(losesArguments);
      if (lossy !== undefined)
        return refuse(response, 400, -32_602, 'Arguments cannot have a member that is called __proto__.', idOf(lossy));
      // A batch, as older clients may send: each of its messages is a request.
      if (Array.isArray(parsedBody)) for (const _message of parsedBody.slice(1)) enterAgain(response);
    }
    const options = { authInfo: authInfoOf(caller), ...(request.method === 'POST' ? { parsedBody } : {}) };
    const sessionId = asked.headers.get('mcp-session-id');
    const route = classifyInboundRequest({
      httpMethod: request.method,
      protocolVersionHeader: asked.headers.get('mcp-protocol-version') ?? undefined,
      mcpMethodHeader: asked.headers.get('mcp-method') ?? undefined,
      ...(parsedBody === undefined ? {} : { body: parsedBody }),
    } as Parameters<typeof classifyInboundRequest>[0]);
    const isLegacy = route.kind === 'legacy' || request.method !== 'POST';
    if (isLegacy && sessionId !== null) {
      const session = sessionNamed(sessionId, caller);
      if (session === undefined) return refuse(response, 404, -32_001, 'Session not found');
      return send(response, await session.transport.handleRequest(asked, options));
    }
    if (isLegacy && isInitializeRequest(parsedBody))
      return send(response, await (await openSession(caller)).handleRequest(asked, options));
    if (route.kind === 'modern' && route.messageKind === 'request') {
      const wrong = await headerMismatch(route.message, asked.headers, (tool) => schemaOf(pawl, tool));
      if (wrong !== undefined)
        return refuse(response, 400, HEADER_MISMATCH, `Headers and body disagree: ${wrong}.`, route.message.id);
    }
    return sendOnceThere(response, modern.fetch(asked, options));
  };

  const stopWatching = pawl.onCatalogueChange(() => {
    modern.notify.toolsChanged();
    for (const { server } of sessions.values()) server.sendToolListChanged().catch(() => {});
  });
  return {
    steps: [express.raw({ type: () => true, limit: MAX_BODY_BYTES }), (request, response) => handle(request, response)],
    notify: modern.notify,
    close: async () => {
      closing = true;
      stopWatching();
      await Promise.all([...sessions.keys()].map(endSession));
      await modern.close();
    },
  };
}

/** The SDK would leave the member out without a word. */
function losesArguments(message: unknown): boolean {
  const { params } = (message ?? {}) as { readonly params?: { readonly arguments?: unknown } | null };
  const given = params?.arguments;
  return typeof given === 'object' && given !== null && Object.hasOwn(given, '__proto__');
}

function idOf(message: unknown): string | number | null {
  const { id } = message as { readonly id?: unknown };
  return typeof id === 'string' || typeof id === 'number' ? id : null;
}

/** Without one of its own, a client's calls are those of its token. */
export function sessionOf({ id }: Pick<Caller, 'id'>): string {
  return `mcp-${id}`;
}

/** Of whoever has the most sessions the one that was left alone for longest: nobody's flood ends those of others. */
export function oldestOfMost(sessions: ReadonlyMap<string, Pick<LegacySession, 'callerId'>>): string | undefined {
  const byCaller = Map.groupBy(sessions, ([, { callerId }]) => callerId);
  const [most] = [...byCaller.values()].sort((one, other) => other.length - one.length);
  return most?.[0]?.[0];
}

function authInfoOf(caller: Caller) {
  return { token: '', clientId: caller.id, scopes: [caller.role], extra: { caller } };
}

function callerIn({ authInfo }: McpRequestContext): Caller {
  return authInfo?.extra?.['caller'] as Caller;
}

function webRequest(request: HttpRequest, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    if (value !== undefined && !name.startsWith(':'))
      headers.set(name, Array.isArray(value) ? value.join(', ') : value);
  // A proxy may send the whole address. Where there is none, no host is made of the header: it may say anything.
  return new Request(new URL(request.originalUrl, 'http://localhost'), {
    method: request.method,
    headers,
    signal,
  });
}

/** Sends an answer. One that takes long becomes a stream, as the client has said that it takes: comments fill the silence. */
export async function sendOnceThere(
  response: HttpResponse,
  answer: Promise<Response>,
  silenceMs = SILENCE_MS,
): Promise<void> {
  const fillSilence = () => {
    if (response.closed) return;
    if (!response.headersSent)
      response.set({ 'Content-Type': 'text/event-stream; charset=utf-8', 'X-Accel-Buffering': 'no' });
    response.write(': still here\n\n');
  };
  const silence = setInterval(fillSilence, silenceMs);
  const there = await answer.finally(() => clearInterval(silence));
  if (!response.headersSent || response.closed) return send(response, there);
  if (there.headers.get('content-type')?.startsWith('text/event-stream') === true) return sendBody(response, there);
  response.end(`event: message\ndata: ${JSON.stringify(await there.json())}\n\n`);
}

async function send(response: HttpResponse, answer: Response): Promise<void> {
  if (response.closed) {
    await answer.body?.cancel();
    return;
  }
  response.status(answer.status);
  for (const [name, value] of answer.headers) response.set(name, value);
  if (answer.body !== null) response.flushHeaders();
  await sendBody(response, answer);
}

async function sendBody(response: HttpResponse, answer: Response): Promise<void> {
  if (answer.body === null) {
    response.end();
    return;
  }
  await pipeline(Readable.fromWeb(answer.body as ReadableStream), response).catch(() => {});
}

function refuse(
  response: HttpResponse,
  status: number,
  code: number,
  message: string,
  id: string | number | null = null,
): void {
  response.status(status).json({ jsonrpc: '2.0', id, error: { code, message } });
}

async function schemaOf(pawl: Pawl, mcpName: string): Promise<unknown> {
  const { namespace, name } = splitName(mcpName);
  return pawl.published(namespace, name)?.inputSchema;
}
