/**
 * The inbox of one producer: a channel for the events of its calls, and in each partition a list of the events that were sent while it did
 * not listen. After a cut connection, the owner reads the records instead (`onGap`).
 */
import type { Progress } from '../../tools/tool-context.ts';
import { isClustered, type Redis, slotOf } from '../redis/connection.ts';
import { FleetKeys, type Partition, PartitionKeys } from '../redis/keys.ts';
import { Subscription } from '../redis/subscription.ts';

export interface SettledEvent {
  readonly type: 'settled';
  readonly callId: string;
  readonly state: string;
  /** When the call ended, on Redis' clock. Absent in local runs. */
  readonly atMs?: number;
  readonly outcome?: unknown;
  /** In place of a larger outcome, the ID of the text that holds it. */
  readonly textId?: string;
  /** The signature of the outcome, also of one that is not in the event. */
  readonly signature?: string;
}

export type InboxEvent =
  | SettledEvent
  | ({ readonly type: 'progress'; readonly callId: string } & Progress)
  | { readonly type: 'pending'; readonly callId: string; readonly expiresAtMs: number }
  /** Sent only to producers that follow the call. */
  | { readonly type: 'attempt'; readonly callId: string }
  | {
      readonly type: 'retrying';
      readonly callId: string;
      readonly attempt: number;
      readonly delayMs: number;
      readonly reasonCode: string;
    };

const BATCH = 500;

interface InboxReaderOptions {
  readonly url: string;
  /** Reads events that were stored while the producer did not listen. */
  readonly redis: Redis;
  readonly prefix: string;
  readonly id: string;
  /** The partitions that may have stored events. */
  partitions(): readonly Partition[];
  onEvent(event: InboxEvent): void;
  /** The connection was away: events may have been lost. */
  onGap(): void;
  onError(error: Error): void;
}

export class InboxReader {
  readonly #options: InboxReaderOptions;
  readonly #subscriptions = new Map<string, Subscription>();
  #closed = false;

  private constructor(options: InboxReaderOptions) {
    this.#options = options;
  }

  static open(options: InboxReaderOptions): InboxReader {
    const reader = new InboxReader(options);
    reader.follow();
    return reader;
  }

  /** Subscribes to the inboxes of all current partitions. */
  follow(): void {
    const { prefix, id, partitions, redis } = this.#options;
    if (this.#closed) return;
    if (!isClustered(redis)) this.#listen(new FleetKeys(prefix).inbox(id), partitions);
    // In a cluster, a script counts only the subscribers of its own node.
    for (const partition of isClustered(redis) ? partitions() : []) {
      const key = new PartitionKeys(prefix, partition).inbox(id);
      this.#listen(
        key,
        () => [partition],
        () => slotOf(redis, key)?.node,
      );
    }
  }

  #listen(
    channel: string,
    partitions: () => readonly Partition[],
    node: () => string | undefined = () => undefined,
  ): void {
    if (this.#subscriptions.has(channel)) return;
    const { url, prefix, id, onError } = this.#options;
    let subscribedBefore = false;
    const subscription = Subscription.open({
      url,
      name: `${prefix}:inbox:${id}`,
      channels: () => [channel],
      node,
      onMessage: (text) => this.#deliver(text),
      onSubscribed: () => {
        if (subscribedBefore) this.#options.onGap();
        subscribedBefore = true;
        this.#catchUp(partitions()).catch((error: Error) => this.#reportLoss(error));
      },
      onError,
    });
    this.#subscriptions.set(channel, subscription);
  }

  /** Delivers the stored events; later ones arrive on the channel. */
  async #catchUp(partitions: readonly Partition[]): Promise<void> {
    const { prefix, id, redis } = this.#options;
    for (const partition of partitions) {
      const key = new PartitionKeys(prefix, partition).inbox(id);
      for (let events: string[] | null = []; events !== null && !this.#closed; ) {
        for (const event of events) this.#deliver(`[${event}]`);
        events = await redis.lpop(key, BATCH);
      }
    }
  }

  /** Delivers the events of a message. A failing one must not stop those behind it, which are read only once. */
  #deliver(text: string): void {
    if (this.#closed) return;
    try {
      for (const event of JSON.parse(text) as InboxEvent[]) this.#emit(event);
    } catch (error) {
      this.#reportLoss(error as Error);
    }
  }

  #emit(event: InboxEvent): void {
    try {
      this.#options.onEvent(event);
    } catch (error) {
      this.#reportLoss(error as Error);
    }
  }

  #reportLoss(error: Error): void {
    if (this.#closed) return;
    this.#options.onError(error);
    this.#options.onGap();
  }

  close(): void {
    this.#closed = true;
    for (const subscription of this.#subscriptions.values()) subscription.close();
  }
}
