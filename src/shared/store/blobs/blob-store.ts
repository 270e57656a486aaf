/**
 * The interface of a store for the parts of large values. A store knows no lifetimes: a value lives as long as its key in Redis, which the
 * scripts of a call extend, shorten and remove with the call. In Redis that key is the value itself. For any other store the key is a mark,
 * and a sweep removes values without a mark.
 */
export interface BlobStore {
  /** The name of the kind, which references to values carry. */
  readonly kind: string;
  /** Stores a part of a value, durably. Written again, it is the same part. Throws `BACKEND_UNAVAILABLE`. */
  put(name: string, part: number, bytes: Buffer): Promise<void>;
  /** A part as it was stored; null when it is not there. Throws `BACKEND_UNAVAILABLE`. */
  get(name: string, part: number): Promise<Buffer | null>;
  /** Removes all parts of a value. */
  remove(name: string): Promise<void>;
  /** The names of the values that were written before a time. Empty for a store whose values expire by themselves. */
  names(beforeMs: number): AsyncIterable<string>;
}
