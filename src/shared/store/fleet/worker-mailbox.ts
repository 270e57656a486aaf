/**
 * Messages between workers: a list for each worker, read by a separate blocking connection. A sender can withdraw an unread message.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Signatures } from '../../signing/signatures.ts';
import { closeConnection, openConnection, type Redis } from '../redis/connection.ts';
import { FleetKeys } from '../redis/keys.ts';
import { signedMessage, verifiedMessage } from '../signing/signed-text.ts';

const BLOCK_SECONDS = 5;
/** Without any reply for this long, not even the timeout of a blocking read, the connection is dead. */
const SILENCE_MS = 8_000;
const UNREAD_TTL_MS = 60_000;

interface WorkerMailboxOptions {
  /** For sending. */
  readonly redis: Redis;
  /** The address for the blocking connection. */
  readonly url: string;
  readonly prefix: string;
  readonly signatures: Signatures;
  readonly workerId: string;
}

export class WorkerMailbox {
  readonly #options: WorkerMailboxOptions;
  readonly #keys: FleetKeys;
  #reader: Redis | undefined;
  #reading: Promise<void> = Promise.resolve();

  constructor(options: WorkerMailboxOptions) {
    this.#options = options;
    this.#keys = new FleetKeys(options.prefix);
  }

  /** Starts reading. It must be called before a message that expects an answer is sent; a second call does nothing. */
  open(onMessage: (message: unknown) => void, onError: (error: Error) => void): void {
    if (this.#reader !== undefined) return;
    const { url, prefix, workerId } = this.#options;
    const name = `${prefix}:mail:${workerId}`;
    const reader = openConnection({ url, name, mode: 'patient', socketTimeoutMs: SILENCE_MS }, onError);
    this.#reader = reader;
    this.#reading = this.#read(reader, onMessage, onError);
  }

  async #read(reader: Redis, onMessage: (message: unknown) => void, onError: (error: Error) => void): Promise<void> {
    const { signatures, workerId } = this.#options;
    while (this.#reader === reader) {
      try {
        const popped = await reader.blpop(this.#keys.mail(workerId), BLOCK_SECONDS);
        if (popped === null) continue;
        const message = verifiedMessage(signatures, `worker ${workerId}`, popped[1]);
        if (message !== undefined) onMessage(message);
      } catch (error) {
        if (this.#reader !== reader) return;
        onError(error as Error);
        await sleep(100);
      }
    }
  }

  /** Sends a message. The returned function withdraws it, and returns true when the message was still unread. */
  async send(workerId: string, message: object): Promise<() => Promise<boolean>> {
    const { redis, signatures } = this.#options;
    const key = this.#keys.mail(workerId);
    const signed = signedMessage(signatures, `worker ${workerId}`, message);
    // A pipeline keeps the order; a worker's Redis user may not be allowed to use transactions.
    await Promise.all([redis.rpush(key, signed), redis.pexpire(key, UNREAD_TTL_MS)]);
    // A command that is sent again, because its answer was lost, leaves two.
    return async () => (await redis.lrem(key, 0, signed)) > 0;
  }

  async close(): Promise<void> {
    const reader = this.#reader;
    this.#reader = undefined;
    if (reader !== undefined) closeConnection(reader);
    await this.#reading.catch(() => {});
  }
}
