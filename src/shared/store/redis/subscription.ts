/** A connection that subscribes to channels. Pub/sub stores nothing: after a gap, the subscriber reads the records instead. */
import { closeConnection, openNodeConnection, type Redis } from './connection.ts';

export interface SubscriptionOptions {
  readonly url: string;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  /** Called whenever it subscribes. */
  channels(): readonly string[];
  /** In a cluster: the node on which scripts publish (`host:port`), and count subscribers. Default: any. */
  node?(): string | undefined;
  onMessage(text: string, channel: string): void;
  /** Called when the connection is lost: messages are missed until `onSubscribed`. */
  onLost?(): void;
  /** Called after each subscription, also after a reconnect. */
  onSubscribed(): void;
  onError(error: Error): void;
}

/** A subscription sends no commands by itself; a PING now and then shows that the server is still there. */
const PING_MS = 5_000;
/** The delay before subscribing again, after Redis refused it, as for a user without rights to the channel. */
const RESUBSCRIBE_MS = 1_000;

export class Subscription {
  readonly #client: Redis;
  readonly #timer: NodeJS.Timeout;

  private constructor(client: Redis, node: () => string | undefined) {
    this.#client = client;
    this.#timer = setInterval(() => {
      if (client.status !== 'ready') return;
      const { host, port } = client.options;
      // The slot has moved: another node publishes now.
      if ((node() ?? `${host}:${port}`) !== `${host}:${port}`) client.disconnect(true);
      else client.ping().catch(() => {});
    }, PING_MS).unref();
  }

  static open({ url, name, channels, node = () => undefined, ...options }: SubscriptionOptions): Subscription {
    const connectionOptions = { url, name, mode: 'patient', socketTimeoutMs: PING_MS } as const;
    const client = openNodeConnection(connectionOptions, node, options.onError);
    client.on('message', (channel, text) => {
      // An exception here would stop ioredis from parsing the rest of the data.
      try {
        options.onMessage(text, channel);
      } catch (error) {
        options.onError(error as Error);
      }
    });
    let retryTimer: NodeJS.Timeout | undefined;
    const subscribe = () => {
      clearTimeout(retryTimer);
      if (client.status !== 'ready') return;
      client.subscribe(...channels()).then(
        () => options.onSubscribed(),
        (error: Error) => {
          options.onError(error);
          retryTimer = setTimeout(subscribe, RESUBSCRIBE_MS).unref();
        },
      );
    };
    client.on('ready', subscribe);
    client.on('close', () => options.onLost?.());
    return new Subscription(client, node);
  }

  /** Resolves when all messages that were published before have arrived; none arrives after that. */
  async unsubscribe(): Promise<void> {
    // A connection that still waits for Redis has no subscription, and shall get none.
    if (this.#client.status === 'ready') await this.#client.unsubscribe();
    else this.close();
  }

  close(): void {
    clearInterval(this.#timer);
    closeConnection(this.#client);
  }
}
