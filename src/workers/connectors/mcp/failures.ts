/** What goes wrong with an MCP server, in the terms of Pawl's catalogue. */
import {
  ProtocolError,
  ProtocolErrorCode,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type Transport,
} from '@modelcontextprotocol/client';
import { PawlError, ToolError } from '../../../shared/errors/failure.ts';

/** Faults of the declaration or of policy, which no second try mends, are told as they are. */
export function connectFailure(error: unknown, server: string): Error {
  for (const cause of causesOf(error)) {
    if (cause instanceof PawlError && cause.code !== 'MCP_PROTOCOL' && cause.code !== 'RESULT_TOO_LARGE') return cause;
    if (SdkHttpError.isInstance(cause) && cause.status >= 400 && cause.status < 500 && cause.status !== 429)
      return withStatus(cause.status, `The MCP server ${server} refuses the connection: ${cause.message}`);
  }
  const [first] = causesOf(error);
  return new ToolError(
    `The MCP server ${server} cannot be reached: ${first instanceof Error ? first.message : String(error)}`,
    {
      code: 'MCP_UNAVAILABLE',
      retriable: true,
      nothingHappened: true,
      cause: error,
    },
  );
}

const QUOTED_LENGTH = 500;

export interface RequestFailure {
  readonly failure: Error;
  /** The connection is of no use any more. */
  readonly gone: boolean;
}

interface Broken {
  /** What the server did that ended the connection. */
  readonly fault: Error | undefined;
  readonly transport: Pick<Transport, 'sessionId'>;
}

export function requestFailure(error: unknown, { fault, transport }: Broken, server: string): RequestFailure {
  if (error instanceof ToolError && error.nothingHappened) return { failure: error, gone: fault !== undefined };
  if (fault !== undefined) return { failure: fault, gone: true };
  const stays = (failure: Error): RequestFailure => ({ failure, gone: false });
  if (error instanceof PawlError || error instanceof ToolError) return stays(error);
  if (ProtocolError.isInstance(error)) {
    // No message of a server holds an error of ours: this one is from the transport, whose stream broke.
    if (error.data instanceof Error) return stays(error.data);
    const said = withData(error.message, error.data);
    if (transport.sessionId !== undefined && SESSION_NOT_INITIALIZED.test(said)) return forgotten(server);
    if (error.code === ProtocolErrorCode.InvalidParams)
      return stays(new PawlError('INVALID_PARAMS', `${server}: ${said}`));
    return stays(new ToolError(`${server} answers with the error ${error.code}: ${said}`, { code: 'MCP_ERROR' }));
  }
  for (const cause of causesOf(error)) {
    if (cause instanceof PawlError) return { failure: cause, gone: true };
    if (SdkHttpError.isInstance(cause)) return ofHttp(cause, server);
  }
  if (!SdkError.isInstance(error)) return stays(error instanceof Error ? error : new Error(String(error)));
  switch (error.code) {
    case SdkErrorCode.NotConnected:
      return { failure: unavailable(`The MCP server ${server} is not connected.`), gone: true };
    case SdkErrorCode.ConnectionClosed:
    case SdkErrorCode.SendFailed:
      return {
        failure: new ToolError(`The MCP server ${server} closed the connection before it answered.`, {
          code: 'CONNECTION_RESET',
          retriable: true,
        }),
        gone: true,
      };
    case SdkErrorCode.InvalidResult:
      return stays(
        new PawlError(
          'RESULT_INVALID',
          `The MCP server ${server} answers with no valid result: ${withoutJson(error.message)}`,
        ),
      );
    case SdkErrorCode.RequestTimeout:
      return stays(new PawlError('UPSTREAM_TIMEOUT', `The MCP server ${server} did not answer in time.`));
    default:
      return stays(new ToolError(`${server}: ${error.message}`, { code: 'MCP_ERROR' }));
  }
}

/** The SDK quotes what is wrong as JSON, with every kind of content that it could have been. Where it is wrong says more. */
function withoutJson(message: string): string {
  const [, what = '', json = ''] = /^([^[]*)(\[.*\])$/s.exec(message) ?? [];
  try {
    const issues = JSON.parse(json) as readonly { readonly path: readonly unknown[]; readonly message: string }[];
    return `${what}${issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ')}`;
  } catch {
    return message;
  }
}

/** What a server says that was started anew and knows nothing of the session: the official SDK's, and those made after it. */
const NOT_INITIALIZED = /\b(?:not|before|un)[ -]?(?:been |yet )?initiali[sz](?:ed|ation)\b/i;
/** The same where it could be the word of a tool. */
const SESSION_NOT_INITIALIZED = /\b(?:server|session|client)(?: is| was| has)? not (?:been |yet )?initiali[sz]ed\b/i;

function ofHttp(error: SdkHttpError, server: string): RequestFailure {
  const { status, message } = error;
  // Many servers say with 400 that the session is gone, so that the request was not even looked at.
  const refusesSession = status === 400 && (/session/i.test(message) || NOT_INITIALIZED.test(message));
  if (status === 404 || status === 410 || refusesSession) return forgotten(server);
  const { text } = error.data as { readonly text?: unknown };
  const quoted = typeof text === 'string' && text.trim() !== '' ? `: ${text.trim().slice(0, QUOTED_LENGTH)}` : '.';
  return { failure: withStatus(status, `The MCP server ${server} answers with HTTP ${status}${quoted}`), gone: false };
}

/** The next try has a new connection, which is initialized anew. */
function forgotten(server: string): RequestFailure {
  return { failure: unavailable(`The MCP server ${server} has forgotten the session.`), gone: true };
}

/** What an error holds beside its message, which often says alone what was wrong. */
function withData(message: string, data: unknown): string {
  if (data === undefined || data === null) return message;
  return `${message}: ${typeof data === 'string' ? data : JSON.stringify(data)}`;
}

function unavailable(message: string): ToolError {
  return new ToolError(message, { code: 'MCP_UNAVAILABLE', retriable: true, nothingHappened: true });
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
