/** The ioredis options of Pawl's connections. */
import type { RedisOptions } from 'ioredis';
import { addressOf, clusterAddressOf, isCluster, type NodeAddress } from './address.ts';
import { DirectConnector, SentinelledConnector } from './ioredis/direct-connector.ts';
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

/** The options for a single server, also of the connections that BullMQ's workers use. */
export function redisOptions(options: ConnectionOptions): RedisOptions & { replyMapping: 'legacy' } {
  const address = isCluster(options.url) ? clusterNodeOf(options.url) : addressOf(options.url);
  const sharedOptions: RedisOptions & { replyMapping: 'legacy' } = {
    ...address,
    Connector: address.sentinels === undefined ? DirectConnector : SentinelledConnector,
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
    ? { ...sharedOptions, maxRetriesPerRequest: null }
    : { ...sharedOptions, maxRetriesPerRequest: 1, commandTimeout: COMMAND_TIMEOUT_MS };
}

function clusterNodeOf(url: string): RedisOptions {
  const { nodes, common } = clusterAddressOf(url);
  return { ...common, ...nodes[0] };
}

/** After a failover, reconnecting may lead to the new master. Before Redis 7, READONLY is not at the start of a script's error. */
function isReadOnly(error: Error): boolean {
  return error.message.includes('READONLY');
}

/** The delay between the tries of a command while a node fails over. */
const RETRY_DELAY_MS = 200;

const MAX_REDIRECTIONS = { 'fail-fast': 10, patient: Number.MAX_SAFE_INTEGER } as const;

/** A node's options without those that the cluster client sets. */
type ClusterNodeOptions = Omit<RedisOptions & { replyMapping: 'legacy' }, 'host' | 'port' | 'retryStrategy'>;

export function clusterOptions(options: ConnectionOptions) {
  const { host: _host, port: _port, retryStrategy: _retry, ...rest } = redisOptions(options);
  const node: ClusterNodeOptions = rest;
  return {
    redisOptions: node,
    // Names must stay names: certificates are checked against them, not against the addresses of a look-up.
    ...(node.tls !== undefined && {
      dnsLookup: (name: string, done: (error: null, name: string) => void) => done(null, name),
    }),
    clusterRetryStrategy: (attempt: number) => Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS),
    maxRedirections: MAX_REDIRECTIONS[options.mode],
    retryDelayOnFailover: RETRY_DELAY_MS,
    retryDelayOnClusterDown: RETRY_DELAY_MS,
  };
}

/**
 * Options of a connection to one server. In a cluster, it connects to the node that `node` returns (`host:port`), or to one of the address'
 * nodes when that is undefined. BullMQ's connections use them, too, because a queue's keys are all in one slot.
 */
export function nodeOptions(
  options: ConnectionOptions,
  node: () => string | undefined,
): ReturnType<typeof redisOptions> {
  if (!isCluster(options.url)) return redisOptions(options);
  const { nodes } = clusterAddressOf(options.url);
  let moved: string | undefined;
  const targetOf = (attempt: number): Partial<NodeAddress> => {
    const target = moved ?? node();
    moved = undefined;
    return target ? hostAndPort(target) : (nodes[attempt % nodes.length] ?? {});
  };
  const plain = redisOptions(options);
  return {
    ...plain,
    ...targetOf(0),
    // ioredis reads these options again whenever it connects.
    retryStrategy(this: RedisOptions, attempt) {
      Object.assign(this, targetOf(attempt));
      return Math.min(50 * attempt, MAX_RECONNECT_DELAY_MS);
    },
    reconnectOnError: (error) => {
      moved = /^MOVED \d+ (\S+)/.exec(error.message)?.[1];
      // 2 means: reconnect and send the command again.
      return moved === undefined ? isReadOnly(error) : 2;
    },
  };
}

function hostAndPort(node: string): { readonly host: string; readonly port: number } {
  const colon = node.lastIndexOf(':');
  return { host: node.slice(0, colon), port: Number(node.slice(colon + 1)) };
}
