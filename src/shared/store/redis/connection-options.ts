/** The options of a connection: how ioredis behaves for Pawl. */
import type { RedisOptions } from 'ioredis';
import { addressOf, clusterAddressOf, isCluster, type NodeAddress } from './address.ts';
import { DirectConnector } from './ioredis/direct-connector.ts';
import './ioredis/ioredis-promises.ts';

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
    // A `Subscription` subscribes again by itself.
    autoResubscribe: false,
    reconnectOnError: isReadOnly,
    connectTimeout: 5_000,
    socketTimeout: options.socketTimeoutMs ?? (options.mode === 'patient' ? PATIENT_SILENCE_MS : FAIL_FAST_SILENCE_MS),
  };
  return options.mode === 'patient'
    ? { ...common, maxRetriesPerRequest: null }
    : { ...common, maxRetriesPerRequest: 1, commandTimeout: COMMAND_TIMEOUT_MS };
}

function clusterNodeOf(url: string): RedisOptions {
  const { nodes, common } = clusterAddressOf(url);
  return { ...common, ...nodes[0] };
}

/** After a failover the address may lead elsewhere by now. Before version 7, a script's own words stand before Redis'. */
function isReadOnly(error: Error): boolean {
  return error.message.includes('READONLY');
}

/** How long a command is tried again while a node fails over: a producer's caller waits, a worker has the time. */
const TRY_AGAIN_MS = 200;

const TRIES = { 'fail-fast': 10, patient: Number.MAX_SAFE_INTEGER } as const;

/** A node's options without what the cluster's client decides. */
type ClusterNodeOptions = Omit<RedisOptions & { replyMapping: 'legacy' }, 'host' | 'port' | 'retryStrategy'>;

export function clusterOptions(options: ConnectionOptions) {
  const { host: _host, port: _port, retryStrategy: _retry, ...rest } = redisOptions(options);
  const node: ClusterNodeOptions = rest;
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
