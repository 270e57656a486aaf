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
  /** Asked again before each reading: there may be more by then. */
  places(): readonly Place[];
  onEvent(event: InboxEvent): void;
  /** The connection was away: events may have been lost. */
  onGap(): void;
  onError(error: Error): void;
}

export class InboxReader {
  readonly #options: InboxReaderOptions;
  readonly #client: Redis;
  #closed = false;
  #takesMany = true;
  #reading: Promise<void> = Promise.resolve();

  private constructor(options: InboxReaderOptions, client: Redis) {
    this.#options = options;
    this.#client = client;
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

  /** Delivers what is there, and asks for more meanwhile. */
  async #readOnce(): Promise<void> {
    let events = await this.#pop();
    while (!this.#closed) {
      const next = this.#pop();
      for (const event of events) this.#deliver(event);
      events = await next;
    }
  }

  /** Blocks until there are events, and takes all of one place: who is woken once for many calls goes on with them together. */
  async #pop(): Promise<readonly string[]> {
    const { prefix, id, places } = this.#options;
    const keys = places().map((place) => new PlaceKeys(prefix, place).inbox(id));
    if (this.#takesMany) {
      try {
        const popped = await this.#client.blmpop(BLOCK_SECONDS, keys.length, keys, 'LEFT', 'COUNT', BATCH);
        return popped?.[1] ?? [];
      } catch (error) {
        // Redis 6.2 has no such command.
        if (!/unknown command/i.test((error as Error).message)) throw error;
        this.#takesMany = false;
      }
    }
    const popped = await this.#client.blpop(keys, BLOCK_SECONDS);
    if (popped === null) return [];
    const [key, first] = popped;
    return [first, ...((await this.#client.lpop(key, BATCH)) ?? [])];
  }

  /** What cannot be delivered must not cost the events behind it, which nobody else gets any more. */
  #deliver(text: string): void {
    try {
      this.#options.onEvent(JSON.parse(text) as InboxEvent);
    } catch (error) {
      this.#options.onError(error as Error);
      this.#options.onGap();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    closeConnection(this.#client);
    await this.#reading.catch(() => {});
  }
}
