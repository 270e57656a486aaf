/** Failures of Redis as one typed error. */
import type { Command } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';
import './ioredis/ioredis-promises.ts';

/** The message of ioredis for commands on a connection that is being closed. */
export const CLOSED = 'Connection is closed.';

/** Answers by which hosted services and proxies refuse a command that is right: a quota is used up, or no server is behind them. */
const REFUSED_BY_SERVICE = /exceeded|quota|limit reached|DENIED|upstream/i;

/** Answers to a command, or errors of our scripts, for a key whose value another program wrote. */
const OTHER_VALUE = /WRONGTYPE|ERR (?:hash )?value is not (?:an integer|a valid float|a float)\b/;
const MAX_NAMED_KEYS = 5;

/**
 * Turns an error into `BACKEND_UNAVAILABLE` when Redis cannot take a command now, or has lost data (`UNKEPT`, an error of our scripts), and
 * into `CONFIGURATION` when a value is not Pawl's. Any other error is a defect and is returned as it is. `place` says which value it is;
 * default: the keys of the error's command.
 */
export function backendError(error: unknown, place?: string): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  if (OTHER_VALUE.test(error.message)) return otherValueError(error, place ?? placeOf(error));
  const transient =
    /OOM|UNKEPT|BUSY (?:Redis|Valkey) is|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|UNBLOCKED|NOAUTH|WRONGPASS|NOPERM|user executing the script can't|ACL failure in script|EXECABORT|TRYAGAIN|ClusterAllFailedError|Cluster redirections|Cluster is ended|startup nodes|max number of clients|max retries per request|Connection is closed|Command timed out|Stream isn't writeable|Unknown RESP type|ECONN|ENOENT|EPIPE|ETIMEDOUT/i;
  const refused = error.name === 'ReplyError' && REFUSED_BY_SERVICE.test(error.message);
  return refused || transient.test(`${error.name} ${error.message}`) ? unavailable(error) : error;
}

/** Whether Redis refused its user a command, a key or a channel. */
export function lacksRights(error: unknown): error is Error {
  return error instanceof Error && /NOPERM|permissions|user executing the script can't/i.test(error.message);
}

/** A script's error names no key, so all keys of the script are named, some of which are the beginnings of others. */
function placeOf(error: unknown): string {
  const { command } = error as { readonly command?: { readonly name: string; readonly args: readonly unknown[] } };
  const { name = '', args = [] } = command ?? {};
  if (!name.startsWith('eval')) return args.length === 0 ? 'a key' : `the key ${args[0]}`;
  const keys = args.slice(2, 2 + Number(args[1])).map((key) => `${key}…`);
  return `${keys.length > 1 ? 'one of the keys' : 'the key'} ${keys.slice(0, MAX_NAMED_KEYS).join(', ')}`;
}

function otherValueError(cause: Error, place: string): PawlError {
  return new PawlError(
    'CONFIGURATION',
    `Redis holds a value that Pawl did not write, at ${place}: ${explained(cause.message).replace(/\.$/, '')}. Put back what was there, or delete the key.`,
    { cause },
  );
}

export function unavailable(cause: Error): PawlError {
  if (cause instanceof PawlError && cause.code === 'BACKEND_UNAVAILABLE') return cause;
  // Open connections try again, so this error says nothing about Redis.
  if (cause.message === CLOSED)
    return new PawlError('BACKEND_UNAVAILABLE', 'The connection to Redis was closed by this process.', { cause });
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${explained(messageOf(cause))}`, { cause });
}

/** The error of an answer that Redis does not give. */
export function unusableError(command: string, answer: unknown, cause?: Error): PawlError {
  return new PawlError(
    'BACKEND_UNAVAILABLE',
    `Redis cannot be used: it answered ${command.toUpperCase()} with ${JSON.stringify(answer)}. Pawl needs a Redis 6.2 or later, or one that is like it, with all its commands under their own names.`,
    { cause },
  );
}

const TYPED = Symbol('typed');

/** Replaces an error of ioredis by one that says more. */
type Explain = (error: Error) => Error;
const unchanged: Explain = (error) => error;

/** Makes a command reject with typed errors. False for a command that already does, because it is sent again. */
export function typeErrors(command: Command & { [TYPED]?: true }, explain: Explain = unchanged): boolean {
  if (command[TYPED]) return false;
  command[TYPED] = true;
  command.reject = typedReject(command.reject, explain);
  return true;
}

/** A separate function, so that the garbage collector frees its closure early (`ioredis/README.md`). */
function typedReject(reject: Command['reject'], explain: Explain): Command['reject'] {
  return (error) => reject(backendError(explain(error)) as Error);
}

/** ioredis says of a cluster only that no node could be used; a node that refuses the user says why. */
function messageOf({ message, lastNodeError }: Error & { readonly lastNodeError?: Error | undefined }): string {
  const reply = lastNodeError?.message ?? '';
  return /^(?:NOAUTH|WRONGPASS|NOPERM)/.test(reply) ? reply : message;
}

/** Messages of ioredis and of Redis that name an option, a command or a step of the client, which a reader does not know. */
const EXPLANATIONS: readonly (readonly [message: RegExp, why: string])[] = [
  [/^.*max retries per request.*$/s, 'the connection was lost.'],
  [/^All sentinels are unreachable.*Last error: (.*)$/s, 'no Sentinel in REDIS_URL names the server: $1'],
  [
    /^Failed to refresh slots cache/,
    'nothing in REDIS_URL answers as a node of a Redis Cluster; a single server is redis://host:port',
  ],
  [/^Too many Cluster redirections\. Last error: (?:\w*Error: )?/, 'no node of the cluster took the command: '],
  [/\?:(\d+): getaddrinfo ENOTFOUND \?/, 'the one at port $1 announces no name (cluster-announce-hostname)'],
  [/^Unknown RESP type.*/s, 'what answers there does not speak the protocol of Redis'],
  [/\.? script: (?:\w+, )?on @user_script:\d+\.$/, '.'],
  // The refusal of a script has another code, before Redis 7.2 and since then.
  [/^ERR (?:ACL failure in script: |(?=The user executing the script can't))/, 'NOPERM '],
  [/\bNOAUTH HELLO .*/s, 'NOAUTH: it asks for a password, and REDIS_URL has none for it'],
];

function explained(message: string): string {
  return EXPLANATIONS.reduce((text, [pattern, why]) => text.replace(pattern, why), message);
}
