/**
 * What all processes should hear of: circuits that change, calls to cancel, sessions that close, tools that come and go.
 * A channel forgets; whoever listens reads the records again after a gap.
 */
import type { CircuitNews } from './breakers.ts';
import { FleetKeys } from './keys.ts';
import { openConnection, type Redis } from './redis.ts';

export type News =
  | CircuitNews
  | { readonly type: 'cancel'; readonly callId: string; readonly because: string }
  | { readonly type: 'session'; readonly sessionKey: string }
  | { readonly type: 'catalogue' };

export interface NewsListenerOptions {
  readonly url: string;
  readonly prefix: string;
  readonly name: string;
  onNews(news: News): void;
  /** Subscribed, for the first time or again: read what the channel cannot repeat. */
  onSubscribed(): void;
  onError(error: Error): void;
}

export class NewsListener {
  readonly #client: Redis;

  private constructor(client: Redis) {
    this.#client = client;
  }

  static open(options: NewsListenerOptions): NewsListener {
    const client = openConnection(
      { url: options.url, name: `${options.prefix}:news:${options.name}`, mode: 'patient' },
      options.onError,
    );
    const channel = new FleetKeys(options.prefix).news;
    client.on('message', (_channel, text) => options.onNews(JSON.parse(text) as News));
    client.on('ready', () => {
      client.subscribe(channel).then(
        () => options.onSubscribed(),
        (error: Error) => options.onError(error),
      );
    });
    return new NewsListener(client);
  }

  close(): void {
    this.#client.disconnect();
  }
}

export async function publishNews(redis: Redis, prefix: string, news: News): Promise<void> {
  await redis.publish(new FleetKeys(prefix).news, JSON.stringify(news));
}
