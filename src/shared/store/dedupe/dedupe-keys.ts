/** The names of the Redis keys of a dedupe store. */

/**
 * The keys of a dedupe store that processes without a fleet share. They share one hash tag: a script touches a record and its indexes in
 * one step.
 */
export class DedupeKeys {
  readonly records: string;
  /** Index of all records, by expiry. */
  readonly all: string;
  /** Index of finished records, by last use. */
  readonly finished: string;
  readonly #base: string;

  constructor(prefix: string) {
    this.#base = `${prefix}:{dedupe}`;
    this.records = `${this.#base}:record:`;
    this.all = `${this.#base}:all`;
    this.finished = `${this.#base}:finished`;
  }

  record(key: string): string {
    return `${this.records}${key}`;
  }

  session(sessionKey: string): string {
    return `${this.#base}:session:${sessionKey}`;
  }

  tool(tool: string): string {
    return `${this.#base}:tool:${tool}`;
  }
}
