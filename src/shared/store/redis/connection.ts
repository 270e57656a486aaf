/** Opens, checks and closes connections to Redis. */
import type { Duplex } from 'node:stream';
import { Command, Redis } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';
import { withinMs } from '../../util/wait.ts';
import { clusterAddressOf, clusterUrl, isCluster } from './address.ts';
import { type CommandQueues, CommandTimeouts } from './ioredis/command-timeout.ts';
import { PipelinedWrites } from './ioredis/pipelined-writes.ts';
import { unusableReason } from './redis-probe.ts';
import './ioredis/ioredis-promises.ts';
import { CLOSED, typeErrors, unavailable, unusableError } from './backend-error.ts';
import { TypedCluster } from './cluster.ts';
import { type ConnectionOptions, clusterOptions, nodeOptions, redisOptions } from './connection-options.ts';

export type { Redis } from 'ioredis';

/**
 * A client that pipelines commands, enforces their time limits, and rejects every command with a typed error while Redis is unavailable.
 */
class TypedRedis extends Redis {
  readonly #writes: PipelinedWrites;
  readonly #watch: CommandTimeouts;

  constructor({ commandTimeout, socketTimeout, ...options }: ReturnType<typeof redisOptions>) {
    super(options);
    this.info = quietInfo(this.info.bind(this) as AskInfo) as Redis['info'];
    this.#writes = new PipelinedWrites(() => this.#unanswered);
    const queues = this as unknown as CommandQueues;
    this.#watch = new CommandTimeouts(queues, { commandMs: commandTimeout, silenceMs: socketTimeout });
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
    if (typeErrors(command)) this.#watch.start(command);
    const unansweredBefore = this.#unanswered;
    const answer = super.sendCommand(command, stream);
    this.#writes.addCommands(this.#unanswered - unansweredBefore);
    return answer;
  }
}

type AskInfo = (...args: unknown[]) => unknown;

/**
 * INFO for ioredis' check whether Redis has loaded its data, which alone passes a callback. Where the user may not ask INFO, ioredis
 * writes so on standard error, for each connection, and takes Redis for loaded; without the warning, Pawl's own check reports it.
 */
function quietInfo(ask: AskInfo): AskInfo {
  return (...args) => {
    const answer = args.at(-1);
    if (typeof answer !== 'function') return ask(...args);
    return ask(...args.slice(0, -1), (error: Error | null, text: unknown) =>
      error?.message.includes('NOPERM') === true ? answer(null, '') : answer(error, text),
    );
  };
}

/**
 * Opens a connection that reconnects by itself, and passes errors to `onError`. A cluster client accepts the same commands, if all keys of
 * a command are in one slot.
 */
export function openConnection(options: ConnectionOptions, onError: (error: Error) => void = () => {}): Redis {
  const client = isCluster(options.url)
    ? (new TypedCluster(clusterAddressOf(options.url).nodes, clusterOptions(options)) as unknown as Redis)
    : new TypedRedis(redisOptions(options));
  client.on('error', onError);
  return client;
}

export function openNodeConnection(
  options: ConnectionOptions,
  node: () => string | undefined,
  onError: (error: Error) => void,
): Redis {
  const client: Redis = new TypedRedis(nodeOptions(options, node));
  client.on('error', onError);
  return client;
}

/** Closes a connection at once. Commands without an answer fail. */
export function closeConnection(client: Redis): void {
  // Each further `disconnect` would add a listener to the old socket.
  if (client.status === 'end') return;
  const waiting = client.status === 'reconnecting';
  client.disconnect();
  // ioredis drops these commands when it is disconnected between two tries, and their callers would wait for ever.
  if (waiting) (client as unknown as { flushQueue(error: Error): void }).flushQueue(new Error(CLOSED));
}

/**
 * Opens a connection and waits until it is usable. For a single node of a cluster, it connects to the cluster and returns its URL.
 * Throws `BACKEND_UNAVAILABLE` after `timeoutMs`, and `CONFIGURATION` for a database that the server does not have.
 */
export async function connectVerified(
  options: ConnectionOptions,
  timeoutMs: number,
): Promise<{ readonly url: string; readonly redis: Redis }> {
  const redis = openConnection(options);
  const { url } = options;
  try {
    await awaitReady(redis, timeoutMs).catch(async (error: unknown) => {
      throw explainedError(error, await unusableReason(url));
    });
    await clusterOf(redis)?.awaitMasters(timeoutMs);
    if (!(await answeredInTime(isNodeOfCluster(redis, options), url))) return { url, redis };
  } catch (error) {
    closeConnection(redis);
    throw error;
  }
  closeConnection(redis);
  return connectVerified({ ...options, url: clusterUrl(options.url) }, timeoutMs);
}

/** Whether a cluster's client must replace this connection. */
async function isNodeOfCluster(redis: Redis, { url, name }: ConnectionOptions): Promise<boolean> {
  const server: unknown = await redis.info('server');
  if (typeof server !== 'string' || !server.includes('redis_version:'))
    throw new PawlError('BACKEND_UNAVAILABLE', 'Redis cannot be used: what answers there to INFO is no Redis.');
  // Valkey names it `server_mode`.
  if (/^(?:redis|server)_mode:sentinel/m.test(server)) throw sentinelError();
  // Since version 7, a Redis user has no channels by default: a script would fail at its PUBLISH, after its writes.
  const [, cluster] = await Promise.all([redis.publish(name, ''), redis.info('cluster')]);
  if (isCluster(url)) return false;
  if (/^cluster_enabled:1/m.test(cluster)) return true;
  await checkDatabase(redis);
  return false;
}

function explainedError(error: unknown, reason: string | undefined): unknown {
  if (reason === undefined || !(error instanceof PawlError)) return error;
  return new PawlError(error.code, `Redis cannot be used: ${reason}.`, { cause: error });
}

/** A worker may start together with its Redis. */
const ANSWERED_MS = 15_000;

/**
 * Limits the wait at a start for connections that send a command again and again until Redis answers, as a worker's do. Throws
 * `BACKEND_UNAVAILABLE` with the reason.
 */
export async function answeredInTime<Value>(answered: Promise<Value>, url: string): Promise<Value> {
  const answer = await withinMs(
    answered.then((value) => ({ value })),
    ANSWERED_MS,
  );
  if (answer === undefined)
    throw explainedError(unavailable(new Error(`no answer within ${ANSWERED_MS} ms`)), await unusableReason(url));
  return answer.value;
}

function sentinelError(): PawlError {
  return new PawlError(
    'CONFIGURATION',
    'REDIS_URL leads to a Redis Sentinel, which stores no data: name the server that it watches, as in redis+sentinel://host:26379/mymaster.',
  );
}

/** ioredis silently uses database 0 when the server refuses the database of the address. */
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

/** The server's clock, milliseconds since the epoch. */
export async function serverTimeMs(redis: Pick<Redis, 'time'>): Promise<number> {
  return Math.floor(await exactServerTimeMs(redis));
}

/** The same with fractions of a millisecond. Throws `BACKEND_UNAVAILABLE` for an answer that is no time, as a proxy may give one. */
export async function exactServerTimeMs(redis: Pick<Redis, 'time'>): Promise<number> {
  const answer: unknown = await redis.time();
  const [seconds, microseconds]: unknown[] = Array.isArray(answer) ? answer : [];
  const timeMs = Number(seconds) * 1_000 + Number(microseconds) / 1_000;
  if (!(timeMs > 0)) throw unusableError('time', answer);
  return timeMs;
}

function clusterOf(redis: Redis): TypedCluster | undefined {
  const client: unknown = redis;
  return client instanceof TypedCluster ? client : undefined;
}

export function isClustered(redis: Redis): boolean {
  return clusterOf(redis) !== undefined;
}

/** The servers behind a connection: itself, or a cluster's masters. */
export function serversOf(redis: Redis): readonly Redis[] {
  return clusterOf(redis)?.nodes('master') ?? [redis];
}

/** The slot of a key, and the node that has it; undefined where there is no cluster. */
export function slotOf(redis: Redis, key: string): { readonly slot: number; readonly node: string } | undefined {
  const cluster = clusterOf(redis);
  if (cluster === undefined) return undefined;
  const slot = new Command('get', [key]).getSlot();
  return { slot, node: cluster.slots[slot]?.[0] ?? '' };
}

/** The number of timer ticks in a wait. */
const READY_TICKS = 10;

/**
 * Resolves when the connection is usable; rejects with `BACKEND_UNAVAILABLE` after `timeoutMs`. The time is counted in ticks, so that the
 * time in which a busy process could not read the answer does not count.
 */
export async function awaitReady(client: Redis, timeoutMs: number): Promise<void> {
  if (client.status === 'ready') return;
  let lastError: Error | undefined;
  let closes = false;
  let timer: NodeJS.Timeout | undefined;
  const remember = (error: Error) => {
    lastError = error;
  };
  const rememberClose = () => {
    closes = true;
  };
  client.on('error', remember);
  client.on('close', rememberClose);
  try {
    await new Promise<void>((resolve, reject) => {
      let ticks = 0;
      timer = setInterval(() => {
        ticks += 1;
        const silence = closes ? closedReason(client) : `no answer within ${timeoutMs} ms`;
        if (ticks === READY_TICKS) reject(unavailable(lastError ?? new Error(silence)));
      }, timeoutMs / READY_TICKS);
      client.once('ready', resolve);
    });
  } finally {
    clearInterval(timer);
    client.off('error', remember);
    client.off('close', rememberClose);
  }
}

/** The reason why a connection is closed again and again, without an error. */
function closedReason(client: Redis): string {
  return clusterOf(client)?.closedReason() ?? 'it closes each connection without an answer';
}
