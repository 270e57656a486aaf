/** Translates the failures of MCP servers into Pawl's error codes. */
import {
  ProtocolError,
  ProtocolErrorCode,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type Transport,
} from '@modelcontextprotocol/client';
import { noteSharedFault } from '../../../shared/circuits/shared-fault.ts';
import { PawlError, reasonOf, ToolError } from '../../../shared/errors/failure.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';

/**
 * Returns faults of the declaration or of policy unchanged, because no retry corrects them. `hasSession`: the server has opened a session,
 * so one that refuses it has restarted since.
 */
export function connectFailure(error: unknown, server: string): Error {
  const { hasSession } = error as { readonly hasSession?: boolean };
  for (const cause of causesOf(error)) {
    if (cause instanceof PawlError && cause.code !== 'MCP_PROTOCOL' && cause.code !== 'RESULT_TOO_LARGE') return cause;
    if (!SdkHttpError.isInstance(cause)) continue;
    const { status, message } = cause;
    if (hasSession === true && (status === 404 || saysSessionIsLost(message))) break;
    if (status >= 400 && status < 500 && status !== 429)
      return withStatus(
        status,
        `The MCP server ${server} refuses the connection (HTTP ${status}): ${plainText(message)}`,
      );
  }
  return serverUnavailable(`The MCP server ${server} cannot be reached: ${withoutJson(reasonOf(error))}`, {
    cause: error,
  });
}

const QUOTED_LENGTH = 500;

/** A proxy or a framework may answer with a page. */
function plainText(message: string): string {
  const text = message.replaceAll(/<[^<>]*>/g, ' ').replaceAll(/\s+/g, ' ');
  return startOf(text.trim(), QUOTED_LENGTH);
}

interface RequestFailure {
  readonly failure: Error;
  /** The connection can no longer be used. */
  readonly isClosed: boolean;
  /** The server does not know the session, and has not executed the request. */
  readonly isUnknownSession?: true;
}

interface Broken {
  /** The server's fault that ended the connection. */
  readonly fault: Error | undefined;
  readonly transport: Pick<Transport, 'sessionId'>;
  readonly hasAnswered: boolean;
}

export function requestFailure(error: unknown, open: Broken, server: string): RequestFailure {
  const { fault, transport } = open;
  if (error instanceof ToolError && error.nothingHappened) return { failure: error, isClosed: fault !== undefined };
  if (fault !== undefined) return { failure: noteSharedFault(fault), isClosed: true };
  const keepOpen = (failure: Error): RequestFailure => ({ failure, isClosed: false });
  if (error instanceof PawlError || error instanceof ToolError) return keepOpen(error);
  if (ProtocolError.isInstance(error)) {
    // A server's message cannot hold an Error object; the transport put it there because its stream broke.
    if (error.data instanceof Error) return keepOpen(error.data);
    const message = withData(error.message, error.data);
    if (transport.sessionId !== undefined && saysSessionIsUnknown(error.code, message)) return sessionLost(server);
    if (transport.sessionId !== undefined && open.hasAnswered && REFUSED_CODES.includes(error.code)) {
      if (BARE_SESSION_FAULT.test(error.message)) return sessionLost(server);
      // The words may be those of a tool, which then has run. Later calls have a new session in any case.
      if (saysSessionIsLost(message)) return { failure: protocolFailure(error.code, message, server), isClosed: true };
    }
    if (error.code === ProtocolErrorCode.InvalidParams)
      return keepOpen(new PawlError('INVALID_PARAMS', `${server}: ${message}`));
    return keepOpen(protocolFailure(error.code, message, server));
  }
  for (const cause of causesOf(error)) {
    if (cause instanceof PawlError) return { failure: cause, isClosed: true };
    if (SdkHttpError.isInstance(cause)) return httpFailure(cause, open, server);
  }
  if (!SdkError.isInstance(error)) return keepOpen(error instanceof Error ? error : new Error(String(error)));
  switch (error.code) {
    case SdkErrorCode.NotConnected:
      return { failure: serverUnavailable(`The MCP server ${server} is not connected.`), isClosed: true };
    case SdkErrorCode.ConnectionClosed:
    case SdkErrorCode.SendFailed:
      return {
        failure: connectionReset(`The MCP server ${server} closed the connection before it answered.`),
        isClosed: true,
      };
    case SdkErrorCode.InvalidResult:
      return keepOpen(
        new PawlError(
          'RESULT_INVALID',
          `The MCP server ${server} answers with an invalid result: ${withoutJson(error.message)}`,
        ),
      );
    case SdkErrorCode.ClientHttpUnexpectedContent:
      return keepOpen(new PawlError('MCP_PROTOCOL', `The MCP server ${server} answers a request with no message.`));
    case SdkErrorCode.RequestTimeout:
      return keepOpen(new PawlError('UPSTREAM_TIMEOUT', `The MCP server ${server} did not answer in time.`));
    default:
      return keepOpen(new ToolError(`${server}: ${error.message}`, { code: 'MCP_ERROR' }));
  }
}

/** The SDK quotes invalid content as JSON, with every type that was possible. The path of the fault is more useful. */
function withoutJson(message: string): string {
  const [, intro = '', json = ''] = /^([^[]*)(\[.*\])$/s.exec(message) ?? [];
  try {
    const issues = JSON.parse(json) as readonly { readonly path: readonly unknown[]; readonly message: string }[];
    return `${intro}${issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ')}`;
  } catch {
    return message;
  }
}

/** The message of a restarted server that does not know the session: the official SDK's wording, and those modelled on it. */
const NOT_INITIALIZED = /(?<![a-z])(?:not|before|un)[ _-]?(?:been |yet )?initiali[sz](?:ed|ation)\b/i;
/** The same message, where it could also come from a tool. */
const SESSION_NOT_INITIALIZED =
  /\b(?:server|session|client)(?: is| was| has)? not (?:been |yet )?initiali[sz]ed\b|\brequest before initiali[sz]ation\b/i;

/** The official SDK's code for a session that it does not know. A tool could have an unknown session of its own, with another code. */
const SESSION_NOT_FOUND = -32_001;

/** The codes with which servers refuse a request before they look at its method. */
const REFUSED_CODES: readonly number[] = [-32_600, -32_000, -32_001, -32_002];

/** A message that says nothing but that the session is not known, or not open. */
const BARE_SESSION_FAULT =
  /^(?:(?:bad|invalid) request: ?)?(?:(?:unknown|invalid|expired|missing|no (?:such|valid|active))(?: mcp)?[ -]session(?:[ -]?id)?|(?:the )?(?:mcp )?session(?:[ -]?id)? (?:is |was |has |does )?(?:not (?:found|known|exist|valid|active)|unknown|invalid|expired|closed|terminated)|(?:the )?client (?:must|has to) be initiali[sz]ed(?: first)?|please initiali[sz]e(?: first)?)\b[^:]{0,40}$/i;

function protocolFailure(code: number, message: string, server: string): ToolError {
  return new ToolError(`${server} answers with the error ${code}: ${message}`, { code: 'MCP_ERROR' });
}

function saysSessionIsUnknown(code: number, message: string): boolean {
  return (
    SESSION_NOT_INITIALIZED.test(message) || (code === SESSION_NOT_FOUND && /\bsession not found\b/i.test(message))
  );
}

/** The words and codes, such as `session_expired`, of servers for a session that is not theirs. The status alone does not say it. */
const UNKNOWN_SESSION =
  /(?<![a-z])(?:unknown|invalid|expired|missing|unrecogni[sz]ed|no (?:such |valid |active )?)(?:[ _]mcp)?[ _-]?session|(?<![a-z])session(?:[ _-]?ids?)?(?: (?:is|was|has|been|does))*[ :_-]+(?:not[ _](?:found|known|exist|valid|active)|unknown|invalid|expired|closed|terminated|missing|required)|\bexpect(?:s|ed|ing)? (?:an? )?initiali[sz]e request/i;

/** Says that a request which was refused before it was executed names no session that the server knows. */
function saysSessionIsLost(message: string): boolean {
  return UNKNOWN_SESSION.test(message) || NOT_INITIALIZED.test(message);
}

/** The statuses of requests that were refused before they were executed. */
const REFUSED: readonly number[] = [401, 403, 409, 412, 422];

function httpFailure(error: SdkHttpError, { transport, hasAnswered }: Broken, server: string): RequestFailure {
  const { status, message } = error;
  const { text } = error.data as { readonly text?: unknown };
  const body = typeof text === 'string' ? text.trim() : '';
  // Many servers answer 400 when the session is gone, so the request was not executed.
  const refusesSession =
    (status === 400 && (/session/i.test(message) || NOT_INITIALIZED.test(message))) ||
    (REFUSED.includes(status) && saysSessionIsLost(message));
  // A session that worked before is opened again where the server gives no reason of its own.
  const wasGood = transport.sessionId !== undefined && hasAnswered;
  if (status === 404 || status === 410 || refusesSession || (wasGood && status === 400 && !givesReason(body)))
    return sessionLost(server);
  const quoted = body === '' ? '.' : `: ${startOf(body, QUOTED_LENGTH)}`;
  const answered = `The MCP server ${server} answers with HTTP ${status}${quoted}`;
  return {
    // A server may execute a request before it redirects its client elsewhere.
    failure: status < 400 ? new PawlError('MCP_PROTOCOL', answered) : withStatus(status, answered),
    // The server may have executed the request, so the tool's effects decide about another attempt.
    isClosed: wasGood && (status === 400 || status === 500),
  };
}

/** Whether a body says more than that the request is bad. Pages are those of proxies and frameworks, not of the server itself. */
function givesReason(body: string): boolean {
  return (
    !/^\W*</.test(body) &&
    body.replaceAll(/bad request|error|message|status|code|jsonrpc|data|null|\bid\b|[^a-z]/gi, '') !== ''
  );
}

function sessionLost(server: string): RequestFailure {
  return {
    failure: serverUnavailable(`The MCP server ${server} no longer knows the session.`),
    isClosed: true,
    isUnknownSession: true,
  };
}

/** Adds an error's data to its message, because often only the data says what was wrong. */
function withData(message: string, data: unknown): string {
  if (data === undefined || data === null) return message;
  return `${message}: ${typeof data === 'string' ? data : JSON.stringify(data)}`;
}

/** The error for a request that did not reach its server. */
export function serverUnavailable(
  message: string,
  options: ErrorOptions & { readonly retryAfterMs?: number } = {},
): ToolError {
  return new ToolError(message, { code: 'MCP_UNAVAILABLE', retriable: true, nothingHappened: true, ...options });
}

/** The error for a request whose connection ended before its answer. */
export function connectionReset(message: string): ToolError {
  return new ToolError(message, { code: 'CONNECTION_RESET', retriable: true });
}

function withStatus(status: number, message: string): Error {
  return Object.assign(new Error(message), { status });
}

function causesOf(error: unknown): readonly unknown[] {
  const causes: unknown[] = [];
  for (
    let cause = error;
    cause !== undefined && causes.length < 8;
    cause = (cause as { cause?: unknown } | null)?.cause
  )
    causes.push(cause);
  return causes;
}
