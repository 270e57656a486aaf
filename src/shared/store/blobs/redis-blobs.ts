/** Large values in Redis: a hash with a field for every part. They expire soon, unless a record that refers to them extends their life. */
import type { Redis } from '../redis/connection.ts';
import { Script } from '../redis/script.ts';
import type { BlobStore } from './blob-store.ts';

/** The time to live of a value without a reference: longer than the retries of writing its record may take. */
export const UNREFERRED_MS = 600_000;

const storePartScript = new Script(new URL('./store-chunk.lua', import.meta.url));

export class RedisBlobs implements BlobStore {
  readonly kind = 'redis';
  readonly #redis: Redis;

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  async put(name: string, part: number, bytes: Buffer): Promise<void> {
    await storePartScript.run(this.#redis, [name], [part, bytes, UNREFERRED_MS]);
  }

  /** Marks a value that another store keeps. */
  async mark(name: string, kind: string): Promise<void> {
    await storePartScript.run(this.#redis, [name], ['in', kind, UNREFERRED_MS]);
  }

  /** Whether each of these values, or its mark, is there. */
  async exist(names: readonly string[]): Promise<boolean[]> {
    return Promise.all(names.map(async (name) => (await this.#redis.exists(name)) === 1));
  }

  get(name: string, part: number): Promise<Buffer | null> {
    return this.#redis.hgetBuffer(name, String(part));
  }

  async remove(name: string): Promise<void> {
    await this.#redis.unlink(name);
  }

  async *names(): AsyncGenerator<string, void, undefined> {}
}
