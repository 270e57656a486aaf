/** What goes wrong with an MCP server, in the terms of Pawl's catalogue. */
import { ProtocolError, ProtocolErrorCode, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client';
import { PawlError, ToolError } from '../../../shared/failure.ts';

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

export interface RequestFailure {
  readonly failure: Error;
  /** The connection is of no use any more. */
  readonly gone: boolean;
}

/** `fault`: what the server did that ended the connection. */
export function requestFailure(error: unknown, fault: Error | undefined, server: string): RequestFailure {
  if (error instanceof ToolError && error.nothingHappened) return { failure: error, gone: fault !== undefined };
  if (fault !== undefined) return { failure: fault, gone: true };
  const stays = (failure: Error): RequestFailure => ({ failure, gone: false });
  if (error instanceof PawlError || error instanceof ToolError) return stays(error);
  if (ProtocolError.isInstance(error)) {
    // No message of a server holds an error of ours: this one is from the transport, whose stream broke.
    if (error.data instanceof Error) return stays(error.data);
    if (error.code === ProtocolErrorCode.InvalidParams)
      return stays(new PawlError('INVALID_PARAMS', `${server}: ${error.message}`));
    return stays(
      new ToolError(`${server} answers with the error ${error.code}: ${error.message}`, { code: 'MCP_ERROR' }),
    );
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

function ofHttp(error: SdkHttpError, server: string): RequestFailure {
  // The session is gone, so that the request was not even looked at.
  // Many servers, those made after the official SDK's example among them, say so with 400.
  if (error.status === 404 || (error.status === 400 && /session/i.test(error.message)))
    return { failure: unavailable(`The MCP server ${server} has forgotten the session.`), gone: true };
  return {
    failure: withStatus(error.status, `The MCP server ${server} answers with HTTP ${error.status}.`),
    gone: false,
  };
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
