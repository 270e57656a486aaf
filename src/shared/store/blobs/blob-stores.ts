/** The stores of a process: the one that it writes to, and Redis, which has values from before another store was set. */
import { PawlError } from '../../errors/failure.ts';
import type { Redis } from '../redis/connection.ts';
import type { BlobStore } from './blob-store.ts';
import { BlobSweep } from './blob-sweep.ts';
import { RedisBlobs } from './redis-blobs.ts';

export class BlobStores {
  readonly #inRedis: RedisBlobs;
  #writeStore: BlobStore;

  constructor(redis: Redis) {
    this.#inRedis = new RedisBlobs(redis);
    this.#writeStore = this.#inRedis;
  }

  get written(): BlobStore {
    return this.#writeStore;
  }

  /** The kind that references name; undefined for Redis. */
  get kind(): string | undefined {
    return this.#writeStore === this.#inRedis ? undefined : this.#writeStore.kind;
  }

  /** Writes to another store from now on. Values in Redis can still be read. */
  keepIn(store: BlobStore): void {
    this.#writeStore = store;
  }

  /** The store of a kind. Throws `BACKEND_UNAVAILABLE` when this process has another one. */
  of(kind: string | undefined): BlobStore {
    if (kind === undefined) return this.#inRedis;
    if (kind === this.#writeStore.kind) return this.#writeStore;
    throw new PawlError(
      'BACKEND_UNAVAILABLE',
      `The value is in a store of the kind ${JSON.stringify(kind)}, and this process uses ${JSON.stringify(this.#writeStore.kind)}: set PAWL_BLOB_STORE as for the process that wrote it.`,
    );
  }

  /** Marks a value in Redis, unless it is stored in Redis. A marked value is not swept. */
  async mark(name: string): Promise<void> {
    if (this.#writeStore !== this.#inRedis) await this.#inRedis.mark(name, this.#writeStore.kind);
  }

  /** Removes a value that nothing refers to, and its mark. */
  async remove(name: string): Promise<void> {
    await this.#inRedis.remove(name);
    if (this.#writeStore !== this.#inRedis) await this.#writeStore.remove(name);
  }

  /** The sweep of unreferenced values; undefined when they expire by themselves. */
  sweepOf(prefix: string): BlobSweep | undefined {
    return this.#writeStore === this.#inRedis ? undefined : new BlobSweep(this.#writeStore, this.#inRedis, prefix);
  }
}
