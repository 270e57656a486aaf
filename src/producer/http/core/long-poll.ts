/**
 * Requests that wait for a call's end. The waiting ends with the call, the request's own limit, the client's going or the
 * server's closing; the call ends only by itself.
 */
import type { Submission } from '../../calls/submission.ts';

type Pending = Extract<Submission, { readonly kind: 'pending' }>;

/** Calls whose end is still listened for, for the metrics' sake, after nobody waits any more. */
const MAX_FOLLOWED = 2_000;

export class LongPolls {
  readonly #ends = new Set<() => void>();
  readonly #followed = new Set<Pending>();
  #closed = false;

  /** The call's result, or undefined when the waiting ended first. `leave` is given the way to end it early. */
  async until(
    submission: Pending,
    waitMs: number,
    leave: (end: () => void) => void,
  ): Promise<Awaited<Pending['result']> | undefined> {
    const result = await this.within(submission.result, waitMs, leave);
    if (result === undefined) this.#follow(submission);
    return result;
  }

  /** What a promise gives, or undefined when the waiting ended first. */
  async within<T>(awaited: Promise<T>, waitMs: number, leave: (end: () => void) => void): Promise<T | undefined> {
    // Nobody may be waiting when the connection to Redis ends: that is no defect.
    awaited.catch(() => {});
    if (waitMs === 0 || this.#closed) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<T | undefined>();
    const end = () => resolve(undefined);
    const timer = setTimeout(end, waitMs);
    this.#ends.add(end);
    leave(end);
    awaited.then(resolve, reject);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#ends.delete(end);
    }
  }

  /** Listens on, within bounds. */
  #follow(submission: Pending): void {
    if (this.#closed) {
      submission.stop();
      return;
    }
    this.#followed.add(submission);
    const forget = () => void this.#followed.delete(submission);
    submission.result.then(forget, forget);
    const oldest = this.#followed.values().next().value;
    if (this.#followed.size <= MAX_FOLLOWED || oldest === undefined) return;
    this.#followed.delete(oldest);
    oldest.stop();
  }

  /** How many requests wait. */
  get size(): number {
    return this.#ends.size;
  }

  /** Ends all waiting, now and from now on. */
  close(): void {
    this.#closed = true;
    for (const end of this.#ends) end();
    for (const submission of this.#followed) submission.stop();
    this.#followed.clear();
  }
}
