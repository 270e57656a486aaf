/** A connection that subscribes to some channels. Pub/sub keeps nothing: after a gap, the subscriber reads the records instead. */
import { closeConnection, openNodeConnection, type Redis } from './connection.ts';

export interface SubscriptionOptions {
  readonly url: string;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  /** Asked whenever it subscribes. */
  channels(): readonly string[];
  /** In a cluster: the node that publishes (`host:port`), where a script counts who listens. Default: any. */
  node?(): string | undefined;
  onMessage(text: string, channel: string): void;
  /** Subscribed, for the first time or again after the connection was away. */
  onSubscribed(): void;
  onError(error: Error): void;
}

/** A subscription sends no commands by itself; a PING now and then shows that the server is still there. */
const ASK_MS = 5_000;
/** After Redis has refused it, as it does while the user may not use the channel. */
const SUBSCRIBE_AGAIN_MS = 1_000;

export class Subscription {
  readonly #client: Redis;
  readonly #timer: NodeJS.Timeout;

  private constructor(client: Redis, node: () => string | undefined) {
    this.#client = client;
    this.#timer = setInterval(() => {
      if (client.status !== 'ready') return;
      const { host, port } = client.options;
      // Another one publishes by now.
      if ((node() ?? `${host}:${port}`) !== `${host}:${port}`) client.disconnect(true);
      else client.ping().catch(() => {});
    }, ASK_MS);
    this.#timer.unref();
  }

  static open({ url, name, channels, node = () => undefined, ...options }: SubscriptionOptions): Subscription {
    const about = { url, name, mode: 'patient', socketTimeoutMs: ASK_MS } as const;
    const client = openNodeConnection(about, node, options.onError);
    client.on('message', (channel, text) => {
      // An error here would end the parsing of the data that came with it.
      try {
        options.onMessage(text, channel);
      } catch (error) {
        options.onError(error as Error);
      }
    });
    let again: NodeJS.Timeout | undefined;
    const subscribe = () => {
      clearTimeout(again);
      if (client.status !== 'ready') return;
      client.subscribe(...channels()).then(
        () => options.onSubscribed(),
        (error: Error) => {
          options.onError(error);
          again = setTimeout(subscribe, SUBSCRIBE_AGAIN_MS).unref();
        },
      );
    };
    client.on('ready', subscribe);
    return new Subscription(client, node);
  }

  /** Nothing is heard any more; what was published until then has been. */
  async leave(): Promise<void> {
    await this.#client.unsubscribe();
  }

  close(): void {
    clearInterval(this.#timer);
    closeConnection(this.#client);
  }
}
