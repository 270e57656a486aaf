/**
 * Connections to Redis, and our scripts on them.
 */
import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions } from 'ioredis';
import { PawlError } from '../failure.ts';
import { ENQUEUE_LUA } from './queues.ts';

export type { Redis } from 'ioredis';

export interface ConnectionOptions {
  /** `redis://`, `rediss://` or `unix:///path/to/socket`. */
  readonly url: string;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  /**
   * `fail-fast`: a command that cannot be sent fails within about a second (producers).
   * `patient`: commands wait for the connection to come back (workers, subscribers, blocking readers).
   */
  readonly mode: 'fail-fast' | 'patient';
  /** Reconnect when nothing was heard for this long; only for connections that always have something to hear. */
  readonly socketTimeoutMs?: number;
}

const MAX_RECONNECT_DELAY_MS = 1_000;

/** How ioredis should behave for us; also what BullMQ's worker connections are made from (FACTS: `null`, capped delay). */
export function redisOptions(options: ConnectionOptions): RedisOptions & { replyMapping: 'legacy' } {
  const common: RedisOptions & { replyMapping: 'legacy' } = {
    ...addressOf(options.url),
    replyMapping: 'legacy',
    connectionName: options.name,
    retryStrategy: (attempt) => Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS),
    enableAutoPipelining: false,
    connectTimeout: 5_000,
    ...(options.socketTimeoutMs === undefined ? {} : { socketTimeout: options.socketTimeoutMs }),
  };
  return options.mode === 'patient'
    ? { ...common, maxRetriesPerRequest: null }
    : { ...common, maxRetriesPerRequest: 1, commandTimeout: 10_000 };
}

function addressOf(url: string): RedisOptions {
  if (url.startsWith('/')) return { path: url };
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['redis:', 'rediss:', 'unix:', 'redis+unix:'].includes(parsed.protocol)) {
    throw new PawlError(
      'CONFIGURATION',
      `REDIS_URL must be redis://, rediss:// or unix:///path; got ${JSON.stringify(url)}.`,
    );
  }
  if (parsed.protocol === 'unix:' || parsed.protocol === 'redis+unix:')
    return { path: decodeURIComponent(parsed.pathname) };
  return {
    host: parsed.hostname,
    port: parsed.port === '' ? 6379 : Number(parsed.port),
    ...(parsed.username === '' ? {} : { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password === '' ? {} : { password: decodeURIComponent(parsed.password) }),
    ...(parsed.pathname.length > 1 ? { db: Number(parsed.pathname.slice(1)) } : {}),
    ...(parsed.protocol === 'rediss:' ? { tls: {} } : {}),
  };
}

/** Opens a connection; errors while it is down are told to `onError` and mended by reconnecting. */
export function openConnection(options: ConnectionOptions, onError: (error: Error) => void = () => {}): Redis {
  const client: Redis = new Redis(redisOptions(options));
  client.on('error', onError);
  return client;
}

/** Resolves when the connection is usable; rejects with `BACKEND_UNAVAILABLE` after `timeoutMs`. */
export async function whenReady(client: Redis, timeoutMs: number): Promise<void> {
  if (client.status === 'ready') return;
  let lastError: Error | undefined;
  const remember = (error: Error) => {
    lastError = error;
  };
  client.on('error', remember);
  try {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(unavailable(lastError ?? new Error(`no answer within ${timeoutMs} ms`))),
        timeoutMs,
      );
      client.once('ready', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  } finally {
    client.off('error', remember);
  }
}

const INCLUDES = luaFile('includes');
type ScriptArgument = string | number | Buffer;

/** A Lua file of `lua/`, callable on any connection; `queueing` scripts can call `enqueue`. */
export class Script {
  readonly #name: string;
  readonly #lua: string;
  readonly #numberOfKeys: number;

  constructor(name: string, numberOfKeys: number, queueing = false) {
    this.#name = `pawl:${name}`;
    this.#lua = `${INCLUDES}${queueing ? ENQUEUE_LUA : ''}${luaFile(name)}`;
    this.#numberOfKeys = numberOfKeys;
  }

  /** Runs the script; Redis' refusals become `BACKEND_UNAVAILABLE`. */
  async run(client: Redis, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown[]> {
    const commands = client as unknown as Record<
      string,
      ((...args: ScriptArgument[]) => Promise<unknown[]>) | undefined
    >;
    if (commands[this.#name] === undefined)
      client.defineCommand(this.#name, { numberOfKeys: this.#numberOfKeys, lua: this.#lua });
    const command = commands[this.#name] as (...args: ScriptArgument[]) => Promise<unknown[]>;
    try {
      return await command.call(client, ...keys, ...args);
    } catch (error) {
      throw backendError(error);
    }
  }
}

function luaFile(name: string): string {
  return readFileSync(new URL(`lua/${name}.lua`, import.meta.url), 'utf8');
}

/** What Redis says when it cannot take a command now, as one typed error; anything else is a defect and passes through. */
export function backendError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const transient =
    /OOM|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOAUTH|WRONGPASS|max retries per request|Connection is closed|Command timed out|Stream isn't writeable|ECONN|ENOENT|EPIPE|ETIMEDOUT/i;
  return transient.test(`${error.name} ${error.message}`) ? unavailable(error) : error;
}

function unavailable(cause: Error): PawlError {
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${cause.message}`, { cause });
}
