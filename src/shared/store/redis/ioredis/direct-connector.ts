/**
 * Sockets that pass their data directly to ioredis' parser. Node's streams allocate 64 KiB outside of V8's heap for every read, so that V8
 * collects garbage more often, and deliver the data one turn of the event loop later.
 */
import { createConnection, type NetConnectOpts, type Socket } from 'node:net';
import { AbstractConnector, type RedisOptions } from 'ioredis';

/** The most that one read returns. */
const READ_BYTES = 64 * 1_024;

/** Connects ioredis to a server without TLS. */
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
    const stream: Socket = createConnection({
      ...addressIn(this.#options),
      onread: {
        buffer: Buffer.allocUnsafeSlow(READ_BYTES),
        callback: (bytes, buffer) => {
          // The parser keeps parts of the data while the rest arrives, so it gets a copy.
          stream.emit('data', Buffer.from(buffer.subarray(0, bytes)));
          return true;
        },
      },
    });
    stream.once('error', (error) => {
      this.firstError = error;
    });
    this.stream = stream;
    return stream;
  }
}

/** The address at the time of connecting: `nodeOptions` changes it between two tries. */
function addressIn({ path, host, port, family }: RedisOptions): NetConnectOpts {
  if (path) return { path };
  return { port: port ?? 6379, ...(host == null ? {} : { host }), ...(family == null ? {} : { family }) };
}
