/** Failures of Redis as one typed error. */
import { PawlError } from '../../errors/failure.ts';
import './ioredis/ioredis-promises.ts';

/** What ioredis says of commands that come to a connection that was told to end, or wait in it. */
export const CLOSED = 'Connection is closed.';

/**
 * What Redis says when it cannot take a command now, or has lost what came before it (`UNKEPT`, a word of our scripts), as one typed
 * error; anything else is a defect and passes through.
 */
export function backendError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const transient =
    /OOM|UNKEPT|BUSY Redis|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOAUTH|WRONGPASS|NOPERM|user executing the script can't|EXECABORT|TRYAGAIN|ClusterAllFailedError|Cluster redirections|Cluster is ended|startup nodes|max number of clients|max retries per request|Connection is closed|Command timed out|Stream isn't writeable|ECONN|ENOENT|EPIPE|ETIMEDOUT/i;
  return transient.test(`${error.name} ${error.message}`) ? unavailable(error) : error;
}

export function unavailable(cause: Error): PawlError {
  if (cause instanceof PawlError && cause.code === 'BACKEND_UNAVAILABLE') return cause;
  // Ours try again for as long as they are open: nothing is wrong with Redis.
  if (cause.message === CLOSED)
    return new PawlError('BACKEND_UNAVAILABLE', 'The connection to Redis was closed by this process.', { cause });
  // ioredis names an option of its own, and where to read of it.
  const why = cause.message.includes('max retries per request') ? 'the connection was lost.' : cause.message;
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${why}`, { cause });
}
