/**
 * `ctx.fetch` reaches public addresses only, which prevents server-side request forgery.
 *
 * It is written on node:http(s), because the bundled fetch takes no `lookup`: a name could resolve to one address when
 * it is checked and to another when it is connected. Here the checked address is the connected one. Every redirect is
 * checked again. Each request opens its own connection, so that no connection made under one policy serves another.
 * Proxy variables of the environment are ignored.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { isIP, type LookupFunction } from 'node:net';
import { Readable } from 'node:stream';
import { noteRedirected } from '../../shared/circuits/circuit-key.ts';
import { asToolError, classify } from '../../shared/errors/classify-error.ts';
import { PawlError, reasonOf, statusError } from '../../shared/errors/failure.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import { hostInUrl, hostNamesOf } from '../../shared/util/hosts.ts';
import { onAbort } from '../../shared/util/wait.ts';
import { type SideEffectTracker, trackSideEffect } from '../attempt/side-effects.ts';
import { nonPublicReason } from './public-addresses.ts';
import { decodeBody, withHost } from './response-body.ts';

const DEFAULT_MAX_RESPONSE_BYTES = 16 * 1024 * 1024;

const MAX_REDIRECTS = 5;
const CONNECT_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 60_000;

export type Fetch = (input: string | URL, init?: RequestInit) => Promise<Response>;

/** Resolves a host name to all of its addresses. Fails as `dns.lookup` does. */
type Resolver = (hostname: string) => Promise<readonly LookupAddress[]>;

interface NetworkOptions {
  readonly signal: AbortSignal;
  /** Counts requests that may have had an effect. */
  readonly attempt?: SideEffectTracker;
  /** `host` or `host:port` that may be private. Only the operator's policy sets it, never a caller. */
  readonly allowedHosts?: readonly string[];
  /** Cap on the decompressed body; beyond it reading fails with `RESULT_TOO_LARGE`. */
  readonly maxResponseBytes?: number;
  /** How long the server may be silent. 0 means no limit but the caller's own. Default: 60 s. */
  readonly idleTimeoutMs?: number;
  /** Is called with the reason when a body breaks off, even if nothing reads the body. */
  readonly onBroken?: (error: Error) => void;
  readonly resolve?: Resolver;
}

/**
 * Opens a `fetch` with these differences. It throws `PERMISSION_DENIED` for an address that is not public, follows at
 * most 5 redirects and reads request bodies into memory first. Where a redirect changes the origin, only
 * `isForAnyOrigin` headers are kept. Connection errors are Node's own (`ECONNREFUSED`, `ENOTFOUND`…);
 * `CONNECT_TIMEOUT` comes after 10 s, `UPSTREAM_TIMEOUT` after 60 s of silence. After a redirect of a request that may
 * have an effect, such an error is a `ToolError` that leaves the effect open.
 */
export function openNetwork(options: NetworkOptions): Fetch {
  const { attempt } = options;
  const sendRequest = createSender(options);
  return async (input, init) => {
    const request = newRequest(input, init);
    if (attempt === undefined || onlyReads(request.method)) return sendRequest(request);
    return trackSideEffect(attempt, () => sendRequest(request), wasNotExecuted);
  };
}

/** A server that answers "too many requests" has not executed this one; nor has one that forbids it until a time. */
function wasNotExecuted(response: Response): boolean {
  return !response.redirected && classify(statusError('', response)).nothingHappened;
}

function createSender(options: NetworkOptions): (request: Request) => Promise<Response> {
  return async (request) => {
    const signal = AbortSignal.any([options.signal, request.signal]);
    signal.throwIfAborted();
    const { method, headers } = request;
    const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
    let hop: Hop = { url: new URL(request.url), method, headers, body };
    for (let redirects = 0; ; redirects += 1) {
      const incoming = await send(hop, signal, options).catch((error: unknown) => {
        if (redirects === 0) throw error;
        signal.throwIfAborted();
        throw noteRedirected(redirectedError(error, request), request.url, hop.url.href);
      });
      const location = redirectOf(incoming);
      if (location === undefined || request.redirect === 'manual') {
        const body = bodyReader(incoming, hop, signal, options);
        return toResponse(incoming, body, hop.url, redirects > 0);
      }
      incoming.destroy();
      if (request.redirect === 'error')
        throw answerFault(method, `${hop.url.href} answers with a redirect, which the request does not allow.`);
      if (redirects === MAX_REDIRECTS)
        throw answerFault(method, `${request.url} redirects more than ${MAX_REDIRECTS} times.`);
      const url = URL.parse(location, hop.url.href);
      if (url === null)
        throw answerFault(
          method,
          `${hop.url.href} redirects to ${JSON.stringify(location)}, which is not a URL.`,
          'HTTP_5XX',
        );
      hop = nextHop(hop, url, incoming.statusCode ?? 0);
    }
  };
}

/** A server may execute a request before it redirects it, so a failure after the redirect does not prove that nothing happened. */
function redirectedError(error: unknown, { method, url }: Request): unknown {
  if (onlyReads(method)) return error;
  const { nothingHappened, message } = classify(error);
  const text = `${url} answers with a redirect and may have executed the request; then: ${message}`;
  return nothingHappened ? asToolError(error, false, text) : error;
}

/** The error for an answer that cannot be used. The server may have executed a request that does not only read. */
function answerFault(method: string, message: string, code: FailureCode = 'HTTP_4XX'): Error {
  const error = new PawlError(code, message);
  return onlyReads(method) ? error : asToolError(error, false);
}

function onlyReads(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}

interface Hop {
  readonly url: URL;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Buffer | undefined;
}

function newRequest(input: string | URL, init: RequestInit | undefined): Request {
  try {
    return new Request(input, init);
  } catch (error) {
    throw new PawlError('INVALID_PARAMS', `This is not a usable request: ${reasonOf(error)}`, { cause: error });
  }
}

/** Resolves with the head of the response. */
async function send(hop: Hop, signal: AbortSignal, options: NetworkOptions): Promise<IncomingMessage> {
  const { url, method, body } = hop;
  const lookup = guardedLookup(url, options);
  return new Promise((resolve, reject) => {
    // An import of node:http would load its WebSocket as well, which costs a worker's start 40 ms.
    const { request } = process.getBuiltinModule(url.protocol === 'https:' ? 'node:https' : 'node:http');
    const outgoing = request(url, { method, headers: headersOf(hop), agent: false, lookup, signal });
    let isConnected = false;
    const onConnect = () => {
      isConnected = true;
    };
    limitTimeouts(outgoing, url, options.idleTimeoutMs ?? IDLE_TIMEOUT_MS, onConnect);
    outgoing.once('close', () => {
      // A protocol upgrade closes the request without an error. After a response or an error, this rejection has no
      // effect.
      reject(new PawlError('CONNECTION_RESET', `${url.host} closed the connection without an answer.`));
    });
    outgoing.once('response', (incoming) => {
      // Node takes the end of a connection for that of a body without a length, even where the connection broke.
      outgoing.once('error', (error) => {
        if (!incoming.complete) incoming.destroy(error);
      });
      const status = incoming.statusCode ?? 0;
      if (status >= 200 && status <= 599) return resolve(incoming);
      incoming.destroy();
      reject(answerFault(method, `${url.href} answers with ${status}, which is not an HTTP status.`));
    });
    outgoing.on('error', (error) => {
      const failure: unknown = signal.aborted ? signal.reason : withHost(error, url, 'without an answer');
      const isOwnAbort = signal.aborted && !options.signal.aborted;
      reject(isConnected || isOwnAbort ? failure : notSent(failure, url, options.signal));
    });
    outgoing.end(body);
  });
}

/** The error of a request that ended before its connection was open, TLS included: nothing was sent. */
function notSent(failure: unknown, { host }: URL, callSignal: AbortSignal): unknown {
  const { nothingHappened, message } = classify(failure);
  if (nothingHappened) return failure;
  if (!callSignal.aborted) return new PawlError('UNREACHABLE', message, { cause: failure });
  return new PawlError('CONNECT_TIMEOUT', `The call ended before ${host} had accepted a connection.`, {
    cause: failure,
  });
}

/** Returns a lookup that refuses private addresses. Throws for a URL that is refused without a lookup. */
function guardedLookup(url: URL, options: NetworkOptions): LookupFunction {
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new PawlError('PERMISSION_DENIED', `Only http and https are allowed; got ${url.protocol}//`);
  const hostname = url.hostname.replace(/^\[|\]$/g, '');
  const names = hostNamesOf(url);
  const isAllowedHost = (options.allowedHosts ?? []).some((allowed) => names.includes(hostInUrl(allowed)));
  // Node calls `lookup` for names only, so a literal address is checked here.
  if (!isAllowedHost && isIP(hostname) !== 0) refusePrivate(hostname, hostname);
  // These names mean this host by definition (RFC 6761), whether or not a resolver knows them.
  if (!isAllowedHost && /(^|\.)localhost\.?$/.test(hostname)) refusePrivate(hostname, '127.0.0.1');
  return checkedLookup(options.resolve ?? resolveBySystem, isAllowedHost);
}

function headersOf({ method, headers, body }: Hop): Record<string, string> {
  const length = body?.length ?? (method === 'POST' || method === 'PUT' ? 0 : undefined);
  return {
    'accept-encoding': 'gzip, br',
    // Some services, such as GitHub, refuse requests without a user agent.
    'user-agent': 'Pawl/1',
    ...Object.fromEntries(headers),
    ...(length !== undefined && { 'content-length': String(length) }),
  };
}

/** Ends a request that cannot connect in time, or whose server is silent for too long. */
function limitTimeouts(outgoing: ClientRequest, url: URL, idleTimeoutMs: number, onConnect: () => void): void {
  const connectTimer = setTimeout(() => {
    const message = `${url.host} did not accept a connection within ${CONNECT_TIMEOUT_MS} ms.`;
    outgoing.destroy(new PawlError('CONNECT_TIMEOUT', message));
  }, CONNECT_TIMEOUT_MS);
  outgoing.on('socket', (socket) => {
    socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
      clearTimeout(connectTimer);
      onConnect();
    });
  });
  outgoing.setTimeout(idleTimeoutMs, () => {
    outgoing.destroy(new PawlError('UPSTREAM_TIMEOUT', `${url.host} was silent for ${idleTimeoutMs} ms.`));
  });
  outgoing.once('close', () => clearTimeout(connectTimer));
}

/** One private address refuses the whole name, because any of the addresses could be the one that is connected. */
function checkedLookup(resolve: Resolver, isAllowedHost: boolean): LookupFunction {
  return (hostname, lookupOptions, callback) => {
    resolve(hostname).then(
      (addresses) => {
        const [first] = addresses;
        try {
          if (first === undefined)
            throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' });
          if (!isAllowedHost) for (const { address } of addresses) refusePrivate(hostname, address);
        } catch (error) {
          callback(error as NodeJS.ErrnoException, '');
          return;
        }
        if (lookupOptions.all) callback(null, [...addresses]);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, ''),
    );
  };
}

const resolveBySystem: Resolver = (hostname) =>
  new Promise((resolve, reject) => {
    systemLookup(hostname, { all: true }, (error, addresses) => (error === null ? resolve(addresses) : reject(error)));
  });

function refusePrivate(hostname: string, address: string): void {
  const reason = nonPublicReason(address);
  if (reason === undefined) return;
  const resolved = hostname === address ? '' : `, which is ${address},`;
  throw new PawlError(
    'PERMISSION_DENIED',
    `${hostname}${resolved} may not be reached: ${reason}. Only public addresses may be, unless PAWL_ALLOWED_HOSTS (allowedHosts) names the host.`,
  );
}

function redirectOf(incoming: IncomingMessage): string | undefined {
  const { location } = incoming.headers;
  if (location === undefined || ![301, 302, 303, 307, 308].includes(incoming.statusCode ?? 0)) return undefined;
  // Node decodes header bytes as Latin-1; servers send addresses outside of ASCII in UTF-8.
  return Buffer.from(location, 'latin1').toString('utf8');
}

const FOR_ANY_ORIGIN: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'accept-language',
  'cache-control',
  'content-encoding',
  'content-language',
  'content-length',
  'content-type',
  'pragma',
  'range',
  'user-agent',
]);

/**
 * Whether a header may follow a redirect to another origin. Any other header may be a credential, since services
 * choose their own names.
 */
export function isForAnyOrigin(header: string): boolean {
  return FOR_ANY_ORIGIN.has(header.toLowerCase());
}

function nextHop(hop: Hop, url: URL, status: number): Hop {
  const isSameOrigin = url.origin === hop.url.origin;
  const headers = new Headers([...hop.headers].filter(([name]) => isSameOrigin || isForAnyOrigin(name)));
  const becomesGet = status === 303 ? hop.method !== 'HEAD' : status <= 302 && hop.method === 'POST';
  if (!becomesGet) return { ...hop, url, headers };
  for (const name of ['content-type', 'content-encoding', 'content-language', 'content-location', 'content-length'])
    headers.delete(name);
  return { url, method: 'GET', headers, body: undefined };
}

function toResponse(incoming: IncomingMessage, body: Readable | null, url: URL, redirected: boolean): Response {
  const headers = new Headers();
  for (let index = 0; index + 1 < incoming.rawHeaders.length; index += 2) {
    headers.append(incoming.rawHeaders[index] ?? '', incoming.rawHeaders[index + 1] ?? '');
  }
  const stream = body === null ? null : (Readable.toWeb(body) as ReadableStream<Uint8Array>);
  const status = incoming.statusCode ?? 0;
  const response = new Response(stream, { status, statusText: incoming.statusMessage ?? '', headers });
  return Object.defineProperties(response, { url: { value: url.href }, redirected: { value: redirected } });
}

/** Null for a response without a body. Aborting fails the reader with the signal's reason. */
function bodyReader(
  incoming: IncomingMessage,
  hop: Hop,
  signal: AbortSignal,
  { maxResponseBytes = DEFAULT_MAX_RESPONSE_BYTES, onBroken }: NetworkOptions,
): Readable | null {
  if (hop.method === 'HEAD' || [204, 205, 304].includes(incoming.statusCode ?? 0)) {
    incoming.resume();
    return null;
  }
  const body = decodeBody(incoming, hop.url, maxResponseBytes);
  if (onBroken !== undefined) body.once('error', onBroken);
  const stopListening = onAbort(signal, () => {
    body.destroy(signal.reason instanceof Error ? signal.reason : new PawlError('CANCELLED'));
  });
  body.once('close', stopListening);
  return body;
}
