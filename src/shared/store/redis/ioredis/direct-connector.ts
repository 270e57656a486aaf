/**
 * Sockets that pass their data directly to ioredis' parser. Node's streams allocate 64 KiB outside of V8's heap for every read, so that V8
 * collects garbage more often, and deliver the data one turn of the event loop later. With TLS, Node's stream is used as it is.
 */
import { createConnection, type NetConnectOpts, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import { AbstractConnector, type Redis, type RedisOptions, SentinelConnector } from 'ioredis';

/** The most that one read returns. */
const READ_BYTES = 64 * 1_024;

/** Connects ioredis to one server. */
export class DirectConnector extends AbstractConnector {
  readonly #options: RedisOptions;

  constructor(options: unknown) {
    const redisOptions = options as RedisOptions & { readonly disconnectTimeout: number };
    super(redisOptions.disconnectTimeout);
    this.#options = redisOptions;
  }

  async connect(): Promise<Socket> {
    this.connecting = true;
    await new Promise<void>((resolve) => process.nextTick(resolve));
    if (!this.connecting) throw new Error('Connection is closed.');
    const stream = openSocket(this.#options);
    stream.once('error', (error) => {
      this.firstError = error;
    });
    this.stream = stream;
    return surviveErrors(stream);
  }
}

/** A private part of `SentinelConnector`. Without a listener, ioredis writes each error of such a client on standard error. */
interface SentinelClients {
  connectToSentinel(endpoint: unknown, options?: RedisOptions): Redis;
}

/**
 * Connects ioredis to the server that sentinels name, and to the next one as soon as a sentinel announces it. The old master takes writes
 * for some ten seconds more when its sentinels fail it over while it lives, and then forgets them.
 */
export class SentinelledConnector extends SentinelConnector {
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
    const clients = this as unknown as SentinelClients;
    const open = clients.connectToSentinel.bind(this);
    clients.connectToSentinel = (endpoint, more) => {
      const client = open(endpoint, { ...more, Connector: DirectConnector });
      // The connection that a failed Sentinel leaves is closed and made again, and the others answer meanwhile.
      return client.on('error', () => {});
    };
  }

  override async connect(...parameters: Parameters<SentinelConnector['connect']>) {
    this.options.failoverDetector = true;
    return surviveErrors(await super.connect(...parameters));
  }

  /** A connection that is closed before it is made would otherwise listen to sentinels for ever. */
  override disconnect(): void {
    this.options.failoverDetector = false;
    super.disconnect();
  }
}

/**
 * ioredis listens to the first error of a socket alone. A TLS socket can have a second one, such as an alert that arrives after a write has
 * failed, and an error without a listener ends the process.
 */
function surviveErrors<T extends NodeJS.EventEmitter>(stream: T): T {
  stream.on('error', () => {});
  return stream;
}

function openSocket(options: RedisOptions): Socket {
  if (options.tls) return connectSecurely({ ...addressIn(options), ...options.tls });
  const stream: Socket = createConnection({
    ...addressIn(options),
    onread: {
      buffer: Buffer.allocUnsafeSlow(READ_BYTES),
      callback: (bytes, buffer) => {
        // The parser keeps parts of the data while the rest arrives, so it gets a copy.
        stream.emit('data', Buffer.from(buffer.subarray(0, bytes)));
        return true;
      },
    },
  });
  return stream;
}

/** The address at the time of connecting: `nodeOptions` changes it between two tries. */
function addressIn({ path, host, port, family }: RedisOptions): NetConnectOpts {
  if (path) return { path };
  return { port: port ?? 6379, ...(host == null ? {} : { host }), ...(family == null ? {} : { family }) };
}
