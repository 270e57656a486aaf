/** The errors of the protocol. */
import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { PawlError } from '../../shared/errors/failure.ts';
import { backendError } from '../../shared/store/redis/backend-error.ts';
import { HttpError } from '../http/core/errors.ts';

/** The error of a request whose parameters are not usable. */
export function invalidParams(message: string, data?: object): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message, data);
}

/** A typed refusal is passed on as it is; a defect is reported without its message. */
export function toProtocolError(thrown: unknown): unknown {
  if (thrown instanceof ProtocolError) return thrown;
  if (thrown instanceof HttpError)
    return new ProtocolError(ProtocolErrorCode.InternalError, thrown.message, { code: thrown.code });
  const error = backendError(thrown);
  if (!(error instanceof PawlError))
    return new ProtocolError(ProtocolErrorCode.InternalError, 'Internal error: see the log of this server.');
  const { code, message } = error;
  const isClientError = code === 'CONTRACT_INVALID' || code === 'PERMISSION_DENIED' || code === 'SESSION_CLOSED';
  const text = code === 'BACKEND_UNAVAILABLE' ? 'The queue cannot be reached.' : message;
  return new ProtocolError(isClientError ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError, text, {
    code,
  });
}
