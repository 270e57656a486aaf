/**
 * Where one producer hears of its own calls. One list for each place, read by one blocking connection; what a cut connection
 * loses, the reader's owner gets from the records (`onGap`).
 */
import { type Place, PlaceKeys } from './keys.ts';
import { closeConnection, openConnection, type Redis } from './redis.ts';

export type InboxEvent =
  | {
      readonly type: 'settled';
      readonly callId: string;
      readonly state: string;
      /** When the call ended, on Redis' clock. Absent where one process keeps the records. */
      readonly atMs?: number;
      readonly outcome?: unknown;
      readonly signature?: string;
    }
  | {
      readonly type: 'progress';
      readonly callId: string;
      readonly progress: number;
      readonly total?: number;
      readonly message?: string;
    }
  /** Only for those who follow the call. */
  | { readonly type: 'attempt'; readonly callId: string }
  | {
      readonly type: 'retrying';
      readonly callId: string;
      readonly attempt: number;
      readonly delayMs: number;
      readonly reasonCode: string;
    };

const BLOCK_SECONDS = 5;
/** Nothing heard for this long, not even the end of a blocking read: the connection is dead. */
const SILENCE_MS = 8_000;
const BATCH = 500;

export interface InboxReaderOptions {
  readonly url: string;
  readonly prefix: string;
  readonly id: string;
  readonly places: readonly Place[];
  onEvent(event: InboxEvent): void;
  /** The connection was away: events may have been lost. */
  onGap(): void;
  onError(error: Error): void;
}

export class InboxReader {
  readonly #options: InboxReaderOptions;
  readonly #client: Redis;
  readonly #keys: readonly string[];
  #closed = false;
  #reading: Promise<void> = Promise.resolve();

  private constructor(options: InboxReaderOptions, client: Redis) {
    this.#options = options;
    this.#client = client;
    this.#keys = options.places.map((place) => new PlaceKeys(options.prefix, place).inbox(options.id));
  }

  static open(options: InboxReaderOptions): InboxReader {
    const client = openConnection(
      { url: options.url, name: `${options.prefix}:inbox:${options.id}`, mode: 'patient', socketTimeoutMs: SILENCE_MS },
      options.onError,
    );
    const reader = new InboxReader(options, client);
    let connectedBefore = false;
    client.on('ready', () => {
      if (connectedBefore) options.onGap();
      connectedBefore = true;
    });
    reader.#reading = reader.#readLoop();
    return reader;
  }

  async #readLoop(): Promise<void> {
    while (!this.#closed) {
      try {
        await this.#readOnce();
      } catch (error) {
        if (this.#closed) return;
        this.#options.onError(error as Error);
        this.#options.onGap();
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  /** Blocks for the first event, then takes what has gathered since, together with the next blocking read. */
  async #readOnce(): Promise<void> {
    let popped = await this.#client.blpop([...this.#keys], BLOCK_SECONDS);
    while (popped !== null && !this.#closed) {
      const [key, first] = popped;
      this.#deliver(first);
      const more = this.#client.lpop(key, BATCH);
      const next = this.#client.blpop([...this.#keys], BLOCK_SECONDS);
      // When the connection ends here, the first of the two is enough to hear of it.
      next.catch(() => {});
      for (const event of (await more) ?? []) this.#deliver(event);
      popped = await next;
    }
  }

  #deliver(text: string): void {
    this.#options.onEvent(JSON.parse(text) as InboxEvent);
  }

  async close(): Promise<void> {
    this.#closed = true;
    closeConnection(this.#client);
    await this.#reading.catch(() => {});
  }
}
