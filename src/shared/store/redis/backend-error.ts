/** Failures of Redis as one typed error. */
import { PawlError } from '../../errors/failure.ts';
import './ioredis/ioredis-promises.ts';

/** The message of ioredis for commands on a connection that is being closed. */
export const CLOSED = 'Connection is closed.';

/**
 * Turns an error into `BACKEND_UNAVAILABLE` when Redis cannot take a command now, or has lost data (`UNKEPT`, an error of our scripts). Any
 * other error is a defect and is returned as it is.
 */
export function backendError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const transient =
    /OOM|UNKEPT|BUSY Redis|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOAUTH|WRONGPASS|NOPERM|user executing the script can't|EXECABORT|TRYAGAIN|ClusterAllFailedError|Cluster redirections|Cluster is ended|startup nodes|max number of clients|max retries per request|Connection is closed|Command timed out|Stream isn't writeable|ECONN|ENOENT|EPIPE|ETIMEDOUT/i;
  return transient.test(`${error.name} ${error.message}`) ? unavailable(error) : error;
}

export function unavailable(cause: Error): PawlError {
  if (cause instanceof PawlError && cause.code === 'BACKEND_UNAVAILABLE') return cause;
  // Open connections try again, so this error says nothing about Redis.
  if (cause.message === CLOSED)
    return new PawlError('BACKEND_UNAVAILABLE', 'The connection to Redis was closed by this process.', { cause });
  // The message of ioredis names one of its options and its documentation.
  const why = cause.message.includes('max retries per request') ? 'the connection was lost.' : cause.message;
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${why}`, { cause });
}
