/** Connections to Redis: opening, waiting, closing, and what is behind them. */
import type { Duplex } from 'node:stream';
import { Cluster, Command, Redis } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';
import { clusterAddressOf, clusterUrl, isCluster } from './address.ts';
import { type CommandQueues, CommandWatch } from './ioredis/command-timeout.ts';
import { GatheredWrites } from './ioredis/pipelined-writes.ts';
import { whyUnusable } from './redis-probe.ts';
import './ioredis/ioredis-promises.ts';
import { backendError, CLOSED, unavailable } from './backend-error.ts';
import { type ConnectionOptions, clusterOptions, nodeOptions, redisOptions } from './connection-options.ts';

export type { Redis } from 'ioredis';

const TYPED = Symbol('typed');

/** Makes a command reject with typed errors. False for a command that was typed before: it passes again whenever it is sent again. */
function typed(command: Command & { [TYPED]?: true }): boolean {
  if (command[TYPED]) return false;
  command[TYPED] = true;
  command.reject = rejectingTyped(command.reject);
  return true;
}

/** A function of its own, so that it can be collected early (`ioredis/README.md`). */
function rejectingTyped(reject: Command['reject']): Command['reject'] {
  return (error) => reject(backendError(error) as Error);
}

/**
 * A client that pipelines commands, keeps their time limits, and rejects every command, not only scripts, with one typed error while Redis
 * is unavailable.
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

/** The same for a cluster, whose client sends each command to the node that has its key. */
class TypedCluster extends Cluster {
  override sendCommand(command: Command, stream?: Parameters<Cluster['sendCommand']>[1], node?: unknown): unknown {
    if (typed(command)) {
      // `CommandWatch` limits the commands of a single server; here they may wait for a node first.
      const timeoutMs = this.options.redisOptions?.commandTimeout;
      if (timeoutMs !== undefined) command.setTimeout(timeoutMs);
    }
    return super.sendCommand(command, stream, node);
  }
}

function openCluster(options: ConnectionOptions): Cluster {
  return new TypedCluster([...clusterAddressOf(options.url).nodes], clusterOptions(options));
}

/**
 * Opens a connection. Errors while it is down are passed to `onError`, and it reconnects. A cluster's client takes the same commands, as
 * long as all keys of a command are in one slot.
 */
export function openConnection(options: ConnectionOptions, onError: (error: Error) => void = () => {}): Redis {
  const client = isCluster(options.url)
    ? (openCluster(options) as unknown as Redis)
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

/** Ends a connection at once; commands that wait for an answer, or for the connection to come back, fail. */
export function closeConnection(client: Redis): void {
  // Each further `disconnect` would add a listener to the old socket.
  if (client.status === 'end') return;
  const waiting = client.status === 'reconnecting';
  client.disconnect();
  // ioredis drops these commands when it is disconnected between two tries: their callers would wait for ever.
  if (waiting) (client as unknown as { flushQueue(error: Error): void }).flushQueue(new Error(CLOSED));
}

/**
 * Opens a connection and waits until it is usable. An address of one node of a cluster stands for the cluster; the returned URL says so.
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
