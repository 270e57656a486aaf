/** Removes values without a mark in Redis: they expired, their calls were flushed, or a process died before a record referred to them. */
import type { BlobStore } from './blob-store.ts';
import { type RedisBlobs, UNREFERRED_MS } from './redis-blobs.ts';

const BATCH = 200;

export class BlobSweep {
  readonly #store: BlobStore;
  readonly #marks: Pick<RedisBlobs, 'exist'>;
  readonly #prefix: string;
  /** Values without a mark, with the time of its detection: a Redis that is empty for a moment must not delete them. */
  #unmarked = new Map<string, number>();

  constructor(store: BlobStore, marks: Pick<RedisBlobs, 'exist'>, prefix: string) {
    this.#store = store;
    this.#marks = marks;
    this.#prefix = prefix;
  }

  /** Removes what has had no mark for ten minutes; returns how many values that were. */
  async run(nowMs: number): Promise<number> {
    const unmarked = new Map<string, number>();
    let removed = 0;
    const sweepBatch = async (names: readonly string[]) => {
      const marked = await this.#marks.exist(names);
      for (const [index, name] of names.entries()) {
        if (marked[index]) continue;
        const sinceMs = this.#unmarked.get(name) ?? nowMs;
        if (nowMs - sinceMs < UNREFERRED_MS) unmarked.set(name, sinceMs);
        else {
          await this.#store.remove(name);
          removed += 1;
        }
      }
    };
    let batch: string[] = [];
    for await (const name of this.#store.names(nowMs - UNREFERRED_MS)) {
      // Other fleets may use the same folder.
      if (!name.startsWith(`${this.#prefix}:{`)) continue;
      batch.push(name);
      if (batch.length < BATCH) continue;
      await sweepBatch(batch);
      batch = [];
    }
    await sweepBatch(batch);
    this.#unmarked = unmarked;
    return removed;
  }
}
