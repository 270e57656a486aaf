/**
 * A connection that hears what is published on some channels. A channel forgets: who was away reads what it told of elsewhere.
 */
import { closeConnection, openConnection, type Redis } from './redis.ts';

export interface SubscriptionOptions {
  readonly url: string;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  readonly channels: readonly string[];
  onMessage(text: string, channel: string): void;
  /** Subscribed, for the first time or again after the connection was away. */
  onSubscribed(): void;
  onError(error: Error): void;
}

/** A subscription has nothing to say by itself; a question now and then shows that somebody is there. */
const ASK_MS = 5_000;

export class Subscription {
  readonly #client: Redis;
  readonly #timer: NodeJS.Timeout;

  private constructor(client: Redis) {
    this.#client = client;
    this.#timer = setInterval(() => {
      if (client.status === 'ready') client.ping().catch(() => {});
    }, ASK_MS);
    this.#timer.unref();
  }

  static open({ url, name, channels, ...options }: SubscriptionOptions): Subscription {
    const client = openConnection({ url, name, mode: 'patient', socketTimeoutMs: ASK_MS }, options.onError);
    client.on('message', (channel, text) => options.onMessage(text, channel));
    client.on('ready', () => {
      client.subscribe(...channels).then(
        () => options.onSubscribed(),
        (error: Error) => options.onError(error),
      );
    });
    return new Subscription(client);
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
