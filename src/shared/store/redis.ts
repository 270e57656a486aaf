/**
 * Connections to Redis, and our scripts on them.
 */
import { readFileSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import { type Command, Redis, type RedisOptions } from 'ioredis';
import { PawlError } from '../failure.ts';
import { GatheredWrites } from './gathered-writes.ts';

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
  /**
   * Reconnect when a command has been without any answer for this long: a half-open wire says nothing by itself.
   * Default: 5 s for `fail-fast`, so that the second try fits into the command's 10 s; 15 s for `patient`, longer than any
   * blocking command.
   */
  readonly socketTimeoutMs?: number;
}

const MAX_RECONNECT_DELAY_MS = 1_000;
const COMMAND_TIMEOUT_MS = 10_000;
const FAIL_FAST_SILENCE_MS = 5_000;
const PATIENT_SILENCE_MS = 15_000;

/** How ioredis should behave for us; also what BullMQ's worker connections are made from (FACTS: `null`, capped delay). */
export function redisOptions(options: ConnectionOptions): RedisOptions & { replyMapping: 'legacy' } {
  const common: RedisOptions & { replyMapping: 'legacy' } = {
    ...addressOf(options.url),
    replyMapping: 'legacy',
    connectionName: options.name,
    retryStrategy: (attempt) => Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS),
    enableAutoPipelining: false,
    // After a failover the address may lead elsewhere by now.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
    connectTimeout: 5_000,
    socketTimeout: options.socketTimeoutMs ?? (options.mode === 'patient' ? PATIENT_SILENCE_MS : FAIL_FAST_SILENCE_MS),
  };
  return options.mode === 'patient'
    ? { ...common, maxRetriesPerRequest: null }
    : { ...common, maxRetriesPerRequest: 1, commandTimeout: COMMAND_TIMEOUT_MS };
}

function addressOf(url: string): RedisOptions {
  if (url.startsWith('/')) return { path: url };
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['redis:', 'rediss:', 'unix:', 'redis+unix:'].includes(parsed.protocol)) {
    throw new PawlError(
      'CONFIGURATION',
      `REDIS_URL must be redis://, rediss:// or unix:///path; got ${parsed === undefined ? 'something else' : `${parsed.protocol}…`}.`,
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

/**
 * Sends commands together, and says of every one, not only of scripts, in one typed error that Redis cannot take it now.
 */
class TypedRedis extends Redis {
  readonly #typed = new WeakSet<Command>();
  readonly #writes: GatheredWrites;

  constructor(options: ReturnType<typeof redisOptions>) {
    super(options);
    this.#writes = new GatheredWrites(() => this.#unanswered);
    this.on('connect', () => this.#writes.attach((this as unknown as { readonly stream: Duplex }).stream));
  }

  get #unanswered(): number {
    return (this as unknown as { readonly commandQueue: { readonly length: number } }).commandQueue.length;
  }

  override sendCommand(command: Command, stream?: Parameters<Redis['sendCommand']>[1]): unknown {
    // A command comes by again whenever it is sent again.
    if (!this.#typed.has(command)) {
      this.#typed.add(command);
      const { reject } = command;
      command.reject = (error) => reject(backendError(error) as Error);
    }
    const before = this.#unanswered;
    const answer = super.sendCommand(command, stream);
    this.#writes.count(this.#unanswered - before);
    return answer;
  }
}

/** Opens a connection; errors while it is down are told to `onError` and mended by reconnecting. */
export function openConnection(options: ConnectionOptions, onError: (error: Error) => void = () => {}): Redis {
  const client: Redis = new TypedRedis(redisOptions(options));
  client.on('error', onError);
  return client;
}

/** Ends a connection at once; commands that wait for an answer, or for the connection to come back, fail. */
export function closeConnection(client: Redis): void {
  const waiting = client.status === 'reconnecting';
  client.disconnect();
  // ioredis forgets those commands when it is told to stop between two tries: whoever awaits one would wait for ever.
  if (waiting) (client as unknown as { flushQueue(error: Error): void }).flushQueue(new Error('Connection is closed.'));
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

/** A script as a function that other scripts can call, with its own KEYS and ARGV: whatever it returns is what it would answer. */
export function luaFunction(name: string, lua: string = luaFile(name)): string {
  return `local function ${name.replaceAll('-', '_')}(KEYS, ARGV)\n${lua}\nend\n`;
}

/** A Lua file of `lua/`, callable on any connection; it can call the given functions. What it gathered is written when it returns. */
export class Script {
  readonly #name: string;
  readonly #lua: string;
  readonly #numberOfKeys: number | undefined;

  /** Without a number of keys, each run says how many it has. */
  constructor(name: string, numberOfKeys: number | undefined, functions: readonly string[] = []) {
    this.#name = `pawl:${name}`;
    this.#lua = [
      INCLUDES,
      ...functions,
      luaFunction('script', luaFile(name)),
      'local answer = script(KEYS, ARGV)\nwriteGathered()\nreturn answer\n',
    ].join('');
    this.#numberOfKeys = numberOfKeys;
  }

  /** Runs the script; Redis' refusals become `BACKEND_UNAVAILABLE`. */
  async run(client: Redis, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown[]> {
    const commands = client as unknown as Record<
      string,
      ((...args: ScriptArgument[]) => Promise<unknown[]>) | undefined
    >;
    if (commands[this.#name] === undefined)
      client.defineCommand(this.#name, {
        lua: this.#lua,
        ...(this.#numberOfKeys === undefined ? {} : { numberOfKeys: this.#numberOfKeys }),
      });
    const command = commands[this.#name] as (...args: ScriptArgument[]) => Promise<unknown[]>;
    const count = this.#numberOfKeys === undefined ? [keys.length] : [];
    try {
      return await command.call(client, ...count, ...keys, ...args);
    } catch (error) {
      throw backendError(error);
    }
  }
}

function luaFile(name: string): string {
  return readFileSync(new URL(`lua/${name}.lua`, import.meta.url), 'utf8');
}

/**
 * What Redis says when it cannot take a command now, or has lost what came before it (`UNKEPT`, a word of our scripts), as one typed
 * error; anything else is a defect and passes through.
 */
export function backendError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const transient =
    /OOM|UNKEPT|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOAUTH|WRONGPASS|max retries per request|Connection is closed|Command timed out|Stream isn't writeable|ECONN|ENOENT|EPIPE|ETIMEDOUT/i;
  return transient.test(`${error.name} ${error.message}`) ? unavailable(error) : error;
}

function unavailable(cause: Error): PawlError {
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${cause.message}`, { cause });
}
