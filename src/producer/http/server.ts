/**
 * The HTTP front door: one server in front of one producer. A request passes, in this order, the headers, the health checks, the
 * authentication and its route. One error handler turns every failure into a response.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Express, type RequestHandler, type Response } from 'express';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { Pawl } from '../client.ts';
import { type McpEndpoint, mcpEndpoint } from '../mcp/http.ts';
import type { McpServerDeps } from '../mcp/server.ts';
import { FleetView } from '../operations/fleet-metrics.ts';
import { checkBinding, checkPermission, createAuthenticator } from './core/access.ts';
import { HttpError } from './core/errors.ts';
import { LongPolls } from './core/long-poll.ts';
import { Backlog, limitRequests, RateLimiter } from './core/rate-limit.ts';
import { type ApiDeps, callerOf, errorHandler, mountRoutes, permissionCheck, refuseMethod } from './core/route.ts';
import { OpenStreams } from './core/stream-response.ts';
import { ROUTES } from './route-table.ts';
import { mountButtons } from './routes/approval-buttons.ts';
import { mountCompletions } from './routes/completions.ts';
import { mountHealth } from './routes/health.ts';
import { mountPage } from './static-page.ts';

export const BOARD_PATH = '/queues';
/** A closing server waits this long for responses that are being written. */
const CLOSE_LIMIT_MS = 5_000;
const HEADERS_LIMIT_MS = 15_000;
/** The limit for receiving a request. Waiting for a call's end has limits of its own. */
const REQUEST_LIMIT_MS = 60_000;
const KEEP_ALIVE_MS = 65_000;

interface HttpServerOptions {
  readonly pawl: Pawl;
  readonly settings: Settings;
  readonly log: Logger;
  /** Default: `settings.httpPort`; 0 takes any free one. */
  readonly port?: number;
  /** Default: `settings.httpHost`. */
  readonly host?: string;
  /** Bull Board, mounted read-only at `/queues`. The caller that opened it closes it. */
  readonly board?: RequestHandler;
  /** The source of `/metrics`. Default: one for this producer. */
  readonly fleet?: FleetView;
  /** Adds an application's own resources and prompts to every MCP server. */
  readonly extendMcp?: McpServerDeps['extend'];
  /** While it answers true, `/readyz` answers 503. */
  readonly isStarting?: () => boolean;
}

export interface HttpServer {
  /** `http://host:port`, without a slash at the end. */
  readonly url: string;
  /** Stops accepting calls, and answers waiting requests with the state of their calls. Other requests are still served. */
  drain(): void;
  /** Drains, finishes running responses, and ends every connection within a few seconds. The calls go on. */
  close(): Promise<void>;
}

/** Starts to listen. Throws `CONFIGURATION` for an address that cannot or, without tokens, must not be used. */
export async function startHttpServer(options: HttpServerOptions): Promise<HttpServer> {
  const { pawl, settings, log } = options;
  const host = options.host ?? settings.httpHost;
  checkBinding(host, settings);
  const fleet = options.fleet ?? new FleetView(pawl);
  const longPolls = new LongPolls();
  const streams = new OpenStreams();
  let draining = false;
  const backlog = new Backlog(settings.http.maxBacklog, () => pawl.calls.backlog());
  const checkAccepting = async () => {
    if (draining) throw new HttpError('BACKEND_UNAVAILABLE', 'This server is closing.');
    await backlog.check();
  };
  const { extendMcp: extend } = options;
  const follow: McpServerDeps['follow'] = (submission) => longPolls.follow(submission);
  const mcp = mcpEndpoint({ pawl, log, checkAccepting, follow, ...(extend !== undefined && { extend }) });
  const openResponses = new Set<Response>();
  const app = createApp(options, {
    longPolls,
    streams,
    mcp,
    fleet,
    openResponses,
    checkAccepting,
    isDraining: () => draining,
  });
  const server = createServer({ requestTimeout: REQUEST_LIMIT_MS, headersTimeout: HEADERS_LIMIT_MS }, app);
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  await listen(server, host, options.port ?? settings.httpPort);
  pawl.takeOverGroups();
  server.on('error', (error) => log.error({ event: 'http_server', error: error.message }, 'the HTTP server failed'));
  const drain = () => {
    draining = true;
    // A connection that is kept alive would delay the server's end.
    for (const response of openResponses) if (!response.headersSent) response.set('Connection', 'close');
    longPolls.close();
    streams.close();
    void mcp.close();
  };
  const stopWatching = pawl.watchRedrives();
  let closing: Promise<void> | undefined;
  return {
    url: urlOf(server, host),
    drain,
    close: () => {
      stopWatching();
      drain();
      closing ??= closeServer(server);
      return closing;
    },
  };
}

interface AppDeps extends Omit<ApiDeps, 'pawl'> {
  readonly mcp: McpEndpoint;
  /** Responses that are not finished. */
  readonly openResponses: Set<Response>;
  isDraining(): boolean;
}

function createApp(options: HttpServerOptions, deps: AppDeps): Express {
  const { pawl, settings, log, board } = options;
  const { longPolls, streams, mcp, fleet, checkAccepting, isDraining } = deps;
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', 'simple');
  app.use(defaultHeaders(deps));
  mountHealth(app, {
    redis: pawl.backend.redis,
    prefix: pawl.settings.prefix,
    isDraining,
    isStarting: options.isStarting ?? (() => false),
  });

  mountPage(app);
  mountButtons(app, pawl);
  const limits = new RateLimiter(settings.http);
  const apiDeps = { pawl, longPolls, streams, fleet, checkAccepting };
  mountCompletions(app, apiDeps, limitRequests(limits));
  const authenticate = createAuthenticator(settings.apiTokens);
  app.use((request, response, next) => {
    const isBrowser = request.path === BOARD_PATH || request.path.startsWith(`${BOARD_PATH}/`);
    response.locals['caller'] = authenticate(request, { browser: isBrowser });
    next();
  });
  app.use(limitRequests(limits));
  const mcpHandlers = [permissionCheck('use'), ...mcp.handlers];
  app
    .route('/mcp')
    .get(mcpHandlers)
    .post(mcpHandlers)
    .delete(mcpHandlers)
    .all(refuseMethod(['POST', 'GET', 'DELETE']));
  mountRoutes(
    app,
    ROUTES.filter(({ isOpen }) => isOpen !== true),
    apiDeps,
  );
  if (board !== undefined) app.use(BOARD_PATH, readOnlyBoard(), board);
  app.use((request) => {
    throw new HttpError('NOT_FOUND', `There is no route ${request.method} ${startOf(request.path, 200)}.`);
  });
  app.use(errorHandler(log));
  return app;
}

/** Responses are data for programs: browsers must not frame, sniff, cache or share them with other origins. */
function defaultHeaders({ openResponses, isDraining }: AppDeps): RequestHandler {
  return (_request, response, next) => {
    response.set({
      'X-Content-Type-Options': 'nosniff',
      'X-Frame-Options': 'DENY',
      'Referrer-Policy': 'no-referrer',
      'Cross-Origin-Resource-Policy': 'same-origin',
      'Cache-Control': 'no-store',
      'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
    });
    if (isDraining()) response.set('Connection', 'close');
    openResponses.add(response);
    response.once('close', () => openResponses.delete(response));
    next();
  };
}

/** Bull Board is read-only here: other methods than GET and HEAD are refused. */
function readOnlyBoard(): RequestHandler {
  const refuseWriting = refuseMethod(['GET', 'HEAD']);
  return (request, response, next) => {
    checkPermission(callerOf(response), 'oversee');
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      refuseWriting(request, response, next);
      return;
    }
    response.removeHeader('Cache-Control');
    response.set(
      'Content-Security-Policy',
      "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; " +
        "base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    );
    next();
  };
}

function listen(server: Server, host: string, port: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fail = (error: NodeJS.ErrnoException) => reject(listenError(error, host, port));
  server.once('error', fail);
  server.listen({ host, port }, () => {
    server.off('error', fail);
    resolve();
  });
  return promise;
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): PawlError {
  const address = `${host} port ${port}`;
  const reason =
    error.code === 'EADDRINUSE'
      ? `${address} is taken already; choose another port (--port, PAWL_HTTP_PORT)`
      : error.code === 'EACCES'
        ? `this user may not listen on ${address}; choose a port above 1023`
        : `it cannot listen on ${address} (${error.code ?? error.message})`;
  return new PawlError('CONFIGURATION', `The HTTP server did not start: ${reason}.`, { cause: error });
}

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo;
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${reachable.includes(':') && !reachable.startsWith('[') ? `[${reachable}]` : reachable}:${port}`;
}

async function closeServer(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const limit = setTimeout(() => server.closeAllConnections(), CLOSE_LIMIT_MS);
  await closed;
  clearTimeout(limit);
}
