/**
 * Waits until what Redis has acknowledged is on its disk (`WAITAOF`). One round at a time serves all who ask: who comes while one
 * is under way waits for the next. On a connection of its own, which such a command holds up.
 */
import { PawlError } from '../failure.ts';
import { FleetKeys } from './keys.ts';
import { backendError, closeConnection, openConnection, type Redis } from './redis.ts';

/** With `appendfsync everysec` the disk is reached within two seconds. */
const WAIT_MS = 5_000;
const KEPT_MS = 60_000;

export class DiskBarrier {
  readonly #client: Redis;
  readonly #key: string;
  #current: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  private constructor(client: Redis, key: string) {
    this.#client = client;
    this.#key = key;
  }

  static open(
    options: { readonly url: string; readonly prefix: string },
    onError: (error: Error) => void,
  ): DiskBarrier {
    const { url, prefix } = options;
    const client = openConnection({ url, name: `${prefix}:disk`, mode: 'fail-fast' }, onError);
    return new DiskBarrier(client, new FleetKeys(prefix).disk);
  }

  /** Resolves when all that was acknowledged before is on disk. Throws `BACKEND_UNAVAILABLE` when Redis cannot say so. */
  passed(): Promise<void> {
    if (this.#current === undefined) {
      this.#current = this.#round().finally(() => {
        this.#current = undefined;
      });
      return this.#current;
    }
    this.#next ??= this.#current
      .catch(() => {})
      .then(() => {
        this.#next = undefined;
        return this.passed();
      });
    return this.#next;
  }

  async #round(): Promise<void> {
    // WAITAOF speaks of the writes of its own connection: this one comes after all that was acknowledged. A pipeline that loses
    // its connection half way is not sent again: on a new connection, without a write, WAITAOF would not wait.
    const answers = await this.#client
      .pipeline()
      .set(this.#key, '1', 'PX', KEPT_MS)
      .call('WAITAOF', 1, 0, WAIT_MS)
      .exec();
    for (const [error] of answers ?? []) if (error !== null) throw backendError(error);
    const [onDisk = 0] = (answers?.[1]?.[1] ?? []) as number[];
    if (onDisk < 1)
      throw new PawlError('BACKEND_UNAVAILABLE', `Redis could not bring its writes to disk within ${WAIT_MS} ms.`);
  }

  close(): void {
    closeConnection(this.#client);
  }
}
