/**
 * Connections to Redis, and our scripts on them.
 */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import type { Duplex } from 'node:stream';
import { Cluster, Command, Redis, type RedisOptions } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';
import { addressOf, clusterAddressOf, clusterUrl, isCluster, type NodeAddress } from './address.ts';
import { type CommandQueues, CommandWatch } from './command-timeout.ts';
import { DirectConnector } from './direct-connector.ts';
import { readOwnFile } from './own-files.ts';
import { GatheredWrites } from './pipelined-writes.ts';
import { whyUnusable } from './redis-probe.ts';
import './ioredis-promises.ts';

export type { Redis } from 'ioredis';

export interface ConnectionOptions {
  /**
   * `redis://`, `rediss://` or `unix:///path/to/socket`; of a cluster, `redis+cluster://host:port`, or several nodes with commas
   * between them.
   */
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
  const address = isCluster(options.url) ? clusterNodeOf(options.url) : addressOf(options.url);
  const isDirect = address.tls === undefined && address.sentinels === undefined;
  const common: RedisOptions & { replyMapping: 'legacy' } = {
    ...address,
    ...(isDirect ? { Connector: DirectConnector } : {}),
    replyMapping: 'legacy',
    connectionName: options.name,
    retryStrategy: (attempt) => Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS),
    enableAutoPipelining: false,
    // Whoever listens says anew what for (`Subscription`).
    autoResubscribe: false,
    reconnectOnError: isReadOnly,
    connectTimeout: 5_000,
    socketTimeout: options.socketTimeoutMs ?? (options.mode === 'patient' ? PATIENT_SILENCE_MS : FAIL_FAST_SILENCE_MS),
  };
  return options.mode === 'patient'
    ? { ...common, maxRetriesPerRequest: null }
    : { ...common, maxRetriesPerRequest: 1, commandTimeout: COMMAND_TIMEOUT_MS };
}

/** The first node of a cluster. */
function clusterNodeOf(url: string): RedisOptions {
  const { nodes, common } = clusterAddressOf(url);
  return { ...common, ...nodes[0] };
}

/** After a failover the address may lead elsewhere by now. Before version 7, a script's own words stand before Redis'. */
function isReadOnly(error: Error): boolean {
  return error.message.includes('READONLY');
}

const TYPED = Symbol('typed');

/** Lets a command fail with our typed errors. False for one that was sent before: it comes by whenever it is sent again. */
function typed(command: Command & { [TYPED]?: true }): boolean {
  if (command[TYPED]) return false;
  command[TYPED] = true;
  command.reject = rejectingTyped(command.reject);
  return true;
}

/** A function of its own, so that it dies as young as what it refers to (`young-commands.ts`). */
function rejectingTyped(reject: Command['reject']): Command['reject'] {
  return (error) => reject(backendError(error) as Error);
}

/**
 * Sends commands together, keeps their limits, and says of every one, not only of scripts, in one typed error that Redis cannot take
 * it now.
 */
class TypedRedis extends Redis {
  readonly #writes: GatheredWrites;
  readonly #watch: CommandWatch;

  constructor({ commandTimeout, socketTimeout, ...options }: ReturnType<typeof redisOptions>) {
    super(options);
    this.#writes = new GatheredWrites(() => this.#unanswered);
    const queues = this as unknown as CommandQueues;
    this.#watch = new CommandWatch(queues, { commandMs: commandTimeout, silenceMs: socketTimeout });
    this.on('connect', () => {
      const { stream } = this as unknown as { readonly stream: Duplex };
      this.#writes.attach(stream);
      this.#watch.attach(stream);
    });
  }

  get #unanswered(): number {
    return (this as unknown as { readonly commandQueue: { readonly length: number } }).commandQueue.length;
  }

  override sendCommand(command: Command, stream?: Parameters<Redis['sendCommand']>[1]): unknown {
    if (typed(command)) this.#watch.sent(command);
    const before = this.#unanswered;
    const answer = super.sendCommand(command, stream);
    this.#writes.count(this.#unanswered - before);
    return answer;
  }
}

/** The same for a cluster, which sends each command to the node that has its key. */
class TypedCluster extends Cluster {
  override sendCommand(command: Command, stream?: Parameters<Cluster['sendCommand']>[1], node?: unknown): unknown {
    if (typed(command)) {
      // Of a single server's commands, the connection does that; here they may wait for a node first.
      const timeoutMs = this.options.redisOptions?.commandTimeout;
      if (timeoutMs !== undefined) command.setTimeout(timeoutMs);
    }
    return super.sendCommand(command, stream, node);
  }
}

/** How long a command is tried again while a node fails over: a producer's caller waits, a worker has the time. */
const TRY_AGAIN_MS = 200;
const TRIES = { 'fail-fast': 10, patient: Number.MAX_SAFE_INTEGER } as const;

function clusterOptions(options: ConnectionOptions) {
  const { host: _host, port: _port, retryStrategy: _retry, ...node } = redisOptions(options);
  return {
    redisOptions: node,
    // Looked up, names would become addresses, which no certificate is checked against.
    ...(node.tls === undefined ? {} : { dnsLookup: keepName }),
    clusterRetryStrategy: (attempt: number) => Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS),
    maxRedirections: TRIES[options.mode],
    retryDelayOnFailover: TRY_AGAIN_MS,
    retryDelayOnClusterDown: TRY_AGAIN_MS,
  };
}

function keepName(name: string, done: (error: null, name: string) => void): void {
  done(null, name);
}

function openCluster(options: ConnectionOptions): Cluster {
  return new TypedCluster([...clusterAddressOf(options.url).nodes], clusterOptions(options));
}

/**
 * Opens a connection; errors while it is down are told to `onError` and mended by reconnecting. A cluster's client takes the same
 * commands, as long as all keys of one are in one slot.
 */
export function openConnection(options: ConnectionOptions, onError: (error: Error) => void = () => {}): Redis {
  const client = isCluster(options.url)
    ? (openCluster(options) as unknown as Redis)
    : new TypedRedis(redisOptions(options));
  client.on('error', onError);
  return client;
}

/**
 * Options of a connection to a single server, in a cluster to the node that `node` names (`host:port`) whenever it connects; to one of
 * those that the address names when it says nothing. A queue's keys are all in one slot: BullMQ's connections are such, too.
 */
export function nodeOptions(
  options: ConnectionOptions,
  node: () => string | undefined,
): ReturnType<typeof redisOptions> {
  if (!isCluster(options.url)) return redisOptions(options);
  const { nodes } = clusterAddressOf(options.url);
  let moved: string | undefined;
  const targetOf = (attempt: number): Partial<NodeAddress> => {
    const named = moved ?? node();
    moved = undefined;
    return named ? hostAndPort(named) : (nodes[attempt % nodes.length] ?? {});
  };
  const plain = redisOptions(options);
  return {
    ...plain,
    ...targetOf(0),
    // ioredis connects with what stands in its options then.
    retryStrategy(this: RedisOptions, attempt) {
      Object.assign(this, targetOf(attempt));
      return Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS);
    },
    reconnectOnError: (error) => {
      moved = /^MOVED \d+ (\S+)/.exec(error.message)?.[1];
      // And send the command again.
      return moved === undefined ? isReadOnly(error) : 2;
    },
  };
}

function hostAndPort(node: string): { readonly host: string; readonly port: number } {
  const colon = node.lastIndexOf(':');
  return { host: node.slice(0, colon), port: Number(node.slice(colon + 1)) };
}

/** Opens such a connection. */
export function openNodeConnection(
  options: ConnectionOptions,
  node: () => string | undefined,
  onError: (error: Error) => void,
): Redis {
  const client: Redis = new TypedRedis(nodeOptions(options, node));
  client.on('error', onError);
  return client;
}

/** What ioredis says of commands that come to a connection that was told to end, or wait in it. */
const CLOSED = 'Connection is closed.';

/** Ends a connection at once; commands that wait for an answer, or for the connection to come back, fail. */
export function closeConnection(client: Redis): void {
  // Told to end again, ioredis adds a listener to the socket that was, each time.
  if (client.status === 'end') return;
  const waiting = client.status === 'reconnecting';
  client.disconnect();
  // ioredis forgets those commands when it is told to stop between two tries: whoever awaits one would wait for ever.
  if (waiting) (client as unknown as { flushQueue(error: Error): void }).flushQueue(new Error(CLOSED));
}

/**
 * Opens a connection and waits until it is usable. Whoever names one node of a cluster means the cluster: the answer's address says so.
 * Throws `BACKEND_UNAVAILABLE` after `timeoutMs`, and `CONFIGURATION` for a database that the server does not have.
 */
export async function reach(
  options: ConnectionOptions,
  timeoutMs: number,
): Promise<{ readonly url: string; readonly redis: Redis }> {
  const redis = openConnection(options);
  const { url } = options;
  try {
    await whenReady(redis, timeoutMs).catch(async (error: unknown) => {
      throw explained(error, await whyUnusable(url));
    });
    if (/^redis_mode:sentinel/m.test(await redis.info('server'))) throw aSentinel();
    // Since version 7, Redis gives a user no channels by itself: a script would stop where it tells of what it has done.
    const [, cluster] = await Promise.all([redis.publish(options.name, ''), redis.info('cluster')]);
    if (isCluster(url)) return { url, redis };
    if (!/^cluster_enabled:1/m.test(cluster)) {
      await checkDatabase(redis);
      return { url, redis };
    }
  } catch (error) {
    closeConnection(redis);
    throw error;
  }
  closeConnection(redis);
  return reach({ ...options, url: clusterUrl(options.url) }, timeoutMs);
}

function explained(error: unknown, why: string | undefined): unknown {
  if (why === undefined || !(error instanceof PawlError)) return error;
  return new PawlError(error.code, `Redis cannot be used: ${why}.`, { cause: error });
}

function aSentinel(): PawlError {
  return new PawlError(
    'CONFIGURATION',
    'REDIS_URL leads to a Redis Sentinel, which keeps no records: name the server that it watches, as in redis+sentinel://host:26379/mymaster.',
  );
}

/** ioredis goes on in database 0 when the server refuses the one that the address names. */
async function checkDatabase(redis: Redis): Promise<void> {
  const { db = 0 } = redis.options;
  if (db === 0) return;
  try {
    await redis.select(db);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof PawlError) throw error;
    const message = `This Redis does not let Pawl use database ${db}, which REDIS_URL names: ${error.message}`;
    throw new PawlError('CONFIGURATION', message, { cause: error });
  }
}

function clusterBehind(redis: Redis): Cluster | undefined {
  const client: unknown = redis;
  return client instanceof Cluster ? client : undefined;
}

/** Whether a connection leads to a cluster. */
export function isClustered(redis: Redis): boolean {
  return clusterBehind(redis) !== undefined;
}

/** The servers behind a connection: itself, or a cluster's masters. */
export function serversOf(redis: Redis): readonly Redis[] {
  return clusterBehind(redis)?.nodes('master') ?? [redis];
}

/** The slot of a key, and the node that has it; undefined where there is no cluster. */
export function slotOf(redis: Redis, key: string): { readonly slot: number; readonly node: string } | undefined {
  const cluster = clusterBehind(redis);
  if (cluster === undefined) return undefined;
  const slot = new Command('get', [key]).getSlot();
  return { slot, node: cluster.slots[slot]?.[0] ?? '' };
}

/** In how many pieces a wait is measured. */
const READY_TICKS = 10;

/**
 * Resolves when the connection is usable; rejects with `BACKEND_UNAVAILABLE` after `timeoutMs` in which this process could have heard
 * so: a tick that comes late, because the machine or this process was busy, counts as one.
 */
export async function whenReady(client: Redis, timeoutMs: number): Promise<void> {
  if (client.status === 'ready') return;
  let lastError: Error | undefined;
  let timer: NodeJS.Timeout | undefined;
  const remember = (error: Error) => {
    lastError = error;
  };
  client.on('error', remember);
  try {
    await new Promise<void>((resolve, reject) => {
      let ticks = 0;
      timer = setInterval(() => {
        ticks += 1;
        if (ticks === READY_TICKS) reject(unavailable(lastError ?? new Error(`no answer within ${timeoutMs} ms`)));
      }, timeoutMs / READY_TICKS);
      client.once('ready', resolve);
    });
  } finally {
    clearInterval(timer);
    client.off('error', remember);
  }
}

const SHARED_FUNCTIONS = luaText(new URL('./shared.lua', import.meta.url));
type ScriptArgument = string | number | Buffer;

/**
 * A Lua file as a function that other scripts call with KEYS and ARGV of their own. The function is named after its file:
 * `next-fair.lua` becomes `next_fair`.
 */
export function luaFunction(file: URL): string {
  return namedLuaFunction(scriptName(file), luaText(file));
}

/** The same for a script that is not a file of its own. */
export function namedLuaFunction(name: string, lua: string): string {
  return `local function ${name.replaceAll('-', '_')}(KEYS, ARGV)\n${lua}\nend\n`;
}

/** Values that scripts know by name, as text: what never changes does not travel with each run. */
export function luaConstants(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => `local ${name} = ${JSON.stringify(String(value))}\n`)
    .join('');
}

/** A Lua file, callable on any connection. It can call the given functions; the writes that it deferred are made when it returns. */
export class Script {
  /** Of its file. */
  readonly name: string;
  readonly #lua: string;
  readonly #sha1: string;

  constructor(file: URL, functions: readonly string[] = []) {
    this.name = scriptName(file);
    this.#lua = [
      SHARED_FUNCTIONS,
      ...functions,
      namedLuaFunction('script', luaText(file)),
      'local answer = script(KEYS, ARGV)\nwriteGathered()\nreturn answer\n',
    ].join('');
    this.#sha1 = createHash('sha1').update(this.#lua).digest('hex');
  }

  /**
   * Runs the script; Redis' refusals become `BACKEND_UNAVAILABLE`, whoever opened the connection. Its text goes along the first time: a
   * server that asked for it would run it behind what the connection says next.
   */
  async run(client: Redis, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown[]> {
    const given = scriptsGivenTo(client);
    try {
      if (given.has(this)) return (await client.evalsha(this.#sha1, keys.length, ...keys, ...args)) as unknown[];
    } catch (error) {
      if (!isUnknownScript(error)) throw backendError(error);
    }
    given.add(this);
    try {
      return (await client.eval(this.#lua, keys.length, ...keys, ...args)) as unknown[];
    } catch (error) {
      throw backendError(error);
    }
  }
}

const given = new WeakMap<Redis, Set<Script>>();

/** What this connection's server has been given; behind a lost connection there may be another server. */
function scriptsGivenTo(client: Redis): Set<Script> {
  const scripts = given.get(client);
  if (scripts !== undefined) return scripts;
  const none = new Set<Script>();
  given.set(client, none);
  client.on('close', () => none.clear());
  return none;
}

/** A server that has just begun, or another node: it knows the script from then on. */
function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

function luaText(file: URL): string {
  return readOwnFile(file);
}

function scriptName(file: URL): string {
  return basename(file.pathname, '.lua');
}

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

function unavailable(cause: Error): PawlError {
  if (cause instanceof PawlError && cause.code === 'BACKEND_UNAVAILABLE') return cause;
  // Ours try again for as long as they are open: nothing is wrong with Redis.
  if (cause.message === CLOSED)
    return new PawlError('BACKEND_UNAVAILABLE', 'The connection to Redis was closed by this process.', { cause });
  // ioredis names an option of its own, and where to read of it.
  const why = cause.message.includes('max retries per request') ? 'the connection was lost.' : cause.message;
  return new PawlError('BACKEND_UNAVAILABLE', `Redis cannot be used: ${why}`, { cause });
}
