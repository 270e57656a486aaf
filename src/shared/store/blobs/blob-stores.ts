/** The stores of a process: the one that it writes to, and Redis, which has values from before another store was set. */
import { PawlError } from '../../errors/failure.ts';
import type { Redis } from '../redis/connection.ts';
import type { BlobStore } from './blob-store.ts';
import { BlobSweep } from './blob-sweep.ts';
import { RedisBlobs } from './redis-blobs.ts';

export class BlobStores {
  readonly #inRedis: RedisBlobs;
  #written: BlobStore;

  constructor(redis: Redis) {
    this.#inRedis = new RedisBlobs(redis);
    this.#written = this.#inRedis;
  }

  /** The store to write to. */
  get written(): BlobStore {
    return this.#written;
  }

  /** The kind that references name; undefined for Redis. */
  get kind(): string | undefined {
    return this.#written === this.#inRedis ? undefined : this.#written.kind;
  }

  /** Writes to another store from now on. What Redis has is still read. */
  keepIn(store: BlobStore): void {
    this.#written = store;
  }

  /** The store of a kind. Throws `BACKEND_UNAVAILABLE` when this process has another one. */
  of(kind: string | undefined): BlobStore {
    if (kind === undefined) return this.#inRedis;
    if (kind === this.#written.kind) return this.#written;
    throw new PawlError(
      'BACKEND_UNAVAILABLE',
      `The value is in a store of the kind ${JSON.stringify(kind)}, and this process has ${JSON.stringify(this.#written.kind)}: set PAWL_BLOB_STORE as where it was written.`,
    );
  }

  /** Marks a value in Redis, unless Redis is what has it. Nothing removes a value that has a mark. */
  async mark(name: string): Promise<void> {
    if (this.#written !== this.#inRedis) await this.#inRedis.mark(name, this.#written.kind);
  }

  /** Removes a value that nothing refers to, and its mark. */
  async remove(name: string): Promise<void> {
    await this.#inRedis.remove(name);
    if (this.#written !== this.#inRedis) await this.#written.remove(name);
  }

  /** The sweep of values that nothing refers to any more; undefined where they end by themselves. */
  sweepOf(prefix: string): BlobSweep | undefined {
    return this.#written === this.#inRedis ? undefined : new BlobSweep(this.#written, this.#inRedis, prefix);
  }
}
