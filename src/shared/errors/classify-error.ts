/** Classification: any thrown value becomes a failure of the catalogue. */

import { orUndefined } from '../util/or-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';
import { escapeLine } from '../util/text/visible-text.ts';
import { systemClock } from '../util/time.ts';
import { clip, type Failure, failureOf, type Issue, PawlError, ToolError, toolErrorBrand } from './failure.ts';
import { FAILURES, type FailureCode } from './failure-codes.ts';

/** A tool's or an operator's own lists of codes. They win over the catalogue. */
export interface ClassificationOverrides {
  readonly retriableCodes?: readonly string[];
  readonly terminalCodes?: readonly string[];
}

const MAX_CODE_LENGTH = 100;
/** A call with this code waits for an operator. Workers alone find a call to be poison; a tool may pass on the error of another call. */
const QUARANTINED: FailureCode = 'POISONED';

const NODE_CODES: Readonly<Record<string, FailureCode>> = {
  ECONNREFUSED: 'CONNECTION_REFUSED',
  ENOTFOUND: 'DNS_FAILED',
  EAI_AGAIN: 'DNS_FAILED',
  EHOSTUNREACH: 'UNREACHABLE',
  ENETUNREACH: 'UNREACHABLE',
  EHOSTDOWN: 'UNREACHABLE',
  CERT_HAS_EXPIRED: 'UNREACHABLE',
  CERT_NOT_YET_VALID: 'UNREACHABLE',
  CERT_REVOKED: 'UNREACHABLE',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'UNREACHABLE',
  SELF_SIGNED_CERT_IN_CHAIN: 'UNREACHABLE',
  UNABLE_TO_GET_ISSUER_CERT: 'UNREACHABLE',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'UNREACHABLE',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'UNREACHABLE',
  ERR_TLS_CERT_ALTNAME_INVALID: 'UNREACHABLE',
  ECONNRESET: 'CONNECTION_RESET',
  ECONNABORTED: 'CONNECTION_RESET',
  EPIPE: 'CONNECTION_RESET',
  ETIMEDOUT: 'UPSTREAM_TIMEOUT',
  ESOCKETTIMEDOUT: 'UPSTREAM_TIMEOUT',
  UND_ERR_CONNECT_TIMEOUT: 'CONNECT_TIMEOUT',
  UND_ERR_HEADERS_TIMEOUT: 'UPSTREAM_TIMEOUT',
  UND_ERR_BODY_TIMEOUT: 'UPSTREAM_TIMEOUT',
  UND_ERR_SOCKET: 'CONNECTION_RESET',
  UND_ERR_CLOSED: 'CONNECTION_RESET',
  UND_ERR_DESTROYED: 'CONNECTION_RESET',
  ERR_STREAM_PREMATURE_CLOSE: 'CONNECTION_RESET',
  EPROTO: 'CONNECTION_RESET',
  ERR_HTTP2_SESSION_ERROR: 'CONNECTION_RESET',
  ERR_HTTP2_STREAM_CANCEL: 'CONNECTION_RESET',
  ERR_HTTP2_STREAM_ERROR: 'CONNECTION_RESET',
  UND_ERR_HEADERS_OVERFLOW: 'RESULT_INVALID',
};
/** The calls to the system that fail on an open connection, which may have carried the request: `read EHOSTUNREACH`. */
const OPEN_CONNECTION: readonly unknown[] = ['read', 'write'];
/** Codes of an answer that is not HTTP, or does not fit its own head: of Node's parser, and of undici. */
const UNREADABLE_ANSWER = /^(?:HPE_|UND_ERR_RES_)/;
/** Codes of a TLS connection that breaks, by OpenSSL's own names. */
const BROKEN_TLS = /^ERR_SSL_/;
/** Node's message for a connection that ended before it was secure, so that no request was sent. */
const NEVER_SECURE = /before secure TLS connection was established$/;
/** The message of `fetch` for an answer that broke off after its head, for any reason. */
const BROKEN_OFF = 'terminated';

/**
 * Turns anything that a tool can throw, an Error, a string, `undefined`, into a failure.
 * Pawl's and the tool's own errors come first, then an HTTP status, then the codes of Node and undici along the cause chain.
 */
export function classify(thrown: unknown, overrides: ClassificationOverrides = {}): Failure {
  let failure: Failure;
  try {
    failure = classifyByKind(thrown);
  } catch {
    // A proxy's trap or a getter threw while the value was read, so the value itself gives no reason.
    failure = failureOf('TOOL_FAILED');
  }
  if (overrides.terminalCodes?.includes(failure.code)) return withoutRetry(failure);
  if (overrides.retriableCodes?.includes(failure.code)) return { ...failure, retriable: true };
  return failure;
}

/** A failure that an operator or a tool does not want to retry may have come after the effect all the same. */
function withoutRetry(failure: Failure): Failure {
  const { retriable, nothingHappened } = failure;
  return { ...failure, retriable: false, ...(retriable && !nothingHappened && { afterEffect: true }) };
}

function classifyByKind(thrown: unknown): Failure {
  if (thrown instanceof PawlError && Object.hasOwn(FAILURES, thrown.code) && thrown.code !== QUARANTINED)
    return failureOf(thrown.code, thrown.message, issuesOf(thrown.issues));
  if (isToolError(thrown)) return fromToolError(thrown);
  const message = messageOf(thrown);
  const text = retryAfterOf(thrown);
  for (const error of causeChain(thrown)) {
    // The thrown value's own delay wins over that of its cause.
    const retryAfterMs = text ?? retryAfterOf(error);
    const extra = retryAfterMs === undefined ? {} : { retryAfterMs };
    const status = httpStatusOf(error);
    if (status !== undefined) return fromHttpStatus(status, message, extra);
    const catalogued = codeOfNode(error);
    if (catalogued !== undefined) return failureOf(catalogued, message, extra);
    if (field(error, 'name') === 'TimeoutError') return failureOf('UPSTREAM_TIMEOUT', message, extra);
  }
  const delay = text === undefined ? {} : { retryAfterMs: text };
  if (thrown instanceof TypeError && thrown.message === BROKEN_OFF) return failureOf('RESULT_INVALID', message, delay);
  // A request that the tool itself gave up may have reached the service.
  const isGivenUp = [...causeChain(thrown)].some((error) => GIVEN_UP.has(String(field(error, 'name'))));
  return failureOf(isGivenUp ? 'UPSTREAM_TIMEOUT' : 'TOOL_FAILED', message, delay);
}

function codeOfNode(error: object): FailureCode | undefined {
  const code = field(error, 'code');
  if (typeof code !== 'string') return undefined;
  const known = Object.hasOwn(NODE_CODES, code) ? NODE_CODES[code] : undefined;
  if (known === undefined && BROKEN_TLS.test(code)) return 'CONNECTION_RESET';
  if (known === undefined) return UNREADABLE_ANSWER.test(code) ? 'RESULT_INVALID' : undefined;
  if (known === 'CONNECTION_RESET' && NEVER_SECURE.test(String(field(error, 'message')))) return 'UNREACHABLE';
  const wasOpen = FAILURES[known].nothingHappened && OPEN_CONNECTION.includes(field(error, 'syscall'));
  return wasOpen ? 'CONNECTION_RESET' : known;
}

/** The names of errors that end a request whose signal was aborted: `fetch` and most libraries, and axios. */
const GIVEN_UP: ReadonlySet<string> = new Set(['AbortError', 'CanceledError']);

function issuesOf(issues: unknown): { readonly issues?: readonly Issue[] } {
  if (!Array.isArray(issues)) return {};
  const isText = (value: unknown) => typeof value === 'string';
  const valid = issues.filter((issue) => isText(issue?.path) && isText(issue.message));
  return { issues: valid.map(({ path, message }) => ({ path, message })) };
}

/** Authors without types may give members of any type; records of results hold only those of the right one. */
function fromToolError(error: ToolError): Failure {
  const given: unknown = error.code;
  // Tools pass on the codes of services. People read a code within a line.
  const isGiven = typeof given === 'string' && given !== '' && given !== QUARANTINED;
  const code = isGiven ? startOf(escapeLine(clip(given)), MAX_CODE_LENGTH) : 'TOOL_FAILED';
  const catalogued = Object.hasOwn(FAILURES, code) ? FAILURES[code as FailureCode] : undefined;
  const retriable = error.retriable === true;
  return {
    code,
    class: catalogued?.class ?? 'tool',
    retriable,
    nothingHappened: error.nothingHappened === true,
    againstCircuit: catalogued?.againstCircuit ?? retriable,
    message: clip(error.message),
    ...(isDelay(error.retryAfterMs) ? { retryAfterMs: error.retryAfterMs } : {}),
    ...(field(error, 'afterEffect') === true ? { afterEffect: true } : {}),
  };
}

/** Statuses outside the catalogue keep their own number in the code and take their family's properties. */
function fromHttpStatus(status: number, message: string, extra: { retryAfterMs?: number }): Failure {
  const exact = `HTTP_${status}`;
  // GitHub reports rate limits as a 403 with a delay.
  if (status === 403 && extra.retryAfterMs !== undefined)
    return { ...failureOf('HTTP_429', message, extra), code: exact };
  if (Object.hasOwn(FAILURES, exact)) return failureOf(exact as FailureCode, message, extra);
  if (status < 500) return { ...failureOf('HTTP_4XX', message, extra), code: exact };
  // Proxies have statuses of their own for a service that executed the request and did not answer in time, such as 524.
  return { ...failureOf('HTTP_5XX', message, extra), code: exact, afterEffect: true };
}

function* causeChain(thrown: unknown): Generator<object> {
  const pending: unknown[] = [thrown];
  for (let seen = 0; pending.length > 0 && seen < 16; seen += 1) {
    const error = pending.shift();
    if (typeof error !== 'object' || error === null) continue;
    yield error;
    pending.push(field(error, 'cause'));
    const innerErrors = field(error, 'errors');
    if (Array.isArray(innerErrors)) pending.push(...innerErrors.slice(0, 4));
  }
}

function httpStatusOf(error: object): number | undefined {
  const response = field(error, 'response');
  const candidates = [error, ...(typeof response === 'object' && response !== null ? [response] : [])].flatMap(
    (each) => [field(each, 'status'), field(each, 'statusCode')],
  );
  return candidates.find((status): status is number => typeof status === 'number' && status >= 400 && status <= 599);
}

/**
 * The delay in milliseconds: `retryAfterMs` itself, a Retry-After header in seconds or as a date, or the time until a rate limit
 * that is used up resets.
 */
function retryAfterOf(thrown: unknown): number | undefined {
  if (typeof thrown !== 'object' || thrown === null) return undefined;
  const text = field(thrown, 'retryAfterMs');
  if (isDelay(text)) return text;
  const response = field(thrown, 'response');
  const sources = [
    field(thrown, 'headers'),
    typeof response === 'object' && response !== null ? field(response, 'headers') : undefined,
  ];
  const readHeader = (name: string) =>
    sources.map((headers) => headerOf(headers, name)).find((value) => value !== undefined);
  const header = readHeader('Retry-After');
  // A time is one of the service's clock, from which this machine's may differ.
  const servedAtMs = Date.parse(readHeader('Date') ?? '');
  const nowMs = Number.isNaN(servedAtMs) ? systemClock.now() : servedAtMs;
  if (header === undefined)
    return readHeader('X-RateLimit-Remaining') === '0'
      ? resetDelayOf(readHeader('X-RateLimit-Reset'), nowMs)
      : undefined;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1_000);
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}

/** No standard says what the number is: services give seconds from now, or the time in seconds or in milliseconds since 1970. */
function resetDelayOf(header: string | undefined, nowMs: number): number | undefined {
  const value = header === undefined ? Number.NaN : Number(header);
  if (!Number.isFinite(value)) return undefined;
  if (value < 1e8) return Math.max(0, value * 1_000);
  return Math.max(0, (value < 1e11 ? value * 1_000 : value) - nowMs);
}

function isDelay(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value < Number.POSITIVE_INFINITY;
}

function headerOf(headers: unknown, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  if (typeof headers !== 'object' || headers === null) return undefined;
  const value = field(headers, name.toLowerCase()) ?? field(headers, name);
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}

/** The thrown value as a `ToolError`. The caller knows better than the error's class whether something may have happened. */
export function asToolError(thrown: unknown, nothingHappened: boolean, message?: string): ToolError {
  const { code, retriable, retryAfterMs, ...failure } = classify(thrown);
  const error = new ToolError(message ?? failure.message, {
    code,
    retriable,
    nothingHappened,
    cause: thrown,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
  return nothingHappened ? error : Object.assign(error, { afterEffect: true });
}

/** Whether the tool itself gives the reason. The thrown value may be a revoked proxy, on which `in` throws. */
export function isToolError(thrown: unknown): thrown is ToolError {
  return typeof thrown === 'object' && thrown !== null && orUndefined(() => toolErrorBrand in thrown) === true;
}

/** The stack for the log, or the value as text where it has none. Never throws. */
export function stackOf(thrown: unknown): string {
  const text = orUndefined(() => (thrown instanceof Error ? thrown.stack : undefined) ?? String(thrown));
  return text ?? 'something that cannot be shown';
}

function messageOf(thrown: unknown): string {
  const text = textOf(thrown);
  if (text !== '') return text;
  if (typeof thrown === 'string' && thrown !== '') return thrown;
  if (typeof thrown === 'object' && thrown !== null) {
    const message = field(thrown, 'message');
    if (typeof message === 'string' && message !== '') return message;
  }
  return FAILURES.TOOL_FAILED.sentence;
}

/** The message of an error, followed by that of its cause. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return '';
  const { message, cause } = error;
  const causeText = cause instanceof Error ? cause.message || innerMessages(cause) : innerMessages(error);
  return [message, causeText].filter((text) => text !== '').join(': ');
}

/** Node's error for a host with several addresses has no message of its own, only one error for each address. */
function innerMessages(error: Error): string {
  const innerErrors = field(error, 'errors');
  if (!Array.isArray(innerErrors)) return '';
  const texts = innerErrors.slice(0, 4).map((each) => (each instanceof Error ? each.message : ''));
  return texts.filter((text) => text !== '').join('; ');
}

/** A property, or undefined where reading it throws: thrown values can be proxies or have getters. */
function field(value: object, name: string): unknown {
  return orUndefined(() => (value as Record<string, unknown>)[name]);
}
