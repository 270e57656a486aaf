/**
 * The port to where the parts of large values are kept. A store knows no lifetimes: a value lives as long as its key in Redis does, which
 * the scripts of a call keep, shorten and remove with the call. In Redis that key is the value itself; any other store has a mark there,
 * and a sweep removes its values whose marks are gone.
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
  /** The names of the values that were written before a time. None of a store whose values end by themselves. */
  names(beforeMs: number): AsyncIterable<string>;
}
