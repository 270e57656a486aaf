/** Large values in Redis: a hash for each, with a field for every part. They expire soon, unless what refers to them lets them live. */
import type { Redis } from '../redis/connection.ts';
import { Script } from '../redis/script.ts';
import type { BlobStore } from './blob-store.ts';

/** Longer than it takes to write what refers to a value, again and again while Redis is away. */
export const UNREFERRED_MS = 600_000;

const keepPartScript = new Script(new URL('./store-chunk.lua', import.meta.url));

export class RedisBlobs implements BlobStore {
  readonly kind = 'redis';
  readonly #redis: Redis;

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  async put(name: string, part: number, bytes: Buffer): Promise<void> {
    await keepPartScript.run(this.#redis, [name], [part, bytes, UNREFERRED_MS]);
  }

  /** Marks a value that another store keeps. */
  async mark(name: string, kind: string): Promise<void> {
    await keepPartScript.run(this.#redis, [name], ['in', kind, UNREFERRED_MS]);
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
