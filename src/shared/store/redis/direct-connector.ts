/**
 * Sockets whose data goes straight to whoever parses it. Node's own way asks for 64 KiB with every read, memory outside of V8's heap
 * that makes it collect all of that, and for another turn of the event loop behind it.
 */
import { createConnection, type NetConnectOpts, type Socket } from 'node:net';
import { AbstractConnector, type RedisOptions } from 'ioredis';

/** As much as the kernel gives at a time. */
const READ_BYTES = 64 * 1_024;

/** Connects ioredis to a server without TLS. */
export class DirectConnector extends AbstractConnector {
  readonly #options: RedisOptions;

  constructor(options: unknown) {
    const own = options as RedisOptions & { readonly disconnectTimeout: number };
    super(own.disconnectTimeout);
    this.#options = own;
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
          // A copy: what is parsed may be a part of it, and is kept while the rest comes.
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

/** As they are now: whoever connects again may have changed them. */
function addressIn({ path, host, port, family }: RedisOptions): NetConnectOpts {
  if (path) return { path };
  return { port: port ?? 6379, ...(host == null ? {} : { host }), ...(family == null ? {} : { family }) };
}
