/** HTTP refusals: one table of statuses, one schema of bodies. The stack, paths and message of a defect never leave the server. */
import { type Issue, PawlError, reasonOf } from '../../../shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../../shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES } from '../../../shared/errors/failure-responses.ts';
import { backendError } from '../../../shared/store/redis/backend-error.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';

/** Codes that exist only in HTTP responses. */
type HttpCode =
  | 'UNAUTHENTICATED'
  | 'METHOD_NOT_ALLOWED'
  | 'PAYLOAD_TOO_LARGE'
  | 'UNSUPPORTED_MEDIA_TYPE'
  | 'RATE_LIMITED'
  | 'INTERNAL';
export type ErrorCode = FailureCode | HttpCode;

/** The status of every code. A code with status 500 ends a request only if the server has a defect. */
export const STATUSES: Readonly<Record<ErrorCode, number>> = {
  ...(Object.fromEntries(Object.entries(FAILURE_RESPONSES).map(([code, { http }]) => [code, http])) as Record<
    FailureCode,
    number
  >),
  UNAUTHENTICATED: 401,
  METHOD_NOT_ALLOWED: 405,
  PAYLOAD_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  RATE_LIMITED: 429,
  INTERNAL: 500,
};

/** The codes that a request can end with, for the API's description. */
export const REQUEST_ERROR_CODES: readonly string[] = Object.entries(STATUSES)
  .filter(([code, status]) => status !== 500 || code === 'INTERNAL')
  .map(([code]) => code);

const RETRY_AFTER_SECONDS = 1;

interface RefusalDetails {
  readonly headers?: Readonly<Record<string, string>>;
  readonly issues?: readonly Issue[] | undefined;
  /** Known names that are close to the unknown one. */
  readonly suggestions?: readonly string[] | undefined;
  /** The call that conflicts with this request. */
  readonly callId?: string | undefined;
}

/** A refusal that a route throws. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly code: ErrorCode;
  readonly details: RefusalDetails;

  constructor(code: ErrorCode, message: string, details: RefusalDetails = {}) {
    super(message);
    this.code = code;
    this.details = details;
  }
}

/** Turns a thrown value into a response. `defect`: the server has a bug, which the caller of this function logs. */
export function toHttpRefusal(thrown: unknown) {
  const error = toHttpError(thrown);
  const { code, details } = error;
  const status = STATUSES[code];
  if (status === 500) {
    const body = { error: { code: 'INTERNAL', message: 'Internal error: see the log of this server.' } };
    return { status, headers: {}, body, defect: true };
  }
  // A message of Redis or of the operating system may contain hosts and files, so it is replaced.
  const isSafeMessage = thrown instanceof HttpError || code !== 'BACKEND_UNAVAILABLE';
  const redisReason = isSafeMessage ? undefined : redisRefusalReason(error);
  const message = isSafeMessage
    ? error.message
    : redisReason === undefined
      ? FAILURES.BACKEND_UNAVAILABLE.sentence
      : `The queue accepts no calls: ${redisReason}.`;
  const { headers, ...more } = details;
  return {
    status,
    headers: { ...(status === 503 ? { 'Retry-After': String(RETRY_AFTER_SECONDS) } : {}), ...headers },
    body: { error: { code, message, ...defined(more) } },
    defect: false,
  };
}

/** Errors of a reachable Redis that refuses writes, each with its meaning. */
const REDIS_REFUSALS: Readonly<Record<string, string>> = {
  OOM: 'redis is full (maxmemory)',
  MISCONF: 'redis cannot write to its disk',
  READONLY: 'redis is a read-only replica',
  LOADING: 'redis is reading its data',
  NOREPLICAS: 'redis has too few replicas',
  NOPERM: 'the Redis user lacks rights',
  'max number of clients': 'redis has as many clients as maxclients allows',
};

/** The reason why Redis refuses writes; undefined when it is unreachable. */
export function redisRefusalReason(error: unknown): string | undefined {
  const message = reasonOf(error);
  return Object.entries(REDIS_REFUSALS).find(([word]) => message.includes(word))?.[1];
}

function toHttpError(thrown: unknown): HttpError {
  if (thrown instanceof HttpError) return thrown;
  const error = backendError(thrown);
  if (error instanceof PawlError) {
    const suggestions = error.details?.['suggestions'];
    return new HttpError(error.code, error.message, {
      issues: error.issues,
      suggestions: Array.isArray(suggestions) ? suggestions.map(String) : undefined,
    });
  }
  return unreadableRequest(error) ?? new HttpError('INTERNAL', '');
}

/** Translates the errors of Express and its body parser about a request that they cannot read. */
function unreadableRequest(error: unknown): HttpError | undefined {
  if (!isObject(error)) return undefined;
  const { type, status, limit, message } = error as Readonly<Record<string, unknown>>;
  switch (type) {
    case 'entity.parse.failed':
      return invalidBody(`is not JSON: ${startOf(String(message), 200)}`);
    case 'entity.too.large':
      return new HttpError('PAYLOAD_TOO_LARGE', `The body is larger than ${String(limit)} bytes.`);
    case 'charset.unsupported':
    case 'encoding.unsupported':
      return new HttpError('UNSUPPORTED_MEDIA_TYPE', 'The body must be JSON in UTF-8.');
    default:
      // Examples: a broken escape in the address, or a body that breaks off.
      return typeof status === 'number' && status >= 400 && status < 500
        ? new HttpError('CONTRACT_INVALID', 'The request cannot be read.', {
            issues: [{ path: '', message: 'cannot be read' }],
          })
        : undefined;
  }
}

export function invalidBody(message: string): HttpError {
  return new HttpError('CONTRACT_INVALID', `The body ${message}.`, { issues: [{ path: 'body', message }] });
}
